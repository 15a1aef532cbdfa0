#!/usr/bin/env python3
"""Makes the Unicode tables of tfm.h, between the two lines that say so, and those of the converter.

    gen_unicode.py tfm.h tools/unicode_tables.h
    gen_unicode.py --gguf LLAMA_CPP/src tools/unicode_gguf.h    what llama.cpp makes of characters before WordPiece: asked from
                                                                its own unicode.cpp, which is compiled for it

General categories come from the reference itself (the `tokenizers` package: every code point is asked for its category
through the regular expression engine), so that expressions see the same characters. Canonical decompositions and
combining classes come from Python's unicodedata; the check against tokenizers' NFC reports differences, and marks that
its older tables do not know are left out here too (Unicode's stability policy freezes the others).
The converter's tables (lower case, compatibility decompositions, what BERT's normaliser drops, scripts, properties, case
folding) are asked from the reference in the same way; clusters come from the `regex` package.
Written with tokenizers 0.23.3 (Unicode 16.0 categories), Python 3.11 (Unicode 14.0) and regex 2026.11.19.
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


def category_columns(runs):
    """The first run of each plane of 2^16 code points, and the low byte, the high byte and the category of all runs, which
    are cut where a plane begins. Columns of bytes take less room than words, and compress to two thirds."""
    rows, planes = [], []
    for (c, k), (end, _) in zip(runs, runs[1:] + [(0x110000, 0)]):
        rows += [(c, k)] + [(plane << 16, k) for plane in range((c >> 16) + 1, (end + 0xFFFF) >> 16)]
    for i, (c, _) in enumerate(rows):
        if c & 0xFFFF == 0:
            planes.append(i)
    assert len(planes) == 17
    return planes + [len(rows)], [c & 255 for c, _ in rows] + [c >> 8 & 255 for c, _ in rows] + [k for _, k in rows]


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
    planes, runs = category_columns(category_runs(reference_categories()))
    steps = decompositions()
    pairs = sorted(c for c in steps if steps[c][1])
    singles = sorted(c for c in steps if not steps[c][1])
    combining = combining_runs()
    order = sorted((i for i, c in enumerate(pairs) if composes(c)), key=lambda i: steps[pairs[i]])
    nfc_size = 4 * len(combining) + 12 * len(pairs) + 8 * len(singles) + 2 * len(order)
    out = ["/* General categories by tokenizers %s, the rest by Unicode %s: %d bytes, %d of them for NFC. */" % (
        tokenizers.__version__, unicodedata.unidata_version, 2 * len(planes) + len(runs) + nfc_size, nfc_size)]
    out.append("/* Runs of one category: the first of each plane of 2^16 code points; then in columns the low and the high byte of where")
    out.append("   in its plane a run begins, and the category. */")
    out += c_array("uint16_t", "tfm__category_planes", planes)
    out += c_array("uint8_t", "tfm__categories", runs)
    out.append("#ifndef TFM_NO_NFC")
    out.append("/* Where a run of one combining class begins: code point << 8 | class. */")
    out += c_array("uint32_t", "tfm__combining", [c << 8 | k for c, k in combining])
    out.append("/* Canonical decompositions in columns. Into one: from, to; into two: from, first, second; then the places of those")
    out.append("   that compose again, ordered by (first, second). */")
    out += c_array("uint32_t", "tfm__singletons", singles + [steps[c][0] for c in singles])
    out += c_array("uint32_t", "tfm__pairs", pairs + [steps[c][0] for c in pairs] + [steps[c][1] for c in pairs])
    out += c_array("uint16_t", "tfm__composing", order)
    out.append("#endif")
    return out


# ---- tables of the converter -------------------------------------------------------------------------------------------

def apply_each(function):
    """code point -> what a function of texts makes of it, where that is something else."""
    out = {}
    for c in CODE_POINTS:
        to = function(chr(c))
        if to != chr(c):
            out[c] = to
    return out


def members(contains):
    """Code points by a function of a whole text that gives the characters of it that are in."""
    found = set()
    for i in range(0, len(CODE_POINTS), 4096):
        found.update(map(ord, contains("".join(map(chr, CODE_POINTS[i:i + 4096])))))
    return found


def matching(expression):
    split = pre_tokenizers.Split(Regex(expression), "removed", invert=True)
    return members(lambda text: "".join(piece for piece, _ in split.pre_tokenize_str(text)))


def kept_by(pre_tokenizer):
    return members(lambda text: "".join(piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)))


def set_runs(found):
    runs = []
    for c in sorted(found):
        if runs and (runs[-1][1] == c - 1 or (c == 0xE000 and runs[-1][1] == 0xD7FF)):
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return runs


DROP, ADD, SECOND, STRING, AROUND, GROUP = range(6)


def map_rows(table):
    """Rows of a map of [B10] and the strings they name, from {code point: text}."""
    rows, strings = [], bytearray()
    for c in sorted(table):
        to = table[c]
        row = [c, c, STRING, 0]
        if to == "":
            row = [c, c, DROP, 0]
        elif len(to) == 1:
            row = [c, c, ADD, (ord(to) - c) & 0xFFFFFFFF]
        if rows and row[2] in (DROP, ADD) and row[3] == rows[-1][3]:
            last = rows[-1]
            if last[2] == row[2] and last[1] == c - 1:
                last[1] = c
                continue
            if row[2] == ADD and last[1] == c - 2 and (last[2] == SECOND or last[0] == last[1]) and c - 1 not in table:
                last[1:3] = [c, SECOND]
                continue
        if row[2] == STRING:
            data = to.encode()
            at = strings.find(data)
            if at < 0:
                at = len(strings)
                strings += data
            row[2:] = [STRING | len(data) << 8, at]
        rows.append(row)
    return rows, bytes(strings)


def script_groups():
    """Rows of groups as UnicodeScripts sees them; group 0 (what joins whatever stands beside it) has no row."""
    split = pre_tokenizers.UnicodeScripts()

    def apart(a, b):
        return len(split.pre_tokenize_str(a + b)) == 2

    runs, examples, previous = [], [], None
    for c in CODE_POINTS:
        ch = chr(c)
        if not split.pre_tokenize_str(ch):
            continue
        group = previous if previous is not None and not apart(examples[previous], ch) else \
            next((i for i, other in enumerate(examples) if not apart(other, ch)), None)
        if group is None:
            group = len(examples)
            examples.append(ch)
        if runs and runs[-1][1] == c - 1 and runs[-1][3] == group + 1:
            runs[-1][1] = c
        else:
            runs.append([c, c, GROUP, group + 1])
        previous = group
    return runs


def cluster_groups():
    """Rows of groups for clusters. From the regex package; the check against the reference reports differences."""
    import regex
    names = ["CR", "LF", "Control", "Extend", "ZWJ", "RI", "Prepend", "SpacingMark", "L", "V", "T", "LV", "LVT"]
    group = {}
    text = "".join(map(chr, CODE_POINTS))
    for index, name in enumerate(names):
        for m in regex.finditer(r"\p{GCB=%s}+" % name, text):
            group.update((ord(ch), index + 1) for ch in m.group())
    for m in regex.finditer(r"\p{Extended_Pictographic}+", text):
        group.update((ord(ch), 14) for ch in m.group())
    for m in regex.finditer(r"\p{InCB=Consonant}+", text):
        group.update((ord(ch), 15) for ch in m.group())
    for m in regex.finditer(r"\p{InCB=Linker}+", text):
        group.update((ord(ch), 16) for ch in m.group())
    rows = []
    for c in sorted(group):
        if rows and rows[-1][1] == c - 1 and rows[-1][3] == group[c]:
            rows[-1][1] = c
        else:
            rows.append([c, c, GROUP, group[c]])
    return rows


SCRIPTS = """Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo Brahmi
Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot
Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay Georgian
Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana
Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar
Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao
Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki
Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya
Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian
Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham
Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai Vithkuqi
Wancho Warang_Citi Yezidi Yi Zanabazar_Square""".split()
PROPERTIES = ["Alphabetic", "Uppercase", "Lowercase", "White_Space", "Alnum", "Alpha", "Blank", "Cntrl", "Digit", "Graph", "Lower",
              "Print", "Punct", "Space", "Upper", "XDigit", "Word", "ASCII", "Any", "Ideographic", "Emoji", "Hex_Digit", "Emoji_Presentation",
              "Emoji_Modifier", "Extended_Pictographic"]


def known(names, pattern):
    """name -> runs, for the names the reference's engine has."""
    out = {}
    for name in names:
        try:
            out[name] = set_runs(matching(pattern % name))
        except Exception:
            print("the reference has no %s" % name, file=sys.stderr)
    return out


def folding():
    """Pairs of characters that match each other without regard to case."""
    cased = [c for c in CODE_POINTS if chr(c).lower() != chr(c) or chr(c).upper() != chr(c) or chr(c).casefold() != chr(c)]
    text, pairs = "".join(map(chr, cased)), []
    for c in cased:
        split = pre_tokenizers.Split(Regex("(?i:%s)" % chr(c)), "removed", invert=True)
        for piece, _ in split.pre_tokenize_str(text):
            pairs += [(c, ord(ch)) for ch in piece if ord(ch) != c]
    return sorted(set(pairs))


def c_rows(name, rows):
    return c_array("uint32_t", name, [x for row in rows for x in row])


def c_string(name, data):
    lines, line = ["static const unsigned char %s[%d] = {" % (name, max(len(data), 1))], "   "
    for b in data or b"\0":
        text = "%d," % b
        if len(line) + 1 + len(text) > 120:
            lines.append(line)
            line = "   "
        line += (" " if line == "   " else "") + text
    return lines + [line, "};"]


def converter_tables():
    nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    marks = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    maps = {
        "lower": apply_each(normalizers.Lowercase().normalize_str),
        "strip_accents": apply_each(normalizers.StripAccents().normalize_str),
        "bert_clean": apply_each(clean.normalize_str),
        "bert_marks": {c: "" for c in CODE_POINTS if marks.normalize_str(chr(c)) == "" and nfd(chr(c)) == chr(c)},
        "compatibility": {c: nfkd(chr(c)) for c in CODE_POINTS if nfkd(chr(c)) != nfd(chr(c))},
    }
    out = ["/* unicode_tables.h - made by tools/gen_unicode.py: what `tokenizers` %s makes of each code point. */" % tokenizers.__version__]
    for name, table in maps.items():
        rows, strings = map_rows(table)
        out += c_rows(name + "_rows", rows) + c_string(name + "_strings", strings)
    for name, rows in (("scripts", script_groups()), ("clusters", cluster_groups())):
        out += c_rows(name + "_rows", rows)
    category = reference_categories()
    out += c_array("uint32_t", "category_runs", [c << 5 | category[c] for c in range(0x110000) if not c or category[c] != category[c - 1]])
    sets = dict(known(SCRIPTS, r"\p{%s}"), **known(PROPERTIES, r"\p{%s}"))
    sets["punctuation of words"] = set_runs(matching_punctuation())
    sets["numbers of Digits"] = set_runs(set(CODE_POINTS) - kept_by(removing_digits()))
    sets["words of Whitespace"] = set_runs(whitespace_words())
    flat, index, places = [], [], {}
    for name in sorted(sets, key=lambda n: n.lower()):
        at = places.setdefault(str(sets[name]), len(flat))
        if at == len(flat):
            flat += sets[name]
        index.append((name, at, len(sets[name])))
    out += c_rows("set_ranges", flat)
    out.append("static const struct { const char *name; unsigned short first, n; } sets[%d] = {" % len(index))
    out += ["    {\"%s\", %d, %d}," % row for row in index] + ["};"]
    out += c_rows("fold_pairs", folding())
    return out


def matching_punctuation():
    removed = kept_by(pre_tokenizers.Punctuation("removed"))
    return set(CODE_POINTS) - removed


def removing_digits():
    """Keeps what Digits does not isolate."""
    class Keep:
        inner = pre_tokenizers.Digits(individual_digits=True)

        def pre_tokenize_str(self, text):
            out = []
            for ch in text:
                pieces = self.inner.pre_tokenize_str("a" + ch)
                if len(pieces) == 1:
                    out.append((ch, None))
            return out
    return Keep()


def whitespace_words():
    inner, found = pre_tokenizers.Whitespace(), set()
    for c in CODE_POINTS:
        if len(inner.pre_tokenize_str("a" + chr(c))) == 1 and inner.pre_tokenize_str("a" + chr(c))[0][0] != "a":
            found.add(c)
    return found


LLAMA_CPP = r"""
#include "unicode.h"
#include <cstdio>
int main() {
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        const auto f = unicode_cpt_flags_from_cpt(c);
        printf("%u %u %u %d %d %d %d\n", c, unicode_cpts_normalize_nfd({c})[0], unicode_tolower(c), (int)f.is_whitespace,
               (int)(!c || c == 0xFFFD || f.is_control), (int)f.is_accent_mark, (int)(f.is_punctuation || (c < 0x7F && f.is_symbol)));
    }
}
"""
IDEOGRAPHS = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
              (0x2B920, 0x2CEAF), (0x2F800, 0x2FA1F)]


def merged(rows):
    """Neighbours that become the same text are one row."""
    out = []
    for row in rows:
        if out and row[2:] == out[-1][2:] and row[0] == out[-1][1] + 1 and row[2] != ADD:
            out[-1][1] = row[1]
        else:
            out.append(row)
    return out


def gguf_tables(source):
    import subprocess
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/ask.cpp", "w") as f:
            f.write(LLAMA_CPP)
        subprocess.run(["g++", "-std=c++17", "-I" + source, "-o", folder + "/ask", folder + "/ask.cpp", source + "/unicode.cpp",
                        source + "/unicode-data.cpp"], check=True)
        lines = subprocess.run([folder + "/ask"], stdout=subprocess.PIPE, check=True).stdout.decode().split("\n")
    base, lower, clean, accents, alone = {}, {}, {}, {}, set()
    for c, b, low, space, control, accent, punctuation in (map(int, line.split()) for line in lines if line):
        if b != c:
            base[c] = chr(b)
        if low != c:
            lower[c] = chr(low)
        if space or control:
            clean[c] = " " if space else ""
        elif accent:
            accents[c] = ""
        if not space and not control and (punctuation or any(a <= c <= z for a, z in IDEOGRAPHS)):
            alone.add(c)
    out = ["/* unicode_gguf.h - made by tools/gen_unicode.py: what llama.cpp makes of each code point before WordPiece. */"]
    for name, table in (("base", base), ("clean", clean), ("accents", accents), ("lower", lower)):
        strings = {c: to for c, to in table.items()}
        if name == "base":  # the syllables of one leading consonant all become it
            rows, pool = map_rows({c: to for c, to in strings.items() if not 0xAC00 <= c < 0xAC00 + 11172})
            for lead in range(19):
                data = chr(0x1100 + lead).encode()
                rows.append([0xAC00 + 588 * lead, 0xAC00 + 588 * lead + 587, STRING | 3 << 8, len(pool)])
                pool += data
            rows = merged(sorted(rows))
        else:
            rows, pool = map_rows(strings)
        out += c_rows("gguf_%s_rows" % name, rows) + c_string("gguf_%s_strings" % name, pool)
    out += c_rows("gguf_alone_rows", [[a, z, AROUND | 1 << 8, 0] for a, z in set_runs(alone)]) + c_string("gguf_alone_strings", b" ")
    return out


def main():
    if sys.argv[1] == "--gguf":
        open(sys.argv[3], "w", encoding="utf-8", newline="").write("\n".join(gguf_tables(sys.argv[2])) + "\n")
        return
    check_nfc()
    text = open(sys.argv[1], encoding="utf-8", newline="").read()
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    open(sys.argv[1], "w", encoding="utf-8", newline="").write(head + BEGIN + "\n" + "\n".join(tables()) + "\n" + END + tail)
    open(sys.argv[2], "w", encoding="utf-8", newline="").write("\n".join(converter_tables()) + "\n")


if __name__ == "__main__":
    main()
