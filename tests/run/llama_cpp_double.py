"""A stand-in for the package llama-cpp-python, as far as bench/compare/llama_cpp_package.py calls it:
no model, but every row must be the next one of its sequence, and each call is noted in the file that
LLAMA_CPP_DOUBLE names: rows, and how many of them want logits."""

import os
import time
import types

LLAMA_FLASH_ATTN_TYPE_AUTO, LLAMA_FLASH_ATTN_TYPE_DISABLED, LLAMA_FLASH_ATTN_TYPE_ENABLED = -1, 0, 1


def llama_backend_init():
    pass


def llama_log_callback(function):
    return function


def llama_log_set(callback, data):
    callback(0, b"quiet", data)


def llama_model_default_params():
    return types.SimpleNamespace()


def llama_model_load_from_file(path, params):
    return types.SimpleNamespace(path=path) if os.path.exists(path) else None


def llama_model_get_vocab(model):
    return model


def llama_vocab_n_tokens(vocab):
    return 300


def llama_context_default_params():
    return types.SimpleNamespace()


def llama_init_from_model(model, p):
    p.lengths = [0] * p.n_seq_max
    return p


def llama_batch_init(n, embd, n_seq_max):
    return types.SimpleNamespace(n_tokens=0, token=[0] * n, pos=[0] * n, n_seq_id=[0] * n,
                                 seq_id=[[0] for _ in range(n)], logits=[0] * n)


def llama_decode(ctx, b):
    time.sleep(0.001)
    rows = range(b.n_tokens)
    for i in rows:
        seq = b.seq_id[i][0]
        assert b.n_seq_id[i] == 1 and 0 <= b.token[i] < 300 and b.n_tokens <= ctx.n_batch
        assert b.pos[i] == ctx.lengths[seq] < ctx.n_ctx // ctx.n_seq_max
        ctx.lengths[seq] += 1
    with open(os.environ["LLAMA_CPP_DOUBLE"], "a", encoding="utf-8") as f:
        f.write("%d/%d " % (b.n_tokens, sum(bool(b.logits[i]) for i in rows)))
    return 0


def llama_synchronize(ctx):
    pass


def llama_get_memory(ctx):
    return ctx


def llama_memory_seq_rm(ctx, seq, begin, end):
    assert end == -1 and begin <= ctx.lengths[seq]
    ctx.lengths[seq] = begin
    return True


def llama_print_system_info():
    return b"none"
