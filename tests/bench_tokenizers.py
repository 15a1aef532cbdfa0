#!/usr/bin/env python3
"""Speed of tfm-tokenize against the `tokenizers` package on one thread: `make bench-text`.

    python3 tests/bench_tokenizers.py BUILD [MB] [FILE...]

FILE is a tokenizer.json or a .gguf; without one: the vocabularies of text_suite.py. The text (10 MB unless said otherwise) is made of
English words, source code, numbers and other scripts, cut into documents of about 4 KB. The package's time is that of
encode_batch_fast() in one thread; ours is that of the whole program, start, reading and printing included. Ids must be
the same. Prints MB/s and the ratio, which should not be below 1.
"""
import os
import random
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer  # noqa: E402

import ref_tokenizers  # noqa: E402
import text_suite  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def documents(size):
    r = random.Random(4)
    with open(os.path.join(HERE, "data", "english.txt"), encoding="utf-8") as f:
        words = f.read().split()
    code = []
    for folder in ("..", "../tools", "."):
        for name in sorted(os.listdir(os.path.join(HERE, folder))):
            if name.endswith((".c", ".py")):
                with open(os.path.join(HERE, folder, name), encoding="utf-8") as f:
                    code += f.read().split("\n")
    out, total = [], 0
    while total < size:
        parts, n = [], 0
        while n < 4000:
            k = r.random()
            if k < 0.6:
                part = " ".join(r.choice(words) for _ in range(40)) + "\n"
            elif k < 0.8:
                at = r.randrange(len(code) - 10)
                part = "\n".join(code[at:at + 10]) + "\n"
            elif k < 0.9:
                part = ref_tokenizers.random_text(r)
            else:
                part = "%d, %.3f; %x\n" % (r.randrange(10 ** 9), r.random() * 1000, r.randrange(1 << 40))
            parts.append(part.replace("\0", ""))
            n += len(part.encode())
        out.append("".join(parts))
        total += n
    return out


def bench(build, folder, name, path, texts):
    size = sum(len(t.encode()) for t in texts) / 1e6
    model = os.path.join(folder, "t.tfm")
    subprocess.run([os.path.join(build, "tfm-convert"), "--vocab-only", path, model], check=True, stderr=subprocess.DEVNULL)
    if path.endswith(".gguf"):
        t, limit = ref_tokenizers.gguf_reference(path)
    else:
        t, limit = Tokenizer.from_file(path), 1 << 31
    t.encode_special_tokens = True
    t.no_padding()
    t.no_truncation()
    begin = time.perf_counter()
    expected = t.encode_batch_fast(texts, add_special_tokens=False)
    theirs = time.perf_counter() - begin
    begin = time.perf_counter()
    ids = ref_tokenizers.run_tool(build, model, texts, raw=True)
    ours = time.perf_counter() - begin
    same = [[int(x) for x in line.split()] for line in ids.decode().split("\n")[:-1]] == \
        [[i for i in e.ids if i < limit] for e in expected]
    print("%-24s tokenizers %6.2f MB/s  here %6.2f MB/s  ratio %5.2f  %s" % (
        name, size / theirs, size / ours, theirs / ours, "same ids" if same else "OTHER IDS"), flush=True)
    return same and theirs >= ours


def main():
    build, rest = sys.argv[1], sys.argv[2:]
    size = float(rest.pop(0)) if rest and rest[0].replace(".", "").isdigit() else 10
    texts = documents(size * 1e6)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        files = [(os.path.basename(path), path) for path in rest]
        if not files:
            for name, t in text_suite.benchmarked():
                path = os.path.join(folder, name + ".json")
                t.save(path)
                files.append((name, path))
        for name, path in files:
            ok = bench(build, folder, name, path, texts)
            passed, failed = passed + ok, failed + (not ok)
    print("%d passed, %d failed" % (passed, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
