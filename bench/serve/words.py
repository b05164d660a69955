"""Deterministic text: the same words for the same label on every machine and Python.

Lengths are asked for in tokens. How many tokens a word has is the server's affair, so a server is
asked once with two short texts and the ratio is used from then on; what a request really had is in
its usage.
"""

import hashlib

import client

WORDS = """
the a of to and in is it for on with as that this from by at or an be are was were not but can
will has have had its into than then when where which while after before between through under
over about each every some more most other such only also very just still again already often
system report table record entry value field index level state order group model agent worker
queue server client stream buffer token page cache memory thread process signal timer clock
library module function argument result error warning message request answer prompt reply user
file folder path name size count limit range offset length number string byte block line column
read write open close start stop wait run check test build find list move copy make keep change
call send take give show set get add remove update return follow begin end hold need use want
river stone forest winter summer garden window kitchen market harbour bridge mountain valley
paper letter story picture music colour green white black small large long short early late new
first second third last next same different possible important useful simple careful exact quick
water light wind north south east west morning evening night day week month year hour minute
""".split()


def fingerprint(what):
    """Of anything whose repr says all of it."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


class Stream:
    """Numbers from a label by SHA-256 in counter mode: no generator of the language is trusted."""

    def __init__(self, label):
        self.key = label.encode()
        self.n = 0
        self.pool = b""

    def below(self, limit):
        if len(self.pool) < 4:
            self.pool += hashlib.sha256(self.key + b"/%d" % self.n).digest()
            self.n += 1
        value, self.pool = int.from_bytes(self.pool[:4], "little"), self.pool[4:]
        return value % limit


def text(label, n_words):
    """`n_words` words in sentences and paragraphs. The label's hash leads, so that texts of two
    labels differ from their first words on."""
    if n_words <= 0:
        return ""
    s = Stream(label)
    out = [WORDS[s.below(len(WORDS))].capitalize()]
    until_stop = 5 + s.below(9)
    until_break = 4
    for _ in range(n_words - 1):
        word = WORDS[s.below(len(WORDS))]
        if until_stop == 0:
            until_break -= 1
            out.append("." + ("\n\n" if until_break == 0 else " ") + word.capitalize())
            until_break = until_break or 4
            until_stop = 5 + s.below(9)
        else:
            out.append(" " + word)
            until_stop -= 1
    return "".join(out) + "."


def tools_text(label, n_words):
    """Descriptions of tools, as agents put them into their system prompt."""
    s = Stream(label + "/names")
    parts = []
    left = n_words
    while left > 0:
        n = min(left, 24 + s.below(24))
        name = "%s_%s" % (WORDS[s.below(len(WORDS))], WORDS[s.below(len(WORDS))])
        parts.append('{"name": "%s", "description": "%s", "parameters": {"%s": "string"}}' % (
            name, text("%s/%d" % (label, len(parts)), n).replace("\n\n", " "),
            WORDS[s.below(len(WORDS))]))
        left -= n + 8
    return "\n".join(parts)


async def count(endpoint, messages, **more):
    """Prompt tokens of a chat, by the server's usage."""
    answer = await client.chat(endpoint, dict(
        {"messages": messages, "max_tokens": 1, "temperature": 0}, **more))
    return answer.prompt_tokens()


class Ruler:
    """Words for a number of tokens, measured on one server: for prose and for tools_text."""

    def __init__(self, per_word, per_tools_word):
        self.per_word = per_word
        self.per_tools_word = per_tools_word

    def text(self, label, n_tokens):
        return text(label, max(1, round(n_tokens / self.per_word)))

    def tools_text(self, label, n_tokens):
        return tools_text(label, max(1, round(n_tokens / self.per_tools_word)))


async def measure(endpoint, **more):
    short, long = 40, 240
    per_word = []
    for make in (text, tools_text):
        n = [await count(endpoint, [{"role": "user", "content": make("ruler/%d" % k, k)}], **more)
             for k in (short, long)]
        per_word.append(max(0.1, (n[1] - n[0]) / (long - short)))
    return Ruler(*per_word)
