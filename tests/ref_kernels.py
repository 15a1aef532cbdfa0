#!/usr/bin/env python3
"""Writes tests/ref/kernels.h: what the reference libraries compute for the kernel tests.

    python3 tests/ref_kernels.py > tests/ref/kernels.h

Inputs are an integer hash of (seed, index), made alike by tests/test_kernels.c, so only results are stored:
activations, norms, softmax, attention and rotary positions by torch in float32; RoPE frequencies by transformers;
dequantised values by gguf-py.
"""
import os
import sys
from importlib import metadata

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import numpy as np
import torch
import transformers
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def hashed(seed, n):
    """n integers below 2^16."""
    h = (np.arange(n, dtype=np.uint64) * 2654435761 + seed * 40503) & 0xFFFFFFFF
    h ^= h >> 15
    h = h * 0x85EBCA6B & 0xFFFFFFFF
    h ^= h >> 13
    return (h >> 8 & 0xFFFF).astype(np.int64)


def values(seed, n, scale=1 / 8192):
    return torch.tensor(((hashed(seed, n) - 32768) * scale).astype(np.float32))


def emit(name, array):
    flat = np.asarray(array, dtype=np.float32).ravel()
    text = ", ".join(f"{v:.9g}" for v in flat)
    lines, line = [], ""
    for word in text.split(" "):
        if len(line) + len(word) > 110:
            lines.append(line.rstrip())
            line = ""
        line += word + " "
    lines.append(line.rstrip())
    print(f"static const double ref_{name}[{len(flat)}] = {{\n    " + "\n    ".join(lines) + "\n};")


def elementwise():
    x, up = values(1, 40), values(2, 40)
    F = torch.nn.functional
    emit("relu", F.relu(x))
    emit("relu2", F.relu(x) ** 2)
    emit("gelu_erf", F.gelu(x))
    emit("gelu_tanh", F.gelu(x, approximate="tanh"))
    emit("gelu_quick", x * torch.sigmoid(1.702 * x))
    emit("silu", F.silu(x))
    emit("sigmoid", torch.sigmoid(x))
    emit("swiglu", F.silu(x) * up)
    emit("softcap", 3 * torch.tanh(x / 3))
    emit("softmax", torch.softmax(x, 0))
    emit("logsumexp", [torch.logsumexp(x, 0)])
    w, b = values(3, 40), values(4, 40)
    rms = x * torch.rsqrt(x.pow(2).mean() + 1e-6)
    emit("rmsnorm", rms * w)
    emit("rmsnorm_plus_one", rms * (1 + w))
    emit("layernorm", F.layer_norm(x, (40,), w, b, 1e-5))


def attention():
    """5 queries at positions 3..7 of 8, 4 heads on 2 kv heads of 20."""
    q = values(5, 5 * 4 * 20).view(5, 4, 20).transpose(0, 1)
    k = values(6, 2 * 8 * 20).view(2, 8, 20).repeat_interleave(2, 0)
    v = values(7, 2 * 8 * 20).view(2, 8, 20).repeat_interleave(2, 0)
    mask = torch.arange(8)[None, :] <= torch.arange(3, 8)[:, None]
    out = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask[None, None],
                                                           scale=0.125)
    emit("attention", out[0].transpose(0, 1).contiguous())


def rotary():
    """2 heads of 12, the first 8 rotated, position 1000; then the frequencies of every scaling, 16 dims."""
    x = values(8, 24).view(2, 12)
    inv = 1.0 / (10000.0 ** (torch.arange(0, 8, 2).float() / 8))
    angle = 1000.0 * inv
    c, s = angle.cos(), angle.sin()
    half, inter = x.clone(), x.clone()
    half[:, :4], half[:, 4:8] = x[:, :4] * c - x[:, 4:8] * s, x[:, 4:8] * c + x[:, :4] * s
    inter[:, 0:8:2], inter[:, 1:8:2] = x[:, 0:8:2] * c - x[:, 1:8:2] * s, x[:, 1:8:2] * c + x[:, 0:8:2] * s
    emit("rope_half", half)
    emit("rope_interleaved", inter)

    def freqs(name, seq_len=None, **parameters):
        parameters.setdefault("rope_theta", 10000.0)
        config = transformers.LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16,
                                          max_position_embeddings=4096, rope_parameters=dict(parameters))
        if "original_max_position_embeddings" in parameters:
            config.original_max_position_embeddings = parameters["original_max_position_embeddings"]
        inv_freq, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu", seq_len=seq_len)
        emit("freqs_" + name, list(inv_freq.numpy()) + [factor])

    emit("freqs_plain", list(1.0 / (500000.0 ** (torch.arange(0, 16, 2).float() / 16))) + [1.0])
    freqs("linear", rope_type="linear", factor=4.0)
    freqs("dynamic_short", 100, rope_type="dynamic", factor=2.0)
    freqs("dynamic_long", 10000, rope_type="dynamic", factor=2.0)
    freqs("yarn", rope_type="yarn", factor=4.0, original_max_position_embeddings=1024)
    freqs("yarn_mscale", rope_type="yarn", factor=40.0, original_max_position_embeddings=4096, mscale=0.707,
          mscale_all_dim=1.0, beta_fast=16, beta_slow=2, truncate=False)
    short, long = [1.0 + 0.1 * i for i in range(8)], [2.0 + 0.7 * i for i in range(8)]
    for name, length in ("long_short", 1024), ("long_long", 1025):
        freqs(name, length, rope_type="longrope", factor=4.0, original_max_position_embeddings=1024,
              short_factor=short, long_factor=long)
    freqs("bands", rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
          original_max_position_embeddings=8192)


def formats():
    """Blocks of hashed bytes (16-bit scales kept finite), 4 rows of 2 blocks: FNV-1a of all values and the first 8."""
    halves = {"Q8_0": [0], "Q4_0": [0], "Q5_0": [0], "Q4_1": [0, 2], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
              "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}
    print("static const struct { const char *type; unsigned long long hash; double first[8]; } ref_formats[] = {")
    for index, (name, offsets) in enumerate(halves.items()):
        kind = GGMLQuantizationType[name]
        block, size = GGML_QUANT_SIZES[kind]
        raw = (hashed(100 + index, 8 * size) & 255).astype(np.uint8).reshape(8, size)
        for o in offsets:
            raw[:, o + 1] &= 0xBF
        if name == "MXFP4":
            raw[:, 0] &= 0xBF
            raw[:2, 0] = 0, 1  # the subnormal scales
        out = quants.dequantize(raw.reshape(4, 2 * size), kind).ravel()
        fnv = 0xCBF29CE484222325
        for byte in out.astype("<f4").tobytes():
            fnv = (fnv ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        first = ", ".join(f"{v:.9g}" for v in out[:8])
        print(f'    {{ "{name}", 0x{fnv:016x}ULL, {{ {first} }} }},')
    print("};")
    x = values(9, 128)
    q = quants.quantize(x.numpy().reshape(2, 64), GGMLQuantizationType.Q8_0)
    emit("q8_0_of_floats", quants.dequantize(q, GGMLQuantizationType.Q8_0))


def main():
    versions = ", ".join(f"{name} {metadata.version(name).split('+')[0]}"
                         for name in ("torch", "transformers", "numpy", "gguf"))
    print(f"/* Made by tests/ref_kernels.py with {versions}. */")
    torch.set_num_threads(1)
    elementwise()
    attention()
    rotary()
    formats()


if __name__ == "__main__":
    sys.exit(main())
