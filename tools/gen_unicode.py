#!/usr/bin/env python3
"""Makes the Unicode tables of tfm.h, between the two lines that say so.   usage: gen_unicode.py tfm.h

General categories come from the reference itself (the `tokenizers` package: every code point is asked for its category
through the regular expression engine), so that expressions see the same characters. Canonical decompositions and
combining classes come from Python's unicodedata; the check against tokenizers' NFC reports differences, and marks that
its older tables do not know are left out here too (Unicode's stability policy freezes the others).
Written with tokenizers 0.23.3 (Unicode 16.0 categories) and Python 3.11 (Unicode 14.0).
"""
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn Cs").split()
EVEN_UPPER, ODD_UPPER = 30, 31  # runs of pairs: upper case on even (odd) code points, lower case on the others
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BEGIN, END = "/* Unicode tables: made by tools/gen_unicode.py, begin */", "/* Unicode tables: end */"


def reference_categories():
    category = [CATEGORIES.index("Cn")] * 0x110000
    for c in range(0xD800, 0xE000):
        category[c] = CATEGORIES.index("Cs")
    for index, name in enumerate(CATEGORIES[:28]):
        split = pre_tokenizers.Split(Regex(r"\p{%s}" % name), "removed", invert=True)
        for i in range(0, len(CODE_POINTS), 4096):
            for piece, _ in split.pre_tokenize_str("".join(map(chr, CODE_POINTS[i:i + 4096]))):
                for ch in piece:
                    category[ord(ch)] = index
    return category


def category_runs(category):
    """(start, code); a run of alternating Lu and Ll is one entry."""
    lu, ll = 0, 1
    runs, c = [], 0
    while c < 0x110000:
        end = c
        first = category[c]
        if first in (lu, ll):
            while end < 0x110000 and category[end] == (first if (end - c) % 2 == 0 else lu + ll - first):
                end += 1
        if end - c >= 4:
            upper_even = (first == lu) == (c % 2 == 0)
            runs.append((c, EVEN_UPPER if upper_even else ODD_UPPER))
        else:
            end = c
            while end < 0x110000 and category[end] == first and not (end > c and alternates(category, end)):
                end += 1
            runs.append((c, first))
        c = end
    return runs


def alternates(category, c):
    return all(category[c + i:c + i + 1] == [category[c] if i % 2 == 0 else 1 - category[c]] for i in range(4)) \
        if category[c] in (0, 1) else False


def decompositions():
    """cp -> (a, b) or (a, 0): one step of canonical decomposition, Hangul left out."""
    table = {}
    for c in CODE_POINTS:
        d = unicodedata.decomposition(chr(c))
        if d and not d.startswith("<"):
            parts = [int(x, 16) for x in d.split()]
            table[c] = (parts[0], parts[1] if len(parts) == 2 else 0)
    return table


def composes(c):
    return len(unicodedata.normalize("NFC", chr(c))) == 1 and unicodedata.normalize("NFC", chr(c)) == chr(c)


def reference_orders(c, k):
    """Whether the reference moves the mark c, of class k, in front of or behind one of another class."""
    nfc = normalizers.NFC()
    if k == 1:
        return nfc.normalize_str("q\u0323" + chr(c)) == "q" + chr(c) + "\u0323"
    return nfc.normalize_str("q" + chr(c) + "\u0334") == nfc.normalize_str("q\u0334" + chr(c))


def combining_runs():
    runs, previous, unknown = [], 0, 0
    for c in CODE_POINTS:
        k = unicodedata.combining(chr(c))
        if k and not reference_orders(c, k):
            k, unknown = 0, unknown + 1
        if k != previous:
            runs.append((c, k))
            previous = k
    print("%d marks are too new for the reference's NFC and keep their place" % unknown, file=sys.stderr)
    return runs


def check_nfc():
    nfc = normalizers.NFC()
    wrong = [c for c in CODE_POINTS if nfc.normalize_str(chr(c)) != unicodedata.normalize("NFC", chr(c))]
    for c in wrong:
        print("NFC differs from the reference at U+%04X" % c, file=sys.stderr)


def c_array(ctype, name, values):
    """Numbers in whichever of hexadecimal and decimal is shorter, in lines of at most 120 columns."""
    lines, line = ["static const %s %s[%d] = {" % (ctype, name, len(values))], "   "
    for v in values:
        text = min("%d," % v, "0x%X," % v, key=len)
        if len(line) + 1 + len(text) > 120:
            lines.append(line)
            line = "   "
        line += (" " if line == "   " else "") + text
    return lines + [line, "};"]


def tables():
    runs = category_runs(reference_categories())
    steps = decompositions()
    pairs = sorted(c for c in steps if steps[c][1])
    singles = sorted(c for c in steps if not steps[c][1])
    combining = combining_runs()
    order = sorted((i for i, c in enumerate(pairs) if composes(c)), key=lambda i: steps[pairs[i]])
    size = 4 * len(runs) + 4 * len(combining) + 12 * len(pairs) + 8 * len(singles) + 2 * len(order)
    out = ["/* General categories by tokenizers %s, the rest by Unicode %s: %d bytes, %d of them for NFC. */" % (
        tokenizers.__version__, unicodedata.unidata_version, size, size - 4 * len(runs))]
    out.append("/* Where a run of one category begins: code point << 5 | category. */")
    out += c_array("uint32_t", "tfm__categories", [c << 5 | k for c, k in runs])
    out.append("#ifndef TFM_NO_NFC")
    out.append("/* Where a run of one combining class begins: code point << 8 | class. */")
    out += c_array("uint32_t", "tfm__combining", [c << 8 | k for c, k in combining])
    out.append("/* Canonical decompositions into one: from, to; into two: from, first, second; then the places of those that")
    out.append("   compose again, ordered by (first, second). */")
    out += c_array("uint32_t", "tfm__singletons", [x for c in singles for x in (c, steps[c][0])])
    out += c_array("uint32_t", "tfm__pairs", [x for c in pairs for x in (c,) + steps[c]])
    out += c_array("uint16_t", "tfm__composing", order)
    out.append("#endif")
    return out


def main():
    check_nfc()
    text = open(sys.argv[1], encoding="utf-8", newline="").read()
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    open(sys.argv[1], "w", encoding="utf-8", newline="").write(head + BEGIN + "\n" + "\n".join(tables()) + "\n" + END + tail)


if __name__ == "__main__":
    main()
