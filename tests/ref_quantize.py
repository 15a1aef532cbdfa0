#!/usr/bin/env python3
"""Writes tests/ref/quantize.h: what other quantisers make of the same numbers, and which types llama.cpp's mixes choose.

    python3 tests/ref_quantize.py --llama DIR --version TEXT > tests/ref/quantize.h

DIR holds llama.cpp's llama-quantize. Inputs are an integer hash of (seed, index), made alike by tests/test_quantize.c, so
only results are stored:
    the values of what gguf-py's quantize() makes, where it has a quantiser
    the error of what llama-quantize makes, without and with an importance matrix, relative to the rms of the values
    the type of every matrix of a few models (their shapes alone matter) in every mix
"""
import argparse
import os
import subprocess
import sys
import tempfile
from importlib import metadata

import gguf
import numpy as np
from gguf import GGMLQuantizationType, quants

from ref_kernels import hashed

ROWS, COLS = 16, 512
MIXES = ("q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m q6_k iq4_nl iq4_xs").split()
EXACT = "Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 MXFP4".split()
PURE = "Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K_S Q4_K_S Q5_K_S Q6_K IQ4_NL IQ4_XS".split()
# one letter a type, as in the C file
LETTERS = {"F16": "h", "Q8_0": "8", "Q4_0": "4", "Q4_1": "f", "Q5_0": "5", "Q5_1": "v", "Q2_K": "B", "Q3_K": "C",
           "Q4_K": "D", "Q5_K": "E", "Q6_K": "F", "IQ4_NL": "n", "IQ4_XS": "x"}


def values(seed, n):
    """Sums of four uniform numbers, as bell-shaped as weights are."""
    parts = [(hashed(seed + k, n) - 32768).astype(np.int64) for k in range(4)]
    return (sum(parts) / 262144).astype(np.float32)


def importance(seed, n):
    return ((hashed(seed, n) % 1000 + 1) / 250).astype(np.float32)


def fnv(array):
    h = 0xCBF29CE484222325
    for byte in array.astype("<f4").tobytes():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def exact():
    x = values(1, ROWS * COLS).reshape(ROWS, COLS)
    print("static const struct { const char *type; unsigned long long hash; } ref_quantized[] = {")
    for name in EXACT:
        kind = GGMLQuantizationType[name]
        print('    { "%s", 0x%016xULL },' % (name, fnv(quants.dequantize(quants.quantize(x, kind), kind))))
    print("};")


def start(path, layers, model, ff, heads, kv, experts=0):
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(layers)
    w.add_context_length(64)
    w.add_embedding_length(model)
    w.add_feed_forward_length(ff)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(32)
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(2)
    return w


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


class Quantizer:
    def __init__(self, folder, tmp):
        self.program, self.tmp = os.path.join(folder, "llama-quantize"), tmp

    def run(self, source, kind, *options):
        out = os.path.join(self.tmp, "out.gguf")
        done = subprocess.run([self.program, *options, source, out, kind, "1"], capture_output=True, text=True)
        if done.returncode:
            sys.exit("llama-quantize %s: %s" % (kind, done.stderr[-400:]))
        return gguf.GGUFReader(out)


def write_importance(path, name, row):
    w = gguf.GGUFWriter(path, "llama")
    w.add_string("general.type", "imatrix")
    w.add_array("imatrix.datasets", ["hash"])
    w.add_uint32("imatrix.chunk_count", 1)
    w.add_uint32("imatrix.chunk_size", 512)
    w.add_tensor(name + ".in_sum2", row.reshape(1, -1))
    w.add_tensor(name + ".counts", np.ones((1, 1), np.float32))
    finish(w)


def errors(q):
    """Of one matrix in each type: the root of the mean of weight * error^2 over that of weight * value^2."""
    x = values(1, ROWS * COLS).reshape(ROWS, COLS)
    weight = importance(9, COLS)
    source, matrix = os.path.join(q.tmp, "in.gguf"), os.path.join(q.tmp, "imatrix.gguf")
    name = "blk.0.ffn_up.weight"
    w = start(source, 1, COLS, ROWS, 4, 4)
    w.add_tensor(name, x)
    finish(w)
    write_importance(matrix, name, weight)
    print("static const struct { const char *type; double plain, weighted; } ref_errors[] = {")
    for kind in PURE:
        row = []
        for options, importances in ((), np.ones(COLS)), (("--imatrix", matrix), weight):
            t = next(t for t in q.run(source, kind, "--pure", *options).tensors if t.name == name)
            miss = quants.dequantize(t.data, t.tensor_type).astype(np.float64) - x
            row.append(np.sqrt((importances * miss ** 2).sum() / (importances * x.astype(np.float64) ** 2).sum()))
        print('    { "%s", %.8f, %.8f },' % (t.tensor_type.name, *row))
    print("};")


# name, layers, d_model, d_ff, heads, kv heads, tied, experts
MODELS = [
    ("dense", 32, 256, 512, 8, 8, 0, 0), ("shared", 26, 256, 512, 8, 2, 1, 0), ("many", 80, 256, 256, 8, 1, 0, 0),
    ("eight", 24, 256, 256, 8, 2, 0, 8), ("narrow", 30, 192, 512, 6, 3, 1, 0), ("odd", 4, 80, 336, 5, 5, 1, 0),
]
ROLES = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]


def write_model(path, layers, model, ff, heads, kv, tied, experts):
    w = start(path, layers, model, ff, heads, kv, experts)
    head = model // heads
    shapes = {"attn_q": (model, model), "attn_k": (kv * head, model), "attn_v": (kv * head, model),
              "attn_output": (model, model), "ffn_gate": (ff, model), "ffn_up": (ff, model), "ffn_down": (model, ff)}
    w.add_tensor("token_embd.weight", np.zeros((32, model), np.float16))
    if not tied:
        w.add_tensor("output.weight", np.zeros((32, model), np.float16))
    for layer in range(layers):
        for role, shape in shapes.items():
            expert = experts and role.startswith("ffn")
            w.add_tensor("blk.%d.%s%s.weight" % (layer, role, "_exps" if expert else ""),
                         np.zeros(((experts,) if expert else ()) + shape, np.float16))
    finish(w)


def mixes(q):
    print("/* For each mix: embedding, head (- if tied), then each layer's " + " ".join(ROLES) +
          ";\n   layers alike that follow each other stand once, after their number. */")
    print("static const struct { const char *name; int layers, model, ff, heads, kv, tied, experts; } ref_models[] = {")
    for m in MODELS:
        print('    { "%s", %s },' % (m[0], ", ".join(map(str, m[1:]))))
    print("};")
    print("static const struct { const char *model, *mix, *types; } ref_mixes[] = {")
    for name, layers, *rest in MODELS:
        source = os.path.join(q.tmp, "model.gguf")
        write_model(source, layers, *rest)
        for mix in MIXES:
            types = {t.name: LETTERS[t.tensor_type.name] for t in q.run(source, mix).tensors}
            rows = ["".join(types["blk.%d.%s%s.weight" % (i, r, "_exps" if rest[-1] and r[0] == "f" else "")] for r in ROLES)
                    for i in range(layers)]
            text, i = types["token_embd.weight"] + types.get("output.weight", "-"), 0
            while i < layers:
                n = next((k for k in range(i, layers) if rows[k] != rows[i]), layers) - i
                text += " %d:%s" % (n, rows[i])
                i += n
            print('    { "%s", "%s", "%s" },' % (name, mix, text))
    print("};")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama", required=True, help="the folder of llama-quantize")
    parser.add_argument("--version", required=True, help="which llama.cpp that is")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        q = Quantizer(args.llama, tmp)
        print("/* Made by tests/ref_quantize.py with gguf %s, numpy %s, llama.cpp %s. */" % (
            metadata.version("gguf"), metadata.version("numpy"), args.version))
        exact()
        errors(q)
        mixes(q)


if __name__ == "__main__":
    sys.exit(main())
