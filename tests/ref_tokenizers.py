#!/usr/bin/env python3
"""References for the tokenizers.

    ref_tokenizers.py make                  writes tests/ref/tokenizers/: tiny vocabularies trained here on generated text,
                                            and what the reference makes of about 100 tricky strings with each
    ref_tokenizers.py diff BUILD N FILE...  N random texts through BUILD/tfm-tokenize and the reference; FILE is a
                                            tokenizer.json, a SentencePiece .model or a .gguf

Written with tokenizers 0.23.3, sentencepiece 0.2.3, gguf 0.19.0 (only for diff), Python 3.11. For GGUF vocabularies the
reference is the `tokenizers` object that follows llama.cpp's rules (no normaliser; user-defined tokens matched as they
are; bytes that the vocabulary lacks dropped after merging).
"""
import io
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ref", "tokenizers")
MARK = "\u2581"
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"\p{N}| ?", r"\p{N}{1,3}| ?", 1)
GPT2_GGUF = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"

TRICKY = [
    "", " ", "  ", "\n", "a", " a", "a ", "  a", "a  ", "the", " the", "hello the world", "Hello, world!", "it's", "IT'S",
    "it\u2019s", "I'll we've you're he'd I'm don't", "I'LL WE'VE", "'\u017f 's 'S", "'", "''s", "12345", " 123 45", "3.14159",
    "1st 2nd", "\u0663\u0664\u0665", "\u2167\u00bd\u00b2\u2460", "x\u00b2", "\u00e9", "e\u0301", "\u00e9e\u0301", "A\u030a",
    "\u212b", "q\u0323\u0307 q\u0307\u0323", "\ufb01n", "\u1e9b\u0323", "\uac00", "\u1100\u1161\u11a8", "\ud55c\uad6d\uc5b4",
    "\u65e5\u672c\u8a9e", "\u4e2d\u6587 \u5b57", "\u3072\u3089\u30ab\u30bf", "\u0645\u0631\u062d\u0628\u0627",
    "\u05e9\u05dc\u05d5\u05dd", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22", "\U0001f999",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44b\U0001f3fd", "\u2764\ufe0f", "\U0001f1eb\U0001f1f7", "\t", "\t\tx",
    "\r\n", "\n\n\n", "a\nb", "a \n b", "a\n\n  b", "\u00a0", "a\u00a0b", "\u3000x", "\u2028", "\x0b\x0c", "\x00", "a\x00b",
    "\x7f\x80\x85", "\ufeffa", "\u200b", "\ufffd", "\U0010ffff", "\ue000", "def f(x):\n    return x + 1\n", "if (a<b&&c>=d) {}",
    "http://a.b/c?d=e&f#g", "a_b-c.d", "#!/bin/sh", "\"quoted\" 'text'", "<s>", "</s>", "<s>the", "the<s>", "<s> the", "the <s> a",
    "<s><s>", "<|im_start|>user\nhello<|im_end|>", "<|im_end|", "<unk>", "<0x41>", "\u2581", "the\u2581world", "\u2581\u2581",
    "\u0120the", "camelCaseWORD", "ABCdef", "\u01c5\u01c4", "mixed123abc", "%%%", "....", "a.b.c", "$5.00 \u20ac5 \u00a35", "--++--",
    "   leading", "trailing   ", "in   side", "tab\tand space", "the the the the", "hellohellohello", "thetheworld",
    "a" * 70, " " * 70, "\n" * 40, "helloworld" * 12, "\u0301\u0301\u0301", "world\u0301", "the<extra>world", "<word>", "a<word>b",
    "a <word> b", " <left> x", "x  <left>", "<right>  x", "<norm>", "e\u0301<norm> ", "[mask] [mask]", "<pad><pad>"]

GRAMMAR = (["the", "a", "one", "two"], ["hello", "world", "user", "tree", "house", "cat"],
           ["is", "has", "sees", "likes", "said"], ["it", "them", "the other", "all 123 of them", "nothing"])


def corpus():
    r = random.Random(1)
    for _ in range(400):
        words = [r.choice(part) for part in GRAMMAR]
        text = " ".join(words) + r.choice([".", "!", ", and", ";\n"])
        yield text.capitalize() if r.random() < 0.3 else text


# ---- tiny vocabularies ------------------------------------------------------------------------------------------------

def train_bytes():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=330, show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(t.to_str())["model"]


def train_spm(**options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=corpus(), model_writer=out, model_type="bpe", vocab_size=360, byte_fallback=True,
        normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2, character_coverage=1.0,
        allow_whitespace_only_pieces=True, split_digits=True, **options)
    return out.getvalue()


def spm_pieces(data):
    p = sentencepiece.SentencePieceProcessor(model_proto=data)
    kind = [6 if p.is_byte(i) else 2 if p.is_unknown(i) else 3 if p.is_control(i) else 1 for i in range(p.vocab_size())]
    return [(p.id_to_piece(i), p.get_score(i), kind[i]) for i in range(p.vocab_size())]


def score_merges(pieces):
    """Every cut of a piece into two, best score first: the merges that the scores stand for."""
    made = {name for name, _, kind in pieces if kind == 1}
    merges = [(score, name[:k], name[k:]) for name, score, kind in pieces if kind == 1
              for k in range(1, len(name)) if name[:k] in made and name[k:] in made]
    return [[a, b] for _, a, b in sorted(merges, key=lambda m: -m[0])]


def marks_model(pieces):
    return {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
            "vocab": {name: i for i, (name, _, _) in enumerate(pieces)}, "merges": score_merges(pieces)}


def added(first, *tokens):
    return [dict({"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                  "normalized": False, "special": True}, **flags) for i, (content, flags) in enumerate(tokens)]


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def kinds(n_bytes):
    """name -> (vocabulary, what stands around the model)."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    plain = dict(level, use_regex=False)
    special = added(n_bytes, ("<s>", {}), ("</s>", {}), ("<|im_start|>", {}), ("<|im_end|>", {}))
    odd = special + added(n_bytes + 4, ("<word>", {"single_word": True, "special": False}),
                          ("<left>", {"lstrip": True, "special": False}), ("<right>", {"rstrip": True, "special": False}),
                          ("<norm>", {"normalized": True, "special": False}), ("[mask]", {"lstrip": True, "rstrip": True}),
                          ("<extra>", {"special": False}), ("<extra>wor", {"special": True}))
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                           {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {name: {"id": name, "ids": [n_bytes + i], "tokens": [name]}
                                   for i, name in enumerate(("<s>", "</s>"))}}
    marks = added(0, ("<unk>", {}), ("<s>", {}), ("</s>", {}))
    replace_in = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    replace_out = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
    fallback = [replace_out, {"type": "ByteFallback"}, {"type": "Fuse"}]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}

    def meta(scheme, cut):
        return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cut}

    def around(added_tokens, norm, pre, post, decoder):
        return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens, "normalizer": norm,
                "pre_tokenizer": pre, "post_processor": post, "decoder": decoder}

    def sequence(key, *parts):
        return {"type": "Sequence", key: list(parts)}

    return {
        "gpt2": ("bytes", around(special, None, level, None, level)),
        "digits": ("bytes", around(special, None, sequence(
            "pretokenizers", {"type": "Digits", "individual_digits": True}, level), None, level)),
        "qwen2": ("bytes", around(special, {"type": "NFC"}, sequence("pretokenizers", split(QWEN2), plain), None, level)),
        "llama3": ("bytes_whole", around(special, None, sequence("pretokenizers", split(LLAMA3), plain),
                                         sequence("processors", level, template), level)),
        "added": ("bytes", around(odd, {"type": "NFC"}, dict(level, add_prefix_space=True), None, level)),
        "removed": ("bytes", around(odd, None, sequence("pretokenizers", split(r"\s+", "Removed"), split(r"[a-m]", "MergedWithNext"),
                                                        split(r"\p{P}|the", "MergedWithPrevious"), split("[tl]", "Contiguous"), plain),
                                    None, level)),
        "legacy": ("marks", around(marks, sequence("normalizers", {"type": "Prepend", "prepend": MARK}, replace_in), None, None,
                                   sequence("decoders", *fallback, strip))),
        "first": ("marks", around(marks, None, meta("first", False), None, sequence("decoders", *fallback, strip))),
        "never": ("marks", around(marks, None, meta("never", True), None, sequence("decoders", *fallback))),
        "always": ("marks", around(marks, None, meta("always", True), None, meta("always", True))),
        "gemma": ("marks", around(marks, replace_in, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                                                      "invert": False}, None, sequence("decoders", *fallback))),
    }


# ---- rows -------------------------------------------------------------------------------------------------------------

def rows(t, texts):
    """For each text: ids with specials as plain text, with specials parsed, and the decoded texts of the latter."""
    out = []
    for text in texts:
        t.encode_special_tokens = True
        plain = t.encode(text).ids
        t.encode_special_tokens = False
        parsed = t.encode(text).ids
        decoded = [t.decode(parsed, skip_special_tokens=False), t.decode(parsed, skip_special_tokens=True)]
        out.append([plain, 0 if parsed == plain else parsed] + [0 if d == text else d for d in decoded])
    return out


def spm_rows(data, texts):
    p = sentencepiece.SentencePieceProcessor(model_proto=data)
    out = []
    for text in texts:
        ids = p.encode(text)
        decoded = p.decode(ids)
        out.append([ids, None, 0 if decoded == text else decoded, None])
    return out


# ---- GGUF -------------------------------------------------------------------------------------------------------------

def gguf_file(values):
    """Metadata alone: [(key, value)]; a value is a string, a bool, an int, or a list of strings, ints or floats."""
    def string(s):
        b = s.encode() if isinstance(s, str) else s
        return struct.pack("<Q", len(b)) + b

    def item(v):
        if isinstance(v, bool):
            return 7, struct.pack("<?", v)
        if isinstance(v, int):
            return 5, struct.pack("<i", v)
        if isinstance(v, float):
            return 6, struct.pack("<f", v)
        return 8, string(v)

    body = b""
    for key, v in values:
        body += string(key)
        if isinstance(v, bytes):
            body += struct.pack("<IIQ", 9, 0, len(v)) + v
        elif isinstance(v, list):
            body += struct.pack("<IIQ", 9, item(v[0])[0], len(v)) + b"".join(item(x)[1] for x in v)
        else:
            kind, data = item(v)
            body += struct.pack("<I", 4 if kind == 5 else kind) + data  # llama.cpp wants single numbers unsigned
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + body


def gguf_tokenizer(tokens, types, scores, merges, expressions):
    """The `tokenizers` object that gives what llama.cpp gives, but for the ids around the text; and the number of ids that
    count (those above stand for bytes the vocabulary lacks)."""
    vocab = {x: i for i, x in enumerate(tokens) if types[i] != 5}
    if scores is None:
        extra = [c for c in pre_tokenizers.ByteLevel.alphabet() if c not in vocab]
        vocab.update((c, len(tokens) + i) for i, c in enumerate(sorted(extra)))
        t = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m.split(" ")) for m in merges]))
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(e), "isolated") for e in expressions] +
                                                  [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        t.decoder = decoders.ByteLevel()
    else:
        pieces = [(x, s, k) for x, s, k in zip(tokens, scores, types)]
        t = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m) for m in score_merges(pieces)], byte_fallback=True,
                                 unk_token="<unk>", fuse_unk=True))
        t.normalizer = normalizers.Replace(" ", MARK)
        t.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x, k in zip(tokens, types) if k in (2, 3)])
    t.add_tokens([AddedToken(x, special=False, normalized=False) for x, k in zip(tokens, types) if k == 4])
    return t


# ---- making the files -------------------------------------------------------------------------------------------------

def dump(name, value):
    with open(os.path.join(HERE, name), "w", encoding="utf-8", newline="\n") as f:
        json.dump(value, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


def write(name, data):
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(data)


def vocabularies():
    byte_model = train_bytes()
    strings = dict(byte_model, merges=[" ".join(m) for m in byte_model["merges"]])
    return {"bytes": strings, "bytes_whole": dict(byte_model, ignore_merges=True), "marks": marks_model(spm_pieces(train_spm()))}


def gguf_t5(rows, charsmap):
    """rows: (piece, score), the first is the unknown token."""
    tokens, scores = [p for p, _ in rows] + ["</s>", "<pad>", "<extra>"], [float(s) for _, s in rows] + [0.0, 0.0, 0.0]
    return gguf_file([("general.architecture", "t5"), ("tokenizer.ggml.model", "t5"), ("tokenizer.ggml.tokens", tokens),
                      ("tokenizer.ggml.scores", scores), ("tokenizer.ggml.token_type", [2] + [1] * (len(rows) - 1) + [3, 3, 4]),
                      ("tokenizer.ggml.unknown_token_id", 0), ("tokenizer.ggml.eos_token_id", len(rows)),
                      ("tokenizer.ggml.add_space_prefix", True), ("tokenizer.ggml.remove_extra_whitespaces", True),
                      ("tokenizer.ggml.precompiled_charsmap", charsmap)])


def gguf_bert(vocabulary):
    """A WordPiece vocabulary, {piece: id}, as GGUF has it: U+2581 before what begins a word."""
    tokens, types = [], []
    for piece in vocabulary:
        special = piece[0] == "[" and len(piece) > 3
        token = piece if special else piece[2:] if piece.startswith("##") and len(piece) > 2 else MARK + piece
        tokens.append(token if token not in tokens else "[again%d]" % len(tokens))
        types.append(2 if piece == "[UNK]" else 3 if special else 1)
    return gguf_file([("general.architecture", "bert"), ("tokenizer.ggml.model", "bert"), ("tokenizer.ggml.tokens", tokens),
                      ("tokenizer.ggml.token_type", types), ("tokenizer.ggml.bos_token_id", 2), ("tokenizer.ggml.cls_token_id", 2),
                      ("tokenizer.ggml.seperator_token_id", 3), ("tokenizer.ggml.unknown_token_id", 1)])


def make():
    os.makedirs(HERE, exist_ok=True)
    byte_model = train_bytes()
    strings = dict(byte_model, merges=[" ".join(m) for m in byte_model["merges"]])
    spm = train_spm()
    bare = train_spm(add_dummy_prefix=False, user_defined_symbols=["<|im_end|>", "hello"], control_symbols=["<ctl>"])
    pieces = spm_pieces(spm)
    vocabularies = {"bytes": strings, "bytes_whole": dict(byte_model, ignore_merges=True), "marks": marks_model(pieces)}
    dump("vocab_bytes.json", strings)
    dump("vocab_marks.json", vocabularies["marks"])
    write("dummy_prefix.model", spm)
    write("bare.model", bare)
    out = {"texts": TRICKY, "json": [], "model": [], "gguf": []}
    for name, (vocabulary, around) in kinds(len(strings["vocab"])).items():
        t = Tokenizer.from_str(json.dumps(dict(around, model=vocabularies[vocabulary])))
        out["json"].append({"name": name, "vocab": vocabulary, "around": json.dumps(around), "rows": rows(t, TRICKY)})
    for name, data in (("dummy_prefix.model", spm), ("bare.model", bare)):
        texts = [x for x in TRICKY if "\0" not in x]
        out["model"].append({"name": name, "rows": spm_rows(data, texts)})

    tokens = list(strings["vocab"]) + ["<s>", "<|im_end|>", "<extra>", "<extra>world"]
    types = [1] * len(strings["vocab"]) + [3, 3, 4, 4]
    for pre, expressions in (("smollm", [r"\p{N}", GPT2_GGUF]), ("qwen2", [QWEN2]), ("llama-bpe", [LLAMA3])):
        t = gguf_tokenizer(tokens, types, None, strings["merges"], expressions)
        out["gguf"].append({"name": "bytes.gguf", "pre": pre, "rows": rows(t, TRICKY)})
    write("bytes.gguf", gguf_file([("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "smollm"), ("tokenizer.ggml.tokens", tokens),
                                   ("tokenizer.ggml.token_type", types), ("tokenizer.ggml.merges", strings["merges"]),
                                   ("tokenizer.ggml.bos_token_id", len(tokens) - 4), ("tokenizer.ggml.add_bos_token", False)]))
    pieces += [("\n\n", -1000.0, 4), ("  ", -1000.0, 4), ("<extra>", -1000.0, 4)]
    t = gguf_tokenizer(*([p[i] for p in pieces] for i in (0, 2, 1)), None, None)
    out["gguf"].append({"name": "marks.gguf", "pre": None, "rows": rows(t, TRICKY)})
    write("marks.gguf", gguf_file([("tokenizer.ggml.model", "llama"), ("tokenizer.ggml.tokens", [p[0] for p in pieces]),
                                   ("tokenizer.ggml.scores", [float(p[1]) for p in pieces]),
                                   ("tokenizer.ggml.token_type", [p[2] for p in pieces]), ("tokenizer.ggml.bos_token_id", 1),
                                   ("tokenizer.ggml.add_bos_token", False), ("tokenizer.ggml.add_space_prefix", False)]))
    dump("rows.json", out)
    make_kinds()
    print("%d bytes" % sum(os.path.getsize(os.path.join(HERE, f)) for f in os.listdir(HERE)))


def make_kinds():
    """kinds.json: a tokenizer for each kind of component, whole; and GGUF rows by llama.cpp itself, through the program that
    TFM_LLAMA_TOKENIZE names (see text_suite.py)."""
    import text_suite
    texts = [x for x in TRICKY if "\0" not in x]
    out = {"texts": texts, "json": [], "gguf": []}
    for name, t in text_suite.committed():
        document = json.dumps(json.loads(t.to_str()), ensure_ascii=True, separators=(",", ":"))
        out["json"].append({"name": name, "document": document, "rows": rows(t, texts)})
    files = dict(text_suite.gguf_files(text_suite.small_charsmap()))
    write("t5.gguf", files["gguf t5"])
    write("bert.gguf", files["gguf bert"])
    for name in ("t5", "bert", "gpt-4o", "default", "tiny_aya", "exaone-moe", "deepseek-llm"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.gguf")
            with open(path, "wb") as f:
                f.write(files["gguf " + name])
            whole = name in ("t5", "bert")
            plain, parsed = (text_suite.llama_ids(path, texts, parse, whole) for parse in (False, True))
        out["gguf"].append({"name": name + ".gguf" if whole else "bytes.gguf", "pre": None if whole else name,
                            "rows": [[a, 0 if a == b else b, None, None] for a, b in zip(plain, parsed)]})
    dump("kinds.json", out)


# ---- random texts -----------------------------------------------------------------------------------------------------

POOLS = ["abcdefghijklmnopqrstuvwxyz", " \n\t\r\u00a0\u3000\u2009\x0b\x0c\x85\u2028", "0123456789",
         "ABCDEFGHIJ'\u2019!?.,;:-_()[]{}<>|/\\\"#$%&*+=@^`~", "\u00e9\u00fc\u00f1\u00df\u00e5\u0130\u0131\u017f\u212a\u01c5",
         "\u65e5\u672c\u8a9e\u4e2d\u6587\ud55c\uad6d\u3072\u30ab", "\u0301\u0308\u0323\u0327\u030a\u0344\u1161\u11a8\u1100\u0f71\u0f72",
         "\U0001f468\u200d\U0001f469\U0001f999\U0001f3fd\u2764\ufe0f\U0001f1eb", "\u0645\u0631\u05e9\u05dc\u0939\u093f\u0928\u094d\u0e44",
         "\u0663\u096a\u0e55\u2167\u00bd\u00b2\u2460", "\u2581\u0120<0x41>", "\ufffd\ufeff\u200b\x7f\U0010ffff\ud7ff\ue000"]
WORDS = ["the", " the", "Hello", " world", "it's", "I'LL", "don't", "<|im_end|>", "<|im_start|>", "<|endoftext|>", "<s>", "<bos>",
         "\n\n\n", "  ", "    ", "def f(x):\n    return x+1", "http://example.com/a?b=c", "e\u0301", "\ufb01", "12345", "3.14", "a" * 45,
         "'\u017f", "'S", "'re"]


def random_text(r):
    out = []
    for _ in range(r.choice([1, 2, 3, 5, 8]) if r.random() < 0.98 else r.choice([0, 20, 60])):
        k = r.random()
        if k < 0.35:
            out.append(r.choice(WORDS))
        elif k < 0.93:
            pool = r.choice(POOLS)
            out.append("".join(r.choice(pool) for _ in range(r.choice([1, 1, 2, 3, 6]))))
        else:
            c = r.randrange(1, 0x110000)
            out.append("x" if 0xD800 <= c < 0xE000 else chr(c))
    return "".join(out)


def convert(build, path, model):
    return subprocess.run([os.path.join(build, "tfm-convert"), "--vocab-only", path, model], stderr=subprocess.PIPE).returncode == 0


def run_tool(build, model, texts, *options, raw=False):
    data = b"".join(x.encode() + b"\0" for x in texts)
    out = subprocess.run([os.path.join(build, "tfm-tokenize"), model, "--null", "--no-special", *options], input=data,
                         stdout=subprocess.PIPE, check=True).stdout
    return out if raw else [[int(x) for x in line.split()] for line in out.decode().split("\n")[:-1]]


def run_decoder(build, model, rows, *options):
    """The text of each row of ids; none may hold a zero."""
    data = "".join(" ".join(map(str, ids)) + "\n" for ids in rows).encode()
    return subprocess.run([os.path.join(build, "tfm-tokenize"), model, "--null", "--decode", *options], input=data,
                          stdout=subprocess.PIPE, check=True).stdout.split(b"\0")[:-1]


def gguf_reference(path):
    import gguf
    fields = gguf.GGUFReader(path).fields

    def get(key):
        key = "tokenizer.ggml." + key
        return fields[key].contents() if key in fields else None

    tables = {"smollm": [r"\p{N}", GPT2_GGUF], "qwen2": [QWEN2], "llama-bpe": [LLAMA3], "gpt-2": [GPT2_GGUF]}
    tokens, scores = get("tokens"), get("scores") if get("model") == "llama" else None
    return gguf_tokenizer(tokens, get("token_type"), scores, get("merges"), tables.get(get("pre"), [])), len(tokens)


def diff(build, n, path):
    r = random.Random(n)
    texts = [random_text(r) for _ in range(n)]
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "t.tfm")
        subprocess.run([os.path.join(build, "tfm-convert"), "--vocab-only", path, model], check=True)
        wrong = 0
        for options, plain in (((), True), (("--parse-special",), False)):
            if path.endswith(".model"):
                if not plain:
                    continue
                p = sentencepiece.SentencePieceProcessor(model_file=path)
                expected = [p.encode(x) for x in texts]
            else:
                t, limit = gguf_reference(path) if path.endswith(".gguf") else (Tokenizer.from_file(path), 1 << 31)
                t.encode_special_tokens = plain
                expected = [[i for i in e.ids if i < limit] for e in t.encode_batch(texts, add_special_tokens=False)]
            for text, e, g in zip(texts, expected, run_tool(build, model, texts, *options)):
                if e != g:
                    wrong += 1
                    if wrong <= 5:
                        print("%s %s %r\n  reference %s\n  here      %s" % (path, options, text, e, g))
    print("%s: %d texts, %d differ" % (path, n, wrong))
    return wrong


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make()
    elif sys.argv[1:2] == ["diff"] and len(sys.argv) > 4:
        sys.exit(1 if sum(diff(sys.argv[2], int(sys.argv[3]), path) for path in sys.argv[4:]) else 0)
    else:
        sys.exit(__doc__)
