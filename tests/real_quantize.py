"""The quantiser against llama.cpp's: types of the tensors, and perplexity of the same source in the same type.

    python3 tests/real_quantize.py --llama DIR [--build build] [--chunks N] [--types T,...] [--table] [NAME...]

DIR holds llama.cpp's llama-quantize and llama-imatrix; where it is absent everything is skipped and counted. Models are
those of tests/real_models.py, dequantised to F16 from their files (types of the source itself are left out), and the
checkpoint of examples/models in BF16. llama.cpp's files are converted by tfm-convert, so that one program measures both:
`tfm-eval --ppl --fast` on tests/data/english.txt (stories: on what the model itself tells), which is divided in two for
importance matrices: the first half is what they are made from, the second is measured. Ours may be at most 0.5 % above.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

from real_models import HERE, MODELS, TEXT, Programs, check, counts, need_libraries, obtain, skip

ALLOWED = 0.005
STORIES = os.path.join(HERE, "..", "examples", "models", "stories")
TYPES = {  # of each model: those that say something there, without those of the source
    "stories": "q8_0 q4_0 q4_1 q5_0 q5_1 q2_k iq4_nl",
    "smollm2": "q4_0 q5_0 q5_1 q2_k q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m q6_k iq4_nl iq4_xs",
    "qwen2.5-0.5b": "q8_0 q4_0 q2_k q3_k_m q6_k iq4_xs",
}
IMPORTANCE = {"stories": "q4_0", "smollm2": "q2_k q4_0 iq4_xs"}


def command(*args):
    done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("%s: exit status %d: %s" % (" ".join(args[:4]), done.returncode, done.stderr.strip()[-200:]))


def writer_like(reader, path):
    """A GGUF writer with the values of another file."""
    import gguf
    w = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for f in reader.fields.values():
        if f.name.startswith("GGUF.") or f.name in ("general.architecture", "general.file_type",
                                                   "general.quantization_version"):
            continue
        array = f.types[0] == gguf.GGUFValueType.ARRAY
        w.add_key_value(f.name, f.contents(), f.types[0], sub_type=f.types[-1] if array else None)
    return w


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def dequantise(source, path):
    """Every matrix as F16."""
    import gguf
    import numpy
    reader = gguf.GGUFReader(source)
    w = writer_like(reader, path)
    for t in reader.tensors:
        w.add_tensor(t.name, gguf.quants.dequantize(t.data, t.tensor_type).astype(
            numpy.float16 if len(t.shape) > 1 else numpy.float32))
    finish(w)


def stories_gguf(path):
    """The checkpoint of the repository as llama.cpp has it: BF16, q and k in pairs."""
    import gguf
    import numpy
    with open(os.path.join(STORIES, "config.json")) as f:
        c = json.load(f)
    with open(os.path.join(STORIES, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    names = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
    parts = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_rope_dimension_count(c["head_dim"])
    w.add_rope_freq_base(c["rope_parameters"]["rope_theta"])
    w.add_bos_token_id(c["bos_token_id"])
    w.add_eos_token_id(c["eos_token_id"])
    for name, t in header.items():
        if name == "__metadata__":
            continue
        a, b = t["data_offsets"]
        x = (numpy.frombuffer(data[a:b], "<u2").astype("<u4") << 16).view("<f4").reshape(t["shape"])
        words = name.removeprefix("model.").removesuffix(".weight").split(".", 2)
        if words[0] == "layers":
            to, heads = "blk.%s.%s.weight" % (words[1], parts[words[2]]), 0
            if words[2].endswith(("q_proj", "k_proj")):
                heads = c["num_attention_heads" if words[2].endswith("q_proj") else "num_key_value_heads"]
                x = x.reshape(heads, 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
        else:
            to = names[words[0]] + ".weight"
        if x.ndim == 1:
            w.add_tensor(to, x)
        else:
            bf16 = numpy.ascontiguousarray((numpy.ascontiguousarray(x).view("<u4") >> 16).astype("<u2")).view(numpy.uint8)
            w.add_tensor(to, bf16, raw_shape=bf16.shape, raw_dtype=gguf.GGMLQuantizationType.BF16)
    finish(w)


def told_by(p, model, path):
    """A text that the model knows: what it tells itself."""
    with open(path, "wb") as f:
        for seed in range(10):
            f.write(p.run("generate", model, "-p", "Once upon a time", "-n", "450", "--seed", str(seed), "--echo", "-t", "1"))
            f.write(b"\n\n")


class Comparison:
    """One source, made into a type by both."""
    def __init__(self, programs, llama, name, source, out, options, chunks):
        self.p, self.llama, self.name, self.source, self.out = programs, llama, name, source, out
        self.options, self.chunks = options, chunks
        self.text, self.rows = TEXT, []

    def path(self, name):
        return os.path.join(self.out, name)

    def perplexity(self, file, text):
        chunks = ("--chunks", str(self.chunks)) if self.chunks else ()
        return float(self.p.run("tfm-eval", file, "--ppl", text, "--fast", *chunks).decode().split()[1])

    def types(self, file):
        return {t["name"]: t["type"] for t in json.loads(self.p.run("tfm-inspect", file, "--json"))["tensors"]}

    def make(self, kind, ours, theirs):
        """Both files; ours and theirs are options that give the importance matrix of each."""
        command(os.path.join(self.llama, "llama-quantize"), *theirs, self.source, self.path("theirs.gguf"), kind, "2")
        self.p.run("tfm-convert", self.path("theirs.gguf"), self.path("theirs.tfm"), *self.options)
        self.p.run("tfm-convert", self.source, self.path("ours.tfm"), "--type", kind, *ours, *self.options)
        os.remove(self.path("theirs.gguf"))

    def compare(self, kind, text=None, ours=(), theirs=(), label=""):
        self.make(kind, ours, theirs)
        a, b = self.types(self.path("theirs.tfm")), self.types(self.path("ours.tfm"))
        wrong = [n for n in a if a[n] != b.get(n)]
        check(not wrong, "%s %s%s: types of %d tensors%s" % (self.name, kind, label, len(a), "" if not wrong else
                                                            ": not %s: %s, llama.cpp %s" % (wrong[0], b.get(wrong[0]), a[wrong[0]])))
        their = self.perplexity(self.path("theirs.tfm"), text or self.text)
        our = self.perplexity(self.path("ours.tfm"), text or self.text)
        check(our <= (1 + ALLOWED) * their, "%s %s%s: perplexity %.4f, llama.cpp %.4f: %+.2f %%" % (
            self.name, kind, label, our, their, 100 * (our / their - 1)))
        self.rows.append((kind + label, our, their, 100 * (our / their - 1)))

    def whole(self):
        """The source, not quantised."""
        path = self.path("source.tfm")
        if not os.path.exists(path):
            self.p.run("tfm-convert", self.source, path, *self.options)
        return path

    def importance(self, kinds):
        """With a matrix of one's own: ours made by tfm-eval, theirs by llama-imatrix."""
        halves = [self.path("half.%d.txt" % i) for i in (0, 1)]
        with open(self.text, "rb") as f:
            text = f.read()
        cut = text.index(b"\n", len(text) // 2)
        for path, part in zip(halves, (text[:cut], text[cut:])):
            with open(path, "wb") as f:
                f.write(part)
        self.p.run("tfm-eval", self.whole(), "--ppl", halves[0], "--imatrix", self.path("ours.imatrix"))
        theirs = self.path("ours.imatrix")
        try:
            command(os.path.join(self.llama, "llama-imatrix"), "-m", self.source, "-f", halves[0], "-o",
                    self.path("theirs.gguf.imatrix"), "--output-format", "gguf")
            theirs = self.path("theirs.gguf.imatrix")
        except RuntimeError as e:  # a model without llama.cpp's tokenizer
            skip("%s: llama-imatrix (both get ours): %s" % (self.name, str(e)[-60:]))
        for kind in kinds:
            self.compare(kind, halves[1], ("--imatrix", self.path("ours.imatrix")), ("--imatrix", theirs), ", imatrix")


def check_source(name, comparison, types):
    for kind in types or TYPES[name].split():
        comparison.compare(kind)
    if not types:
        comparison.importance(IMPORTANCE.get(name, "").split())


def main():
    parser = argparse.ArgumentParser(description="Compares the quantiser with llama.cpp's.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TYPES))
    parser.add_argument("--llama", default="", help="the folder of llama.cpp's programs")
    parser.add_argument("--build", default="build")
    parser.add_argument("--chunks", type=int, default=0, help="of 512 tokens, at most")
    parser.add_argument("--types", help="these instead of a choice for each model")
    parser.add_argument("--table", action="store_true", help="the figures as a table, too")
    args = parser.parse_args()
    names = args.names or list(TYPES)
    temporary = None if os.environ.get("TFM_MODELS") else tempfile.TemporaryDirectory()
    cache = os.path.abspath(os.environ.get("TFM_MODELS") or temporary.name)
    os.makedirs(cache, exist_ok=True)
    if not os.path.exists(os.path.join(args.llama, "llama-quantize")) or not need_libraries(cache):
        skip("all: llama-quantize, numpy or gguf is missing")
        names = []
    rows = []
    for name in names:
        with tempfile.TemporaryDirectory() as out:
            source, options = os.path.join(out, "source.gguf"), ()
            if name == "stories":
                stories_gguf(source)
                options = ("--tokenizer", os.path.join(STORIES, "tokenizer.json"))
            else:
                file = obtain(next(m for m in MODELS if m.name == name), cache)
                if not file:
                    continue
                dequantise(file, source)
            c = Comparison(Programs(args.build), args.llama, name, source, out, options, args.chunks)
            try:
                if name == "stories":
                    c.text = c.path("told.txt")
                    told_by(c.p, c.whole(), c.text)
                check_source(name, c, args.types.split(",") if args.types else None)
            except (RuntimeError, OSError) as e:
                check(False, "%s: %s" % (name, e))
            rows += [(name,) + row for row in c.rows]
    for row in rows if args.table else ():
        print("| %s | %s | %.4f | %.4f | %+.2f %% |" % row)
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts)
    return counts["failed"] > 0


if __name__ == "__main__":
    sys.exit(main())
