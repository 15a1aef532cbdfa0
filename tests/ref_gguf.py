"""What llama.cpp's own converter makes of the tiny models of ref_families.py: keys, and where every row comes from.

    python tests/ref_gguf.py LLAMA_CPP [NAME...]      write tests/ref/gguf/NAME.json (default: all of MODELS)

LLAMA_CPP is a source tree of llama.cpp, whose conversion/ and gguf-py/ are run as they are (only the tokenizer is left
out). The committed files were made by that of llama-cpp-python 0.3.36. `make test` needs neither: it builds the GGUF
file from the hashed weights by these rules, converts it, and compares the logits with those of the directory.

NAME.json
    of                the model of tests/ref/families whose weights and logits these are
    keys              [[key, type, value]...]: u32, f32, bool, str, or [u32], [bool], ... with a list
    tensors           [[name, [shape], source, rows]...], shape outermost first. source: a tensor of the directory;
                      "+1" behind it: each value is one more; "^T": its columns are the rows.
                      rows: [[first, count]...] of the source, or [] for all in their order; null with a list of values
                      instead of the source: they are literal
"""
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import ref_families
from ref_models import model_for

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ref", "gguf")

# the models, but for those of which GGUF loses something (Gemma 2's query scalar, MPT's softmax scale, windows of Mistral
# and StarCoder2, a head_dim of its own in Nemotron and GLM), with what the configuration says otherwise in published checkpoints
MODELS = {name: {} for name in (
    "apertus arcee bloom bloom_hub cohere cohere2 cohere_qk_norm ernie4_5 exaone4 exaone4_full falcon_new "
    "glm4 glm_edge gpt2 gpt_bigcode gpt_neox gpt_neox_sequential granite hunyuan_v1_dense internlm2 jais2 llama_bias "
    "llama_gqa llama_rope_llama3 llama_rope_yarn ministral3 mpt nemotron_narrow olmo olmo2 olmo3 phi phi3 "
    "phi3_longrope_long phi3_longrope_short phi4_mini qwen1 qwen2 qwen3 seed_oss smollm3_default stablelm stablelm_parallel "
    "starcoder2_full baichuan_7b baichuan_13b mistral_full").split()}
MODELS["falcon"] = {"num_kv_heads": 1}      # transformers says 4 although there is one
CLASSES = {"mpt": "MPTForCausalLM", "baichuan": "BaichuanForCausalLM", "internlm2": "InternLM2ForCausalLM", "qwen": "QWenLMHeadModel",
           "chameleon": "ChameleonForConditionalGeneration"}


def class_of(config):
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as names
    return CLASSES.get(config["model_type"]) or names[config["model_type"]]


def run_converter(source, target, changes):
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    hparams = ModelBase.load_hparams(source, False)
    cls = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
    cls.set_vocab = lambda self: None
    if hparams["model_type"] == "baichuan":     # its modify_tensors calls itself for ever
        fixed = cls.modify_tensors
        cls.modify_tensors = lambda self, data, name, bid: (
            fixed(self, data, name, bid) if "W_pack" in name else ModelBase.modify_tensors(self, data, name, bid))
    with open(source / "config.json", encoding="utf-8") as f:
        raw = json.load(f)      # transformers of today renames and adds keys that the converter knows by their old names
    model = cls(source, gguf.LlamaFileType.ALL_F32, target, hparams={**raw, **hparams, **changes})
    model.write()


def value_of(field):
    import gguf
    names = {gguf.GGUFValueType.UINT32: "u32", gguf.GGUFValueType.INT32: "i32", gguf.GGUFValueType.FLOAT32: "f32",
             gguf.GGUFValueType.BOOL: "bool", gguf.GGUFValueType.STRING: "str"}
    kind = names[field.types[-1]]
    parts = [field.parts[i] for i in field.data]
    if kind == "str":
        values = [bytes(p).decode() for p in parts]
    else:
        values = [p[0].item() for p in parts]
        if kind == "bool":
            values = [bool(v) for v in values]
    if field.types[0] == gguf.GGUFValueType.ARRAY:
        return "[%s]" % kind, values
    return kind, values[0]


class Sources:
    """Rows of the directory's tensors, to be found by their bytes."""
    def __init__(self, tensors):
        self.tensors, self.rows = tensors, {}
        for name, t in tensors.items():
            if t.ndim == 2:
                for mark, matrix in (("", t), ("^T", t.T)):
                    for i, row in enumerate(np.ascontiguousarray(matrix)):
                        self.rows.setdefault(row.tobytes(), (name + mark, i))

    def of_matrix(self, t):
        found = [self.rows.get(row.tobytes()) for row in t]
        if None in found or len({name for name, _ in found}) != 1:
            return None
        return found[0][0], [i for _, i in found]

    def of_vector(self, t, matrices):
        """Whole, one more, or permuted as the matrix beside it was."""
        flat = t.reshape(-1)
        for name, s in self.tensors.items():
            for mark, values in (("", s), ("+1", s + 1)):
                if values.size == flat.size and np.array_equal(values.reshape(-1), flat):
                    return name + mark, []
        for source, rows in matrices:
            bias = self.tensors.get(source.replace("^T", "").replace("weight", "bias"))
            if bias is not None and bias.ndim == 1 and max(rows) < bias.size and np.array_equal(bias[rows], flat):
                return source.replace("^T", "").replace("weight", "bias"), rows
        return None


def runs(rows, total):
    out = []
    for i in rows:
        if out and out[-1][0] + out[-1][1] == i:
            out[-1][1] += 1
        else:
            out.append([i, 1])
    return [] if out == [[0, total]] else out


def recipe(of, config_changes):
    import gguf
    table = ref_families.models()
    ref = ref_families.describe(table[of], table)
    with tempfile.TemporaryDirectory() as tmp:
        config = ref_families.merged(ref["config"], config_changes)
        config["architectures"] = [class_of(config)]
        config.pop("dtype", None)
        ref_families.write_directory(tmp, dict(ref, config=config))
        target = Path(tmp) / "out.gguf"
        run_converter(Path(tmp), target, config_changes)
        reader = gguf.GGUFReader(target)
        sources = Sources({row[0]: ref_families.weight(*row).float().numpy() for row in ref["tensors"]})
        keys = [[f.name, *value_of(f)] for f in reader.fields.values()
                if not f.name.startswith("GGUF.") and (not f.name.startswith("general.") or f.name.endswith("architecture"))]
        tensors, matrices = [], {}
        for t in sorted(reader.tensors, key=lambda t: t.name.endswith("bias")):     # vectors are taken like their matrix
            data = np.array(t.data, dtype=np.float32)
            if data.ndim == 2 and min(data.shape) > 1 and sources.of_matrix(data):
                source, rows = sources.of_matrix(data)
                matrices[t.name] = (source, rows)
                size = sources.tensors[source.replace("^T", "")].shape[1 if "^T" in source else 0]
                tensors.append([t.name, list(data.shape), source, runs(rows, size)])
                continue
            beside = matrices.get(t.name.replace(".bias", ".weight"))
            found = sources.of_vector(data, [beside] if beside else list(matrices.values()))
            if found:
                tensors.append([t.name, list(data.shape), found[0], runs(found[1], len(found[1])) if found[1] else []])
            elif data.size <= 64:
                tensors.append([t.name, list(data.shape), [float(x) for x in data.reshape(-1)], None])
            else:
                raise SystemExit("%s: no source of %s %s" % (of, t.name, data.shape))
    return {"of": of, "made_by": "tests/ref_gguf.py with the converter of llama.cpp", "keys": keys, "tensors": tensors}


def write(name):
    os.makedirs(OUT, exist_ok=True)
    of, changes = name, MODELS[name]
    out = recipe(of, changes)
    compact = lambda x: json.dumps(x, separators=(",", ":"))
    lines = ['%s: %s' % (json.dumps(k), "[\n" + ",\n".join(map(compact, v)) + "\n]" if isinstance(v, list) else compact(v))
             for k, v in out.items()]
    with open(os.path.join(OUT, name + ".json"), "w", encoding="utf-8", newline="\n") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    sys.path[:0] = [sys.argv[1], os.path.join(sys.argv[1], "gguf-py")]
    for name in sys.argv[2:] or MODELS:
        try:
            write(name)
            print("ok", name)
        except (Exception, SystemExit) as e:
            print("FAILED", name, repr(e)[:200])
