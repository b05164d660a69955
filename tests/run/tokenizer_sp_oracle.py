#!/usr/bin/env python3
"""Compares the `llama` kind of tokenizer with the SentencePiece library itself, id by id.

    tokenizer_sp_oracle.py --dump build/…/tokenizer_dump [--spm FILE.model]… [--bytes N]

Small vocabularies are trained from this repository's own documents: one like Llama's (byte fallback, a space before the
text), one like Gemma's (runs of white space and HTML tags as user-defined pieces, no such space), one without byte
fallback that counts runs of spaces as one, and one trained with few characters. `--spm` compares a published model file
as well. The texts are those of tokenizer_oracle.py; what looks like a control token stays text. Decoding is compared
too, and the ids at both ends.

Exit status: 0 equal, 1 different, 77 the `sentencepiece` package is missing.
"""
import argparse
import glob
import os
import struct
import sys
import tempfile

import tokenizer_oracle as oracle

ADD_BOS = 4
SPACE = "\u2581"
HTML = ["<table>", "</table>", "<h1>", "</h1>", "<b>", "</b>", "<s>", "</s>", "<blockquote>", "</blockquote>"]


# ---- model files, as little of their format as needed --------------------------------------------------------------

def fields(data):
    """(number, value) of each field of a protocol buffer message; values are int, bytes or float."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            n = varint()
            at += n
            yield key >> 3, data[at - n:at]
        else:
            n = 4 if key & 7 == 5 else 8
            at += n
            yield key >> 3, struct.unpack("<f" if n == 4 else "<d", data[at - n:at])[0]


def gguf_of_model(model, path):
    """Writes what converters write for a model file."""
    tokens, scores, types, norm = [], [], [], {3: 1, 4: 1}
    for number, value in fields(model):
        if number == 1:
            piece = dict(fields(value))
            text, kind = piece[1].decode("utf-8"), piece.get(3, oracle.NORMAL)
            tokens.append(text.replace(SPACE, " ") if kind == oracle.USER_DEFINED else text)
            scores.append(float(piece.get(2, 0.0)))
            types.append(kind)
        elif number == 3:
            norm.update(dict(fields(value)))
    if norm.get(2):
        return False  # it replaces characters by a table, which files of this kind do not carry
    ids = {text: i for i, text in enumerate(tokens) if types[i] != oracle.USER_DEFINED}
    oracle.write_metadata(path, {
        "general.architecture": "llama", "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.unknown_token_id": types.index(oracle.UNKNOWN),
        "tokenizer.ggml.bos_token_id": ids.get("<s>", ids.get("<bos>")),
        "tokenizer.ggml.eos_token_id": ids.get("</s>", ids.get("<eos>")),
        "tokenizer.ggml.add_space_prefix": bool(norm[3]), "tokenizer.ggml.remove_extra_whitespaces": bool(norm[4])})
    return True


# ---- vocabularies --------------------------------------------------------------------------------------------------

def corpus(root):
    lines = []
    for name in sorted(glob.glob(os.path.join(root, "docs", "**", "*.md"), recursive=True) +
                       glob.glob(os.path.join(root, "src", "base", "*.c"))):
        with open(name, encoding="utf-8") as stream:
            lines += stream.read().split("\n")
    # Words in scripts that the documents do not have.
    lines += ["".join(chr(low + (i * 7 + k * 3) % 40) for k in range(i % 9 + 1)) for low in (0x3B1, 0x430, 0x4E00, 0xAC00)
              for i in range(400)]
    return lines


def train(sentencepiece, root, folder, name, **options):
    given = dict(model_type="bpe", vocab_size=2400, normalization_rule_name="identity", remove_extra_whitespaces=False,
                 byte_fallback=True, split_digits=True, character_coverage=0.9998, num_threads=2, minloglevel=2,
                 max_sentence_length=1 << 16)
    given.update(options)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus(root)),
                                             model_prefix=os.path.join(folder, name), **given)
    return os.path.join(folder, name + ".model")


def trained(sentencepiece, root, folder):
    runs = ["\n" * n for n in range(1, 9)] + [SPACE * n for n in range(2, 17)] + ["\t" * n for n in range(1, 5)]
    yield train(sentencepiece, root, folder, "llama")
    yield train(sentencepiece, root, folder, "gemma", add_dummy_prefix=False, user_defined_symbols=runs + HTML,
                bos_piece="<bos>", eos_piece="<eos>", allow_whitespace_only_pieces=True)
    yield train(sentencepiece, root, folder, "unknown", byte_fallback=False, remove_extra_whitespaces=True,
                character_coverage=0.98, vocab_size=1200)
    yield train(sentencepiece, root, folder, "joined", split_by_whitespace=False, split_by_unicode_script=False,
                character_coverage=0.98)


# ---- comparison ----------------------------------------------------------------------------------------------------

def compare(sentencepiece, model, dump, folder, args):
    name = os.path.basename(model)
    with open(model, "rb") as stream:
        data = stream.read()
    path = os.path.join(folder, name + ".gguf")
    if not gguf_of_model(data, path):
        print("%s: skipped: it normalises by a table" % name)
        return 0
    sp = sentencepiece.SentencePieceProcessor(model_proto=data)
    texts, total = oracle.make_texts(args.seed, args.bytes, ["<s>", "</s>", "<unk>", "<eos>", "<table>", "<0x0A>"])
    n_bad = n_ids = 0
    results = oracle.ours(dump, path, [(ADD_BOS, text.encode("utf-8")) for text in texts])
    for text, (ids, decoded) in zip(texts, results):
        want = sp.encode(text, add_bos=True)
        n_ids += len(want)
        if ids != want:
            at = next((i for i in range(min(len(ids), len(want))) if ids[i] != want[i]), min(len(ids), len(want)))
            print("%s: ids differ at %d of %d / %d\n   after %r\n   ours  %r\n   want  %r" %
                  (name, at, len(ids), len(want), sp.decode(want[max(0, at - 6):at]),
                   [sp.id_to_piece(i) for i in ids[at:at + 8]], [sp.id_to_piece(i) for i in want[at:at + 8]]))
            n_bad += 1
        elif sp.unk_id() not in ids and decoded != sp.id_to_piece(sp.bos_id()) + sp.decode(want):
            print("%s: the ids are equal, the decoded text is not: %r" % (name, text[:60]))
            n_bad += 1
        if n_bad > 5:
            break
    print("%s: %d tokens, %d texts, %d bytes, %d ids: %s" % (name, sp.vocab_size(), len(texts), total, n_ids,
                                                             "DIFFERENT" if n_bad else "all equal"))
    return n_bad


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    oracle.add_arguments(parser)
    parser.add_argument("--spm", action="append", default=[], help="a published model file")
    args = parser.parse_args()
    try:
        import sentencepiece
    except ImportError:
        print("skipped: this Python has no `sentencepiece` package (tools/get-deps test makes one that has)")
        return oracle.SKIP
    print("reference: sentencepiece %s" % sentencepiece.__version__)
    n_bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for model in args.spm:
            n_bad += compare(sentencepiece, model, args.dump, folder, args)
        for model in trained(sentencepiece, root, folder):
            n_bad += compare(sentencepiece, model, args.dump, folder, args)
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
