#!/usr/bin/env python3
"""A Markdown table of raw results of bench.py: a row for each file, a column for each cell.

  table.py RESULT.json... [--cells p512,n128]

An entry is how many times faster ours is and, in brackets, the two medians in tokens per second. An
entry with "~" is no claim: too few pairs were valid. Results of one file that were measured in
several runs come together; a cell that was measured twice is taken from the later file. Standard
library only.
"""

import argparse
import json
import sys


def entry(cell):
    s = cell["summaries"][0]
    if s["ratio"] is None:
        return "no valid pair"
    return "%s%.2f (%.1f / %.1f)" % ("" if s["claim"] else "~", s["ratio"], s["ours_median"],
                                     s["peer_median"])


def rows_of(results):
    """{model file: {cell name: entry}}, in the order in which they come"""
    rows = {}
    for r in results:
        row = rows.setdefault(r["model"]["file"], {})
        row.update((c["name"], entry(c)) for c in r["cells"])
    return rows


def markdown(rows, cells):
    lines = [["model", *cells], ["---"] * (len(cells) + 1)]
    lines += [["`%s`" % name, *(row.get(c, "") for c in cells)] for name, row in rows.items()]
    return "".join("| %s |\n" % " | ".join(line) for line in lines)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    p.add_argument("results", nargs="+", metavar="RESULT.json")
    p.add_argument("--cells", help="which, in this order; all otherwise")
    a = p.parse_args()
    results = []
    for path in a.results:
        with open(path, encoding="utf-8") as f:
            results.append(json.load(f))
    rows = rows_of(results)
    cells = a.cells.split(",") if a.cells else list(dict.fromkeys(c for r in rows.values() for c in r))
    sys.stdout.write(markdown(rows, cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
