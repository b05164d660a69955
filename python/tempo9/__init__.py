"""tempo9: local inference for GGUF models, in this process.

    import tempo9

    with tempo9.Model("model.gguf") as model, tempo9.Engine(model) as engine:
        for part in engine.chat([{"role": "user", "content": "Hello!"}], max_tokens=100):
            print(part, end="", flush=True)

A Model may be used by any number of threads; an Engine answers any number of requests at once, each iterated by one
thread. Calls into the library let other Python threads run. What fails raises Error, whose `status` is the library's
("INVALID", "NOT_FOUND", "NOMEM", ...) and whose text says what to do.

close() may come from any thread: it waits for calls that are under way, and calls that come later raise ValueError. A
child process after os.fork() may not use its parent's objects: calls raise Error, and nothing is freed there.
"""
import array as _array
import ctypes as _c
import json as _json
import os as _os
import threading as _threading

from . import _native

__all__ = ["Engine", "Error", "Event", "Model", "Request", "build_id", "set_log", "version"]

LOG_LEVELS = ("error", "warn", "info", "debug")
_METADATA_BYTES_MAX = 64 << 20


class Error(Exception):
    """What went wrong; `status` is the library's name for the kind of it."""

    def __init__(self, status, message):
        super().__init__(message or status)
        self.status = status


def _check(code, err=None):
    if code:
        raise Error(_native.lib.t9_status_name(code).decode(), err.msg.decode("utf-8", "replace") if err else "")


def _refuse(message, *values):
    raise Error("INVALID", message % values)


def _zero_ended(name, value):
    """Text for the library, which ends at a NUL byte: one in the middle would cut it."""
    if not isinstance(value, (bytes, str)):
        raise TypeError("%s must be a text, not %s" % (name, type(value).__name__))
    data = value if isinstance(value, bytes) else value.encode()
    if 0 in data:
        _refuse("%s has a NUL byte in it", name)
    return data


def _integer(name, value, kind):
    """An integer that its C type can hold; ctypes would take the lowest bits of any."""
    bits = 8 * _c.sizeof(kind)
    signed = kind(-1).value < 0
    low, high = (-1 << bits - 1, (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not low <= value <= high:
        _refuse("%s must be within %d and %d, got %d", name, low, high, value)
    return value


_INTEGERS = (_c.c_int32, _c.c_uint32, _c.c_int64, _c.c_uint64)


def _fill(p, **values):
    """Sets fields of a struct; what they cannot hold is refused by name."""
    kinds = dict((field[0], field[1]) for field in p._fields_)
    for name, value in values.items():
        kind = kinds[name]
        if kind is _c.c_char_p and value is not None:
            value = _zero_ended(name, value)
        elif kind in _INTEGERS and hasattr(value, "__index__"):
            value = _integer(name, value.__index__(), kind)
        setattr(p, name, value)


def _ids_in(name, ids):
    """Token ids as an array of the library's, and their number."""
    try:
        values = _array.array("i", iter(ids))
    except OverflowError:
        _refuse("%s: a number in it is no token id: ids have 32 bits", name)
    n = len(values)
    return (_c.c_int32 * n).from_buffer(values) if n else (_c.c_int32 * 1)(), n


def _text(out):
    try:
        return _c.string_at(out.p, out.n).decode("utf-8", "replace")
    finally:
        _native.lib.t9_text_free(_c.byref(out))


def _ids(out):
    try:
        return out.p[:out.n]
    finally:
        _native.lib.t9_ids_free(_c.byref(out))


def version():
    """The library's version, "0.1.0"."""
    return _native.lib.t9_version().decode()


def build_id():
    """The commit that the library was built from."""
    return _native.lib.t9_build_id().decode()


_log = None


def set_log(function, level="info"):
    """Calls function(level, module, message) with what the library has to say; None: silence. Of the whole process."""
    global _log
    callback = _native.LOG(0)
    if function:
        callback = _native.LOG(lambda _ctx, number, module, message: function(
            LOG_LEVELS[number], module.decode(), message.decode("utf-8", "replace")))
    _native.lib.t9_log_set(LOG_LEVELS.index(level), callback, None)
    _log = callback  # the old one may go now


class _Handle:
    """A C object that close(), `with` and the garbage collector free.

    Calls are counted per thread. close() lets nobody in any more and waits until all are out; whoever finds itself the
    last one out, be it that thread or another, frees the object. A thread that closes within a call of its own (from a
    signal handler, say) does not wait for itself. In another process than the one that made the object nothing of it
    is touched, its lock neither: the thread that held it does not exist there.
    """
    _free = None
    _p = None
    _pid = None
    _closed = False
    _freeing = None  # the thread that is about to free, or does

    def _own(self, p):
        self._changed = _threading.Condition()
        self._inside = {}  # thread: calls
        self._gone = False
        self._pid = _os.getpid()
        self._p = p

    def close(self):
        if self._pid != _os.getpid():
            self._p = None
            return
        with self._changed:
            self._closed = True
            p = self._last_out()
        if p:
            self._let_go(p)
        with self._changed:
            me = _threading.get_ident()
            while not self._gone and me not in self._inside and me != self._freeing:
                self._changed.wait()

    def _closing(self, me):
        """With the lock: whether other threads are about to leave it, or to free it. (What the garbage collector
        closes within this thread's own steps here must not wait for this thread.)"""
        if self._p:
            return self._closed and self._inside and me not in self._inside
        return not self._gone and me != self._freeing

    def _last_out(self):
        """With the lock: the object, if it is to be freed now."""
        if not self._closed or self._inside or not self._p:
            return None
        p, self._p = self._p, None
        self._freeing = _threading.get_ident()
        return p

    def _let_go(self, p):
        try:
            self._free(p)
        finally:
            with self._changed:
                self._gone = True
                self._freeing = None
                self._changed.notify_all()

    def _check_process(self):
        if self._pid not in (None, _os.getpid()):
            _refuse("this %s was made by process %d, and a child process after fork() may not use it: make one here",
                    type(self).__name__, self._pid)

    def _enter(self):
        self._check_process()
        if self._p:
            with self._changed:
                me = _threading.get_ident()
                if self._p and (not self._closed or me in self._inside):
                    self._inside[me] = self._inside.get(me, 0) + 1
                    return
        raise ValueError("%s is closed" % type(self).__name__)

    def _enter_if_open(self):
        """Like _enter, but waits until a close() under way is done; False: the object is gone."""
        with self._changed:
            me = _threading.get_ident()
            while self._closing(me):
                self._changed.wait()
            if self._p:
                self._inside[me] = self._inside.get(me, 0) + 1
            return bool(self._p)

    def _leave(self):
        with self._changed:
            me = _threading.get_ident()
            self._inside[me] -= 1
            if not self._inside[me]:
                del self._inside[me]
            p = self._last_out()
        if p:
            self._let_go(p)

    def _call(self, function, *rest):
        """function(the C object, *rest), during which it is not freed."""
        self._enter()
        try:
            return function(self._p, *rest)
        finally:
            self._leave()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if self._pid is not None:
            self.close()


class Model(_Handle):
    """A GGUF file. threads 0: all cores. progress(done_bytes, total_bytes) returns False to stop the load."""
    _free = staticmethod(_native.lib.t9_model_free)

    def __init__(self, path, threads=0, step_tokens=0, backend=None, isa=None, vocab_only=False, progress=None):
        p = _native.ModelParams()
        _native.lib.t9_model_params_init(_c.byref(p), _c.sizeof(p))
        _fill(p, path=_os.fsencode(path), backend=backend or None, isa=isa or None, threads=threads,
              step_tokens=step_tokens, vocab_only=vocab_only)
        raised = []
        if progress:
            def step(_ctx, done, total):
                try:
                    return progress(done, total) is not False
                except BaseException as error:  # must not cross the library
                    raised.append(error)
                    return False
            p.progress = _native.PROGRESS(step)
        out, err = _c.c_void_p(), _native.Err()
        code = _native.lib.t9_model_load(_c.byref(out), _c.byref(p), _c.byref(err))
        if raised:
            raise raised[0]
        _check(code, err)
        self._own(out.value)

    @property
    def info(self):
        """A dict of what is known of the model: arch, n_vocab, context_length, n_params, ..."""
        return self._call(self._read_info)

    @staticmethod
    def _read_info(model):
        out = _native.ModelInfo()  # its texts live as long as the model
        _check(_native.lib.t9_model_info(model, _c.byref(out)))
        info = {}
        for name, _ in out._fields_[1:]:
            value = getattr(out, name)
            info[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for part in ("chat_template", "template_tools"):
            value = info[part]
            info[part] = {n: getattr(value, n) for n, _ in value._fields_}
        return info

    def keys(self):
        """The keys of the file's metadata."""
        return self._call(lambda model: [_native.lib.t9_model_key(model, i).decode("utf-8", "replace")
                                         for i in range(_native.lib.t9_model_n_keys(model))])

    def metadata(self, key):
        """A value of the file's metadata."""
        out, err = _native.Text(), _native.Err()
        _check(self._call(_native.lib.t9_model_metadata, _zero_ended("key", key), _METADATA_BYTES_MAX, _c.byref(out),
                          _c.byref(err)), err)
        return _json.loads(_text(out))

    def tokenize(self, text, special=False, bos=False):
        """Token ids. special: control tokens are recognised in it; never for text that a user wrote."""
        data = text if isinstance(text, bytes) else text.encode()
        out, err = _native.Ids(), _native.Err()
        flags = (1 if special else 0) | (2 if bos else 0)
        _check(self._call(_native.lib.t9_tokenize, data, len(data), flags, _c.byref(out), _c.byref(err)), err)
        return _ids(out)

    def detokenize(self, ids, special=False):
        """The text of tokens; special: control tokens show their text."""
        array, n = _ids_in("ids", ids)
        out, err = _native.Text(), _native.Err()
        _check(self._call(_native.lib.t9_detokenize, array, n, 1 if special else 0, _c.byref(out), _c.byref(err)), err)
        return _text(out)

    def _chat(self, call, out, messages, tools, kwargs, generation_prompt, max_tokens, more=()):
        p, err = _native.ChatParams(), _native.Err()
        _native.lib.t9_chat_params_init(_c.byref(p), _c.sizeof(p))
        p.messages = _json.dumps(messages).encode()
        p.messages_bytes = len(p.messages)
        if tools is not None:
            p.tools = _json.dumps(tools).encode()
            p.tools_bytes = len(p.tools)
        if kwargs:
            p.kwargs = _json.dumps(kwargs).encode()
            p.kwargs_bytes = len(p.kwargs)
        _fill(p, no_generation_prompt=not generation_prompt, max_tokens=max_tokens)
        _check(self._call(call, _c.byref(p), _c.byref(out), *more, _c.byref(err)), err)

    def chat_render(self, messages, tools=None, generation_prompt=True, **kwargs):
        """The conversation as text, for reading."""
        out = _native.Text()
        self._chat(_native.lib.t9_chat_render, out, messages, tools, kwargs, generation_prompt, 0)
        return _text(out)

    def chat_tokens(self, messages, tools=None, generation_prompt=True, max_tokens=0, **kwargs):
        """The conversation as the tokens of a prompt. Text of messages never becomes control tokens."""
        out = _native.Ids()
        self._chat(_native.lib.t9_chat_tokens, out, messages, tools, kwargs, generation_prompt, max_tokens)
        return _ids(out)

    def chat_tokens_marked(self, messages, tools=None, generation_prompt=True, max_tokens=0, **kwargs):
        """As chat_tokens, and the places where other prompts may part from it, for Engine.submit: (tokens, marks)."""
        out, marks, n = _native.Ids(), (_native.Mark * _native.MARKS_MAX)(), _c.c_size_t()
        self._chat(_native.lib.t9_chat_tokens_marked, out, messages, tools, kwargs, generation_prompt, max_tokens,
                   (marks, _c.byref(n)))
        return _ids(out), [(m.n_tokens, m.kind) for m in marks[:n.value]]


class Event:
    """What is new in an answer: `kind` is "admitted", "progress", "tokens" or "done".

    tokens, text: what came (of "tokens"); logprobs: for each token a list of (token, logprob), its own first; finish,
    stop_token: why it ended (of "done"); n_prompt, n_cached, n_prefilled: tokens of the prompt.
    """
    KINDS = ("none", "admitted", "progress", "tokens", "done", "error")

    def __init__(self, ev):
        self.kind = self.KINDS[ev.kind]
        self.n_prompt, self.n_cached, self.n_prefilled = ev.n_prompt, ev.n_cached, ev.n_prefilled
        self.tokens = ev.tokens[:ev.n_tokens] if ev.n_tokens else []
        self.text = _c.string_at(ev.text, ev.text_bytes).decode() if ev.text_bytes else ""
        self.logprobs = None
        if ev.n_logprobs:
            rows = [(ev.logprobs[i].token, ev.logprobs[i].logprob) for i in range(ev.n_tokens * ev.n_logprobs)]
            self.logprobs = [rows[i:i + ev.n_logprobs] for i in range(0, len(rows), ev.n_logprobs)]
        self.finish = _native.lib.t9_finish_name(ev.finish).decode()
        self.stop_token = ev.stop_token if ev.stop_token >= 0 else None

    def __repr__(self):
        return "<Event %s %r>" % (self.kind, self.text or self.finish)


class Request(_Handle):
    """An answer being made: iterate over its events. Closing it, also by leaving the loop early, cancels it."""
    _WAIT_MS = 200  # so that Ctrl-C is seen

    def __init__(self, p, engine, n_prompt, n_logprobs):
        self._engine = engine
        self._n_prompt, self._n_logprobs = n_prompt, n_logprobs
        self._over = False
        self._reading = _threading.Lock()
        self._own(p)

    def __iter__(self):
        return self

    def __next__(self):
        self._check_process()
        if not self._reading.acquire(blocking=False):
            raise ValueError("the Request is being read already, by another thread")
        try:
            event = self._read()
        finally:
            self._reading.release()
        if event:
            return event
        raise StopIteration

    def _read(self):
        """The next event; None after the last."""
        event = None
        while not event and not self._over:
            ev = _native.Event()
            event = self._call(self._next, ev)
            self._over = ev.kind in (_native.EVENT_DONE, _native.EVENT_ERROR)
            if ev.kind == _native.EVENT_ERROR:
                _check(ev.error.code, ev.error)
        return event

    def close(self):
        if self._p and self._pid == _os.getpid():
            try:
                self.cancel()  # so that a thread that waits for an event hears of it at once
            except ValueError:
                pass  # somebody else was faster
        super().close()

    def cancel(self):
        """Ends the answer within two steps, from any thread."""
        self._call(self._beside_engine, _native.lib.t9_request_cancel)

    def prompt_logprobs(self):
        """For each token of the prompt a list of (token, logprob), its own first, and None for the first token, which
        nothing precedes. None without prompt_logprobs, and before a token has come or the answer has ended."""
        return self._call(self._prompt_logprobs)

    def _prompt_logprobs(self, p):
        rows, width = self._beside_engine(p, _native.lib.t9_request_logprobs, True), self._n_logprobs
        if not rows:
            return None
        pairs = [(r.token, r.logprob) for r in rows[:self._n_prompt * width]]
        return [pairs[i * width:(i + 1) * width] if i else None for i in range(self._n_prompt)]

    def _next(self, p, ev):
        """What came, copied while the request is there; None: nothing."""
        _check(self._beside_engine(p, _native.lib.t9_request_next, self._WAIT_MS, _c.byref(ev)))
        return Event(ev) if ev.kind != _native.EVENT_NONE else None

    def _beside_engine(self, p, function, *rest):
        """function(p, *rest) not at the same time as the engine is freed: it may cancel. After that it may be called."""
        held = self._engine._enter_if_open()
        try:
            return function(p, *rest)
        finally:
            if held:
                self._engine._leave()

    def _free(self, p):
        self._beside_engine(p, _native.lib.t9_request_free)


class Engine(_Handle):
    """Computes for all requests of one model. kv_bytes 0: half of the free memory for the KV cache."""
    _free = staticmethod(_native.lib.t9_engine_free)

    def __init__(self, model, **params):
        p = _native.EngineParams()
        _native.lib.t9_engine_params_init(_c.byref(p), _c.sizeof(p))
        self._take(p, params, ("kv_type", "kv_bytes", "max_length", "allow_long", "max_batch", "step_tokens", "queue",
                               "max_per_client", "cache_idle_ms", "no_prefix_cache"))
        out, err = _c.c_void_p(), _native.Err()

        def make(model_p):
            p.model = model_p
            _check(_native.lib.t9_engine_new(_c.byref(out), _c.byref(p), _c.byref(err)), err)

        model._call(make)
        self._own(out.value)
        self.model = model

    @staticmethod
    def _take(p, params, names):
        for name in params:
            if name not in names:
                raise TypeError("unknown parameter %s" % name)
        _fill(p, **params)

    _PARAMS = ("max_tokens", "temperature", "top_p", "min_p", "top_k", "seed", "choice", "presence_penalty",
               "frequency_penalty", "repetition_penalty", "n_logprobs", "prompt_logprobs", "prompt_only", "min_tokens",
               "ignore_eos", "text", "priority", "client_key", "queue_timeout_ms", "n_pin_tokens", "pin_ms")

    def submit(self, tokens, stop=(), stop_ids=(), logit_bias=None, marks=(), **params):
        """Queues a prompt of tokens and returns its Request.

        stop: texts; logit_bias: {token: bias}; marks: of Model.chat_tokens_marked.
        """
        p = _native.RequestParams()
        _native.lib.t9_request_params_init(_c.byref(p), _c.sizeof(p))
        self._take(p, params, self._PARAMS)
        p.prompt, p.n_prompt = _ids_in("tokens", tokens)
        stops = [stop] if isinstance(stop, str) else list(stop)
        p.stops = (_c.c_char_p * max(1, len(stops)))(*[_zero_ended("stop", s) for s in stops])
        p.n_stops = len(stops)
        p.stop_ids, p.n_stop_ids = _ids_in("stop_ids", stop_ids)
        pairs = [_native.LogitBias(_integer("a token of logit_bias", int(t), _c.c_int32), b)
                 for t, b in (logit_bias or {}).items()]
        p.bias = (_native.LogitBias * max(1, len(pairs)))(*pairs)
        p.n_bias = len(pairs)
        p.marks = (_native.Mark * max(1, len(marks)))(*[_native.Mark(*mark) for mark in marks])
        p.n_marks = len(marks)
        out, err = _c.c_void_p(), _native.Err()
        return self._call(self._submit, p, out, err)

    def _submit(self, engine, p, out, err):
        _check(_native.lib.t9_engine_submit(engine, _c.byref(p), _c.byref(out), _c.byref(err)), err)
        return Request(out.value, self, p.n_prompt, p.n_logprobs)

    def generate(self, prompt, **params):
        """Yields the text that continues a prompt (text, control tokens recognised; or tokens), as it comes."""
        tokens = self.model.tokenize(prompt, special=True, bos=True) if isinstance(prompt, str) else prompt
        with self.submit(tokens, **params) as request:
            for event in request:
                if event.text:
                    yield event.text

    def chat(self, messages, tools=None, template_kwargs=None, **params):
        """Yields the answer to a conversation, as it comes."""
        tokens, marks = self.model.chat_tokens_marked(messages, tools, **(template_kwargs or {}))
        return self.generate(tokens, marks=marks, **params)

    @property
    def stats(self):
        """A dict of what the engine has counted."""
        out = _native.Stats()
        _check(self._call(_native.lib.t9_engine_stats, _c.byref(out)))
        return {n: list(v) if isinstance(v := getattr(out, n), _c.Array) else v for n, _ in out._fields_[1:]}

    @property
    def max_length(self):
        """Tokens that prompt and answer may have together."""
        return self._call(_native.lib.t9_engine_max_length)
