"""The C library's functions and structs, as include/tempo9.h declares them. Nothing here is for users."""
import ctypes as c
import ctypes.util
import os

SONAME = "libtempo9.so.0.1"


class Text(c.Structure):
    _fields_ = [("p", c.POINTER(c.c_char)), ("n", c.c_size_t)]


class Ids(c.Structure):
    _fields_ = [("p", c.POINTER(c.c_int32)), ("n", c.c_size_t)]


class Err(c.Structure):
    _c_name_ = "t9_err"
    _fields_ = [("code", c.c_int), ("msg", c.c_char * 240)]


PROGRESS = c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_uint64, c.c_uint64)
LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p, c.c_char_p)


class Sized(c.Structure):
    """Sets struct_size of structs that come out."""

    def __init__(self):
        super().__init__()
        self.struct_size = c.sizeof(self)


class ModelParams(c.Structure):
    _c_name_ = "t9_model_params"
    _fields_ = [("struct_size", c.c_size_t), ("path", c.c_char_p), ("backend", c.c_char_p), ("isa", c.c_char_p),
                ("threads", c.c_int32), ("step_tokens", c.c_int32), ("vocab_only", c.c_bool), ("progress", PROGRESS),
                ("progress_ctx", c.c_void_p)]


class TemplateInfo(c.Structure):
    _c_name_ = "t9_template_info"
    _fields_ = [(name, c.c_bool) for name in ("present", "chatml_fallback", "system", "later_system", "user_twice")]


class TemplateTools(c.Structure):
    _c_name_ = "t9_template_tools"
    _fields_ = [(name, c.c_bool) for name in ("tools", "calls", "results", "arguments_text", "reasoning")]


class ModelInfo(Sized):
    _c_name_ = "t9_model_info"
    _fields_ = [("struct_size", c.c_size_t), ("file_name", c.c_char_p), ("arch", c.c_char_p), ("backend", c.c_char_p),
                ("isa", c.c_char_p), ("numerics", c.c_char_p), ("threads", c.c_int32), ("n_vocab", c.c_int32),
                ("n_layers", c.c_int32), ("n_embd", c.c_int32), ("context_length", c.c_int32),
                ("n_params", c.c_uint64), ("weight_bytes", c.c_uint64), ("file_bytes", c.c_uint64),
                ("load_ns", c.c_uint64), ("bos", c.c_int32), ("eos", c.c_int32), ("add_bos", c.c_bool),
                ("chat_template", TemplateInfo), ("fim_prefix", c.c_int32), ("fim_suffix", c.c_int32),
                ("fim_middle", c.c_int32), ("token_bytes_max", c.c_int32), ("template_tools", TemplateTools)]


class ChatParams(c.Structure):
    _c_name_ = "t9_chat_params"
    _fields_ = [("struct_size", c.c_size_t), ("messages", c.c_char_p), ("messages_bytes", c.c_size_t),
                ("tools", c.c_char_p), ("tools_bytes", c.c_size_t), ("kwargs", c.c_char_p),
                ("kwargs_bytes", c.c_size_t), ("max_tokens", c.c_int32), ("no_generation_prompt", c.c_bool),
                ("now_unix_s", c.c_int64), ("max_length", c.c_int32)]


class EngineParams(c.Structure):
    _c_name_ = "t9_engine_params"
    _fields_ = [("struct_size", c.c_size_t), ("model", c.c_void_p), ("kv_type", c.c_char_p), ("kv_bytes", c.c_uint64),
                ("max_length", c.c_int32), ("max_batch", c.c_int32), ("step_tokens", c.c_int32), ("queue", c.c_int32),
                ("max_per_client", c.c_int32), ("cache_idle_ms", c.c_int32), ("no_prefix_cache", c.c_bool), ("allow_long", c.c_bool),
                ("plan_log", c.c_void_p), ("plan_log_ctx", c.c_void_p), ("diverged", c.c_void_p),
                ("diverged_ctx", c.c_void_p)]


BUCKETS = 16
CHECKPOINTS = 5


class Stats(Sized):
    _c_name_ = "t9_stats"
    _fields_ = (
        [("struct_size", c.c_size_t)] +
        [(n, c.c_int32) for n in ("running", "waiting", "waiting_prefix", "waiting_preempted", "kv_pages_total",
                                  "kv_pages_used", "kv_pages_cold", "kv_pages_pinned", "kv_pages_free")] +
        [("kv_page_bytes", c.c_uint64)] +
        [(n, c.c_double) for n in ("cost_step_ns", "cost_row_ns", "cost_key_ns", "cost_experts_ns",
                                     "decode_step_ns")] +
        [(n, c.c_uint64) for n in ("steps", "rows", "prompt_tokens", "cached_tokens", "generated_tokens",
                                   "recomputed_tokens", "requests_admitted", "requests_stop", "requests_length",
                                   "requests_cancelled", "requests_error", "requests_expired", "prefix_full",
                                   "prefix_partial", "prefix_inflight", "prefix_miss", "prefix_given_up",
                                   "prefix_diverged", "preemptions", "evicted_pages", "queue_ns", "prefill_ns",
                                   "decode_ns", "step_ns")] +
        [("bucket_ms", c.c_double * (BUCKETS - 1)), ("ttft_bucket", c.c_uint64 * BUCKETS),
         ("gap_bucket", c.c_uint64 * BUCKETS)] +
        [(n, c.c_uint64) for n in ("ttft_count", "gap_count", "ttft_sum_ns", "gap_sum_ns")] +
        [("kv_states_used", c.c_int32), ("kv_states_kept", c.c_int32), ("kv_state_bytes", c.c_uint64),
         ("evicted_states", c.c_uint64), ("checkpoints_kept", c.c_uint64 * CHECKPOINTS),
         ("checkpoint_hits", c.c_uint64 * CHECKPOINTS), ("kv_windows_used", c.c_int32),
         ("kv_windows_cold", c.c_int32), ("kv_window_bytes", c.c_uint64), ("evicted_windows", c.c_uint64)])


class LogitBias(c.Structure):
    _c_name_ = "t9_logit_bias"
    _fields_ = [("token", c.c_int32), ("bias", c.c_float)]


class Logprob(c.Structure):
    _c_name_ = "t9_logprob"
    _fields_ = [("token", c.c_int32), ("logprob", c.c_float)]


class Mark(c.Structure):
    _c_name_ = "t9_mark"
    _fields_ = [("n_tokens", c.c_int32), ("kind", c.c_int32)]


MARKS_MAX = 16


class RequestParams(c.Structure):
    _c_name_ = "t9_request_params"
    _fields_ = [("struct_size", c.c_size_t), ("prompt", c.POINTER(c.c_int32)), ("n_prompt", c.c_size_t),
                ("max_tokens", c.c_int32), ("temperature", c.c_float), ("top_p", c.c_float), ("min_p", c.c_float),
                ("top_k", c.c_int32), ("seed", c.c_uint64), ("choice", c.c_uint32), ("presence_penalty", c.c_float),
                ("frequency_penalty", c.c_float), ("repetition_penalty", c.c_float), ("bias", c.POINTER(LogitBias)),
                ("n_bias", c.c_size_t), ("n_logprobs", c.c_int32), ("prompt_logprobs", c.c_bool),
                ("stops", c.POINTER(c.c_char_p)), ("n_stops", c.c_size_t), ("stop_ids", c.POINTER(c.c_int32)),
                ("n_stop_ids", c.c_size_t), ("min_tokens", c.c_int32), ("ignore_eos", c.c_bool), ("text", c.c_bool),
                ("priority", c.c_int32), ("client_key", c.c_uint64), ("queue_timeout_ms", c.c_int64),
                ("received_ns", c.c_uint64), ("n_pin_tokens", c.c_int32), ("pin_ms", c.c_int64), ("wake", c.c_void_p),
                ("wake_ctx", c.c_void_p), ("prompt_only", c.c_bool), ("stop_bytes", c.POINTER(c.c_size_t)),
                ("text_starts", c.c_bool), ("shown_ids", c.POINTER(c.c_int32)), ("n_shown_ids", c.c_size_t),
                ("marks", c.POINTER(Mark)), ("n_marks", c.c_size_t)]


class Event(Sized):
    _c_name_ = "t9_event"
    _fields_ = [("struct_size", c.c_size_t), ("kind", c.c_int), ("n_prompt", c.c_int32), ("n_cached", c.c_int32),
                ("n_prefilled", c.c_int32), ("tokens", c.POINTER(c.c_int32)), ("n_tokens", c.c_int32),
                ("text", c.POINTER(c.c_char)), ("text_bytes", c.c_size_t), ("logprobs", c.POINTER(Logprob)),
                ("n_logprobs", c.c_int32), ("finish", c.c_int), ("stop_token", c.c_int32), ("error", Err),
                ("text_starts", c.POINTER(c.c_uint32)), ("stopped", c.c_bool), ("stop", c.c_int32)]


EVENT_NONE, EVENT_ADMITTED, EVENT_PROGRESS, EVENT_TOKENS, EVENT_DONE, EVENT_ERROR = range(6)

STRUCTS = (Err, ModelParams, TemplateInfo, ModelInfo, ChatParams, EngineParams, Stats, LogitBias, Logprob, Mark,
           RequestParams, Event)

_P, _I32, _SIZE, _S = c.c_void_p, c.c_int32, c.c_size_t, c.c_char_p
_ERR = c.POINTER(Err)
# name: (result, arguments)
_FUNCTIONS = {
    "t9_version": (_S, ()),
    "t9_build_id": (_S, ()),
    "t9_status_name": (_S, (c.c_int,)),
    "t9_finish_name": (_S, (c.c_int,)),
    "t9_log_set": (None, (c.c_int, LOG, _P)),
    "t9_text_free": (None, (c.POINTER(Text),)),
    "t9_ids_free": (None, (c.POINTER(Ids),)),
    "t9_model_params_init": (None, (c.POINTER(ModelParams), _SIZE)),
    "t9_model_load": (c.c_int, (c.POINTER(_P), c.POINTER(ModelParams), _ERR)),
    "t9_model_free": (None, (_P,)),
    "t9_model_info": (c.c_int, (_P, c.POINTER(ModelInfo))),
    "t9_model_n_keys": (_SIZE, (_P,)),
    "t9_model_key": (_S, (_P, _SIZE)),
    "t9_model_metadata": (c.c_int, (_P, _S, _SIZE, c.POINTER(Text), _ERR)),
    "t9_tokenize": (c.c_int, (_P, _S, _SIZE, c.c_uint32, c.POINTER(Ids), _ERR)),
    "t9_detokenize": (c.c_int, (_P, c.POINTER(_I32), _SIZE, c.c_uint32, c.POINTER(Text), _ERR)),
    "t9_chat_params_init": (None, (c.POINTER(ChatParams), _SIZE)),
    "t9_chat_render": (c.c_int, (_P, c.POINTER(ChatParams), c.POINTER(Text), _ERR)),
    "t9_chat_tokens": (c.c_int, (_P, c.POINTER(ChatParams), c.POINTER(Ids), _ERR)),
    "t9_chat_tokens_marked": (c.c_int, (_P, c.POINTER(ChatParams), c.POINTER(Ids), c.POINTER(Mark), c.POINTER(_SIZE),
                                        _ERR)),
    "t9_engine_params_init": (None, (c.POINTER(EngineParams), _SIZE)),
    "t9_engine_new": (c.c_int, (c.POINTER(_P), c.POINTER(EngineParams), _ERR)),
    "t9_engine_free": (None, (_P,)),
    "t9_engine_max_length": (_I32, (_P,)),
    "t9_engine_max_tokens": (_I32, (_P, _I32)),
    "t9_engine_stats": (c.c_int, (_P, c.POINTER(Stats))),
    "t9_request_params_init": (None, (c.POINTER(RequestParams), _SIZE)),
    "t9_engine_submit": (c.c_int, (_P, c.POINTER(RequestParams), c.POINTER(_P), _ERR)),
    "t9_request_next": (c.c_int, (_P, _I32, c.POINTER(Event))),
    "t9_request_logprobs": (c.POINTER(Logprob), (_P, c.c_bool)),
    "t9_request_cancel": (None, (_P,)),
    "t9_request_free": (None, (_P,)),
}


def _open():
    named = os.environ.get("TEMPO9_LIBRARY")
    if named:
        return c.CDLL(named)
    try:
        return c.CDLL(SONAME)
    except OSError:
        found = ctypes.util.find_library("tempo9")
        if not found:
            raise OSError("%s was not found: install tempo9 (and run ldconfig after `make install`), "
                          "or set TEMPO9_LIBRARY to the library's path" % SONAME) from None
        return c.CDLL(found)


lib = _open()
for _name, (_result, _arguments) in _FUNCTIONS.items():
    _function = getattr(lib, _name)
    _function.restype = _result
    _function.argtypes = _arguments
