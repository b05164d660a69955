"""tempo9: local inference for GGUF models, in this process.

    import tempo9

    with tempo9.Model("model.gguf") as model, tempo9.Engine(model) as engine:
        for part in engine.chat([{"role": "user", "content": "Hello!"}], max_tokens=100):
            print(part, end="", flush=True)

A Model may be used by any number of threads; an Engine answers any number of requests at once, each iterated by one
thread. Calls into the library let other Python threads run. What fails raises Error, whose `status` is the library's
("INVALID", "NOT_FOUND", "NOMEM", ...) and whose text says what to do.
"""
import ctypes as _c
import json as _json

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
    """A C object that close(), `with` and the garbage collector free."""
    _free = None
    _p = None

    def close(self):
        p, self._p = self._p, None
        if p:
            self._free(p)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def _open(self):
        if not self._p:
            raise ValueError("%s is closed" % type(self).__name__)
        return self._p


class Model(_Handle):
    """A GGUF file. threads 0: all cores. progress(done_bytes, total_bytes) returns False to stop the load."""
    _free = staticmethod(_native.lib.t9_model_free)

    def __init__(self, path, threads=0, step_tokens=0, backend=None, isa=None, vocab_only=False, progress=None):
        p = _native.ModelParams()
        _native.lib.t9_model_params_init(_c.byref(p), _c.sizeof(p))
        p.path = str(path).encode()
        p.backend = backend.encode() if backend else None
        p.isa = isa.encode() if isa else None
        p.threads, p.step_tokens, p.vocab_only = threads, step_tokens, vocab_only
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
        self._p = out.value

    @property
    def info(self):
        """A dict of what is known of the model: arch, n_vocab, context_length, n_params, ..."""
        out = _native.ModelInfo()
        _check(_native.lib.t9_model_info(self._open(), _c.byref(out)))
        info = {}
        for name, _ in out._fields_[1:]:
            value = getattr(out, name)
            info[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        info["chat_template"] = {n: getattr(out.chat_template, n) for n, _ in out.chat_template._fields_}
        return info

    def keys(self):
        """The keys of the file's metadata."""
        n = _native.lib.t9_model_n_keys(self._open())
        return [_native.lib.t9_model_key(self._p, i).decode("utf-8", "replace") for i in range(n)]

    def metadata(self, key):
        """A value of the file's metadata."""
        out, err = _native.Text(), _native.Err()
        _check(_native.lib.t9_model_metadata(self._open(), key.encode(), _METADATA_BYTES_MAX, _c.byref(out),
                                             _c.byref(err)), err)
        return _json.loads(_text(out))

    def tokenize(self, text, special=False, bos=False):
        """Token ids. special: control tokens are recognised in it; never for text that a user wrote."""
        data = text if isinstance(text, bytes) else text.encode()
        out, err = _native.Ids(), _native.Err()
        flags = (1 if special else 0) | (2 if bos else 0)
        _check(_native.lib.t9_tokenize(self._open(), data, len(data), flags, _c.byref(out), _c.byref(err)), err)
        return _ids(out)

    def detokenize(self, ids, special=False):
        """The text of tokens; special: control tokens show their text."""
        array = (_c.c_int32 * max(1, len(ids)))(*ids)
        out, err = _native.Text(), _native.Err()
        _check(_native.lib.t9_detokenize(self._open(), array, len(ids), 1 if special else 0, _c.byref(out),
                                         _c.byref(err)), err)
        return _text(out)

    def _chat(self, call, out, messages, tools, kwargs, generation_prompt, max_tokens):
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
        p.no_generation_prompt = not generation_prompt
        p.max_tokens = max_tokens
        _check(call(self._open(), _c.byref(p), _c.byref(out), _c.byref(err)), err)

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
    _free = staticmethod(_native.lib.t9_request_free)
    _WAIT_MS = 200  # so that Ctrl-C is seen

    def __init__(self, p, engine):
        self._p = p
        self._engine = engine  # which must not go before us
        self._over = False

    def __iter__(self):
        return self

    def __next__(self):
        while not self._over:
            ev = _native.Event()
            _check(_native.lib.t9_request_next(self._open(), self._WAIT_MS, _c.byref(ev)))
            self._over = ev.kind in (_native.EVENT_DONE, _native.EVENT_ERROR)
            if ev.kind == _native.EVENT_ERROR:
                _check(ev.error.code, ev.error)
            if ev.kind != _native.EVENT_NONE:
                return Event(ev)
        raise StopIteration

    def cancel(self):
        _native.lib.t9_request_cancel(self._open())


class Engine(_Handle):
    """Computes for all requests of one model. kv_bytes 0: half of the free memory for the KV cache."""
    _free = staticmethod(_native.lib.t9_engine_free)

    def __init__(self, model, **params):
        p = _native.EngineParams()
        _native.lib.t9_engine_params_init(_c.byref(p), _c.sizeof(p))
        p.model = model._open()
        self._fill(p, params, ("kv_type", "kv_bytes", "max_length", "max_batch", "step_tokens", "queue",
                               "max_per_client", "cache_idle_ms", "no_prefix_cache"))
        out, err = _c.c_void_p(), _native.Err()
        _check(_native.lib.t9_engine_new(_c.byref(out), _c.byref(p), _c.byref(err)), err)
        self._p = out.value
        self.model = model

    @staticmethod
    def _fill(p, params, names):
        for name, value in params.items():
            if name not in names:
                raise TypeError("unknown parameter %s" % name)
            setattr(p, name, value.encode() if isinstance(value, str) else value)

    _PARAMS = ("max_tokens", "temperature", "top_p", "min_p", "top_k", "seed", "choice", "presence_penalty",
               "frequency_penalty", "repetition_penalty", "n_logprobs", "prompt_logprobs", "min_tokens", "ignore_eos",
               "text", "priority", "client_key", "queue_timeout_ms", "n_pin_tokens", "pin_ms")

    def submit(self, tokens, stop=(), stop_ids=(), logit_bias=None, **params):
        """Queues a prompt of tokens and returns its Request. stop: texts; logit_bias: {token: bias}."""
        p = _native.RequestParams()
        _native.lib.t9_request_params_init(_c.byref(p), _c.sizeof(p))
        self._fill(p, params, self._PARAMS)
        p.prompt = (_c.c_int32 * max(1, len(tokens)))(*tokens)
        p.n_prompt = len(tokens)
        stops = [stop] if isinstance(stop, str) else list(stop)
        p.stops = (_c.c_char_p * max(1, len(stops)))(*[s.encode() for s in stops])
        p.n_stops = len(stops)
        p.stop_ids = (_c.c_int32 * max(1, len(stop_ids)))(*stop_ids)
        p.n_stop_ids = len(stop_ids)
        pairs = [_native.LogitBias(int(t), b) for t, b in (logit_bias or {}).items()]
        p.bias = (_native.LogitBias * max(1, len(pairs)))(*pairs)
        p.n_bias = len(pairs)
        out, err = _c.c_void_p(), _native.Err()
        _check(_native.lib.t9_engine_submit(self._open(), _c.byref(p), _c.byref(out), _c.byref(err)), err)
        return Request(out.value, self)

    def generate(self, prompt, **params):
        """Yields the text that continues a prompt (text, control tokens recognised; or tokens), as it comes."""
        tokens = self.model.tokenize(prompt, special=True, bos=True) if isinstance(prompt, str) else prompt
        with self.submit(tokens, **params) as request:
            for event in request:
                if event.text:
                    yield event.text

    def chat(self, messages, tools=None, template_kwargs=None, **params):
        """Yields the answer to a conversation, as it comes."""
        tokens = self.model.chat_tokens(messages, tools, **(template_kwargs or {}))
        return self.generate(tokens, **params)

    @property
    def stats(self):
        """A dict of what the engine has counted."""
        out = _native.Stats()
        _check(_native.lib.t9_engine_stats(self._open(), _c.byref(out)))
        return {n: list(v) if isinstance(v := getattr(out, n), _c.Array) else v for n, _ in out._fields_[1:]}

    @property
    def max_length(self):
        """Tokens that prompt and answer may have together."""
        return _native.lib.t9_engine_max_length(self._open())
