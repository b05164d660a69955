"""Splits a small GGUF file (version 3, alignment 32) into parts, as the split files of hubs are. For tests."""

import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U16, I32 = 2, 5


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        v = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return v

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def skip_value(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            of, n = self.take("I"), self.take("Q")
            for _ in range(n if of in (8, 9) else 0):
                self.skip_value(of)
            self.at += n * SIZES.get(of, 0)
        else:
            self.at += SIZES[kind]


def padded(b):
    return b + b"\0" * (-len(b) % 32)


def split(data, n_parts):
    """The parts' bytes, in order."""
    r = Reader(data)
    if r.take("I") != 0x46554747 or r.take("I") != 3:
        raise ValueError("not GGUF version 3")
    n_tensors, n_kv = r.take("Q"), r.take("Q")
    begin = r.at
    for _ in range(n_kv):
        r.text()
        r.skip_value(r.take("I"))
    kvs = data[begin:r.at]
    tensors = []
    for _ in range(n_tensors):
        name = r.text()
        shape = [r.take("Q") for _ in range(r.take("I"))]
        tensors.append((name, shape, r.take("I"), r.take("Q")))
    base = r.at + -r.at % 32
    ends = sorted(t[3] for t in tensors) + [len(data) - base]
    parts = []
    for no in range(n_parts):
        own = tensors[no * n_tensors // n_parts:(no + 1) * n_tensors // n_parts]
        table, body = b"", b""
        for name, shape, kind, offset in own:
            table += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(shape))
            table += struct.pack("<%dQ" % len(shape), *shape) + struct.pack("<IQ", kind, len(body))
            end = ends[ends.index(offset) + 1]
            body = padded(body + data[base + offset:base + end])
        about = kvs if no == 0 else b""
        for key, kind, form, value in ((b"split.no", U16, "H", no), (b"split.count", U16, "H", n_parts),
                                       (b"split.tensors.count", I32, "i", n_tensors)):
            about += struct.pack("<Q", len(key)) + key + struct.pack("<I" + form, kind, value)
        head = struct.pack("<IIQQ", 0x46554747, 3, len(own), (n_kv if no == 0 else 0) + 3)
        parts.append(padded(head + about + table) + body)
    return parts
