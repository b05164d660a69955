#!/usr/bin/env python3
"""The Python package llama-cpp-python as a llama-bench-like program; bench.py --peer-python runs it.

  PYTHON llama_cpp_package.py -m M.gguf -t N -p P -n N -d D [-x B] -r R [-fa on|off|auto] [-ub N]

Runs in the interpreter that has the package, which it neither fetches nor builds. One cell, either
a prompt of P tokens or N decoded tokens, the latter after D tokens, in B sequences at once; one run
is not counted, R are. Prints a list of one object with the rates (samples_ts, tokens of all
sequences a second). Calls the package's low-level functions: nothing is sampled, the tokens are
made up, and the time is that of llama_decode until its results are there. Logits are asked for
where a server needs them: of a prompt's last token, and of every decoded one.
"""

import argparse
import importlib.metadata
import json
import sys
import time

try:
    import llama_cpp as lc
except ImportError as e:
    raise SystemExit("%s has no package llama-cpp-python: %s" % (sys.executable, e))

PACKAGE = "llama-cpp-python"
FLASH = {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"}


class Peer:
    """The model and a context with room for the cell. Ends with the process."""

    def __init__(self, a):
        self.n_seqs, self.n_batch = a.sequences, max(a.batch_size, a.sequences)
        lc.llama_backend_init()
        self.model = lc.llama_model_load_from_file(a.model.encode(),
                                                   lc.llama_model_default_params())
        if not self.model:
            raise SystemExit("the peer did not load %s" % a.model)
        self.n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.model))
        p = lc.llama_context_default_params()
        p.n_ctx = self.n_seqs * -(-(a.prompt + a.decode + a.depth) // 256) * 256
        p.n_batch, p.n_ubatch = self.n_batch, min(a.ubatch_size, self.n_batch)
        p.n_seq_max = self.n_seqs
        p.n_threads = p.n_threads_batch = a.threads
        p.flash_attn_type = getattr(lc, "LLAMA_FLASH_ATTN_TYPE_" + FLASH[a.flash])
        p.no_perf = True
        self.ctx = lc.llama_init_from_model(self.model, p)
        if not self.ctx:
            raise SystemExit("the peer made no context of %d tokens" % p.n_ctx)
        self.batch = lc.llama_batch_init(self.n_batch, 0, 1)

    def decode(self, rows):
        """One call for (sequence, position, whether logits are wanted) each."""
        b = self.batch
        for i, (seq, pos, wants_logits) in enumerate(rows):
            b.token[i] = (1 + seq * 7919 + pos * 104729) % self.n_vocab
            b.pos[i], b.n_seq_id[i], b.logits[i] = pos, 1, wants_logits
            b.seq_id[i][0] = seq
        b.n_tokens = len(rows)
        rc = lc.llama_decode(self.ctx, b)
        if rc != 0:
            raise SystemExit("the peer's llama_decode gave %d at token %d" % (rc, rows[-1][1]))
        lc.llama_synchronize(self.ctx)

    def read(self, seq, n):
        """A prompt."""
        for begin in range(0, n, self.n_batch):
            end = min(n, begin + self.n_batch)
            self.decode([(seq, i, i == n - 1) for i in range(begin, end)])

    def forget(self, depth):
        memory = lc.llama_get_memory(self.ctx)
        for seq in range(self.n_seqs):
            if not lc.llama_memory_seq_rm(memory, seq, depth, -1):
                raise SystemExit("the peer can't go back to token %d of a sequence" % depth)


def run(peer, a):
    """Tokens a second of one run, which begins and ends with `depth` tokens in each sequence."""
    begin = time.perf_counter()
    if a.prompt:
        peer.read(0, a.prompt)
    for i in range(a.decode):
        peer.decode([(seq, a.depth + i, True) for seq in range(peer.n_seqs)])
    spent_s = time.perf_counter() - begin
    peer.forget(a.depth)
    return (a.prompt + a.decode * peer.n_seqs) / spent_s


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0], allow_abbrev=False)
    version = importlib.metadata.version(PACKAGE)
    p.add_argument("--version", action="version", version="%s version %s" % (PACKAGE, version))
    p.add_argument("-m", dest="model", required=True)
    p.add_argument("-t", dest="threads", type=int, required=True)
    p.add_argument("-p", dest="prompt", type=int, default=0)
    p.add_argument("-n", dest="decode", type=int, default=0)
    p.add_argument("-d", dest="depth", type=int, default=0)
    p.add_argument("-x", dest="sequences", type=int, default=1)
    p.add_argument("-r", dest="repeat", type=int, default=5)
    p.add_argument("-o", dest="output", choices=["json"], default="json")
    p.add_argument("-b", dest="batch_size", type=int, default=2048)
    p.add_argument("-ub", dest="ubatch_size", type=int, default=512)
    p.add_argument("-fa", dest="flash", choices=FLASH, default="auto")
    a = p.parse_args()
    if (a.prompt > 0) == (a.decode > 0) or (a.prompt and (a.depth or a.sequences != 1)):
        p.error("either -p, or -n with -d and -x as needed")
    if min(a.threads, a.sequences, a.repeat, a.batch_size, a.ubatch_size) < 1 or a.depth < 0:
        p.error("-t, -x, -r, -b and -ub are at least 1, -d is at least 0")
    # The package's own log would stand in the way of a message.
    quiet = lc.llama_log_callback(lambda level, text, data: None)
    lc.llama_log_set(quiet, None)
    peer = Peer(a)
    for seq in range(peer.n_seqs):
        peer.read(seq, a.depth)
    rates = [run(peer, a) for _ in range(a.repeat + 1)][1:]
    print(json.dumps([{"n_prompt": a.prompt, "n_gen": a.decode, "n_depth": a.depth,
                       "n_sequences": a.sequences, "samples_ts": rates, "n_threads": a.threads,
                       "flash_attn": a.flash, "n_batch": peer.n_batch, "n_ubatch": a.ubatch_size,
                       "build_commit": "%s %s" % (PACKAGE, version),
                       "system_info": lc.llama_print_system_info().decode()}]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
