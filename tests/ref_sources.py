#!/usr/bin/env python3
"""Writes tests/data/sources: small checkpoints in the forms that tools/packed.c and tools/torch_file.c read, and for
each a list of its tensors with a hash of their float32 values, dequantised here by torch from the published layouts.

    python tests/ref_sources.py [OUT]

torch.save writes the PyTorch files, so they are its own; the layouts of AWQ, GPTQ and compressed-tensors are packed
here number by number, not by their packages. tests/test_sources.c compares.
"""
import io
import json
import os
import shutil
import sys
import zipfile

import numpy as np
import safetensors
import torch
from safetensors.torch import save_file

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "data", "sources")
D, HEADS, KV, FF, VOCAB = 16, 2, 1, 24, 6
CONFIG = {"model_type": "llama", "hidden_size": D, "intermediate_size": FF, "num_hidden_layers": 1,
          "num_attention_heads": HEADS, "num_key_value_heads": KV, "vocab_size": VOCAB}
LAYER = "model.layers.0."
MATRICES = {LAYER + "self_attn.q_proj": (D, D), LAYER + "self_attn.k_proj": (D // 2, D),
            LAYER + "self_attn.v_proj": (D // 2, D), LAYER + "self_attn.o_proj": (D, D),
            LAYER + "mlp.gate_proj": (FF, D), LAYER + "mlp.up_proj": (FF, D), LAYER + "mlp.down_proj": (D, FF)}


def fnv(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = (h ^ b) * 0x100000001b3 & (1 << 64) - 1
    return h


def others(dtype=torch.float32):
    t = {"model.embed_tokens.weight": (VOCAB, D), "lm_head.weight": (VOCAB, D), "model.norm.weight": (D,),
         LAYER + "input_layernorm.weight": (D,), LAYER + "post_attention_layernorm.weight": (D,)}
    return {name: torch.randn(shape).to(dtype) for name, shape in t.items()}


def start(name, config=None):
    path = os.path.join(OUT, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump({**CONFIG, **({"quantization_config": config} if config else {})}, f)
    torch.manual_seed(sum(map(ord, name)))
    return path


def expect(path, tensors):
    with open(os.path.join(path, "expected.txt"), "w") as f:
        f.write(f"# ref_sources.py, torch {torch.__version__}, safetensors {safetensors.__version__}\n")
        for name, t in tensors.items():
            rows, cols = (1, t.shape[0]) if t.dim() == 1 else t.shape
            f.write(f"{name} {rows} {cols} {fnv(t.to(torch.float32).contiguous().numpy().tobytes()):016x}\n")


def packed(name, config, make):
    """make(out, in) -> (parts by their last name, the matrix in float32)"""
    path = start(name, config)
    stored, values = dict(others(torch.float16)), {}
    values.update(stored)
    for base, shape in MATRICES.items():
        parts, values[base + ".weight"] = make(*shape)
        stored.update({f"{base}.{k}": v.contiguous() for k, v in parts.items()})
    save_file(stored, os.path.join(path, "model.safetensors"))
    expect(path, values)


def pack(codes, bits, axis, order=None):
    """Words of 32 bits from codes along an axis; order[i] is which of the codes stands at place i."""
    per_word = 32 // bits
    codes = np.moveaxis(codes.astype(np.uint64), axis, -1)
    groups = codes.reshape(*codes.shape[:-1], -1, per_word)
    words = np.zeros(groups.shape[:-1], np.uint64)
    for place in range(per_word):
        words |= groups[..., order[place] if order else place] << np.uint64(bits * place)
    return torch.from_numpy(np.moveaxis(words.astype(np.uint32).view(np.int32), -1, axis).copy())


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def awq(rows, cols, group=8):
    q, z = np.random.randint(0, 16, (cols, rows)), np.random.randint(0, 16, (cols // group, rows))
    scales = (torch.rand(cols // group, rows) * 0.02 + 0.001).half()
    value = (torch.from_numpy(q - z.repeat(group, 0)).float() * scales.float().repeat_interleave(group, 0)).t()
    return {"qweight": pack(q, 4, 1, AWQ_ORDER), "qzeros": pack(z, 4, 1, AWQ_ORDER), "scales": scales}, value


def gptq(bits, v1, act_order):
    def make(rows, cols, group=8):
        top, ones = 1 << bits, sum(1 << bits * i for i in range(32 // bits))
        q, z = np.random.randint(0, top, (cols, rows)), np.random.randint(0, top, (cols // group, rows))
        scales = (torch.rand(cols // group, rows) * 0.02 + 0.001).half()
        g_idx = torch.arange(cols) // group
        if act_order:
            g_idx = g_idx[torch.randperm(cols)]
        zeros = pack(z, bits, 1)
        if v1:  # the first format keeps words less 1 in each place
            zeros = torch.from_numpy((zeros.numpy().view(np.uint32) - np.uint32(ones)).view(np.int32))
        value = (torch.from_numpy(q - z[g_idx.numpy()]).float() * scales.float()[g_idx]).t()
        parts = {"qweight": pack(q, bits, 0), "qzeros": zeros, "scales": scales}
        if act_order or v1:
            parts["g_idx"] = g_idx.int()
        return parts, value
    return make


def fp8(block, scale_name, scale_type=torch.float32):
    def make(rows, cols):
        codes = torch.from_numpy(np.random.randint(0, 256, (rows, cols)).astype(np.uint8)).view(torch.float8_e4m3fn)
        codes = torch.where(codes.float().isnan(), torch.zeros(()), codes.float()).to(torch.float8_e4m3fn)
        shape = {"row": (rows, 1), "all": ()}.get(block) if isinstance(block, str) else \
            (-(-rows // block[0]), -(-cols // block[1]))
        scales = (torch.rand(shape) * 0.01 + 1e-4).to(scale_type)
        wide = scales.float()
        if not isinstance(block, str):
            wide = wide.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:rows, :cols]
        return {"weight": codes, scale_name: scales}, codes.float() * wide
    return make


def int8(rows, cols):
    codes = torch.randint(-128, 128, (rows, cols), dtype=torch.int8)
    scales = (torch.rand(rows, 1) * 0.01).to(torch.bfloat16)
    return {"weight": codes, "weight_scale": scales}, codes.float() * scales.float()


def words(rows, cols, group=8):
    q = np.random.randint(0, 16, (rows, cols))
    scales = (torch.rand(rows, cols // group) * 0.02).to(torch.bfloat16)
    value = torch.from_numpy(q - 8).float() * scales.float().repeat_interleave(group, 1)
    return {"weight_packed": pack(q, 4, 1), "weight_scale": scales, "weight_shape": torch.tensor([rows, cols])}, value


def pytorch(name, dtype, write, file="pytorch_model.bin"):
    path = start(name)
    tensors = others(dtype)
    tensors.update({k + ".weight": torch.randn(s).to(dtype) for k, s in MATRICES.items()})
    write(tensors, os.path.join(path, file))
    expect(path, tensors)


def save_views(tensors, path):
    """Views of one storage, in an OrderedDict with attributes, as a module's state_dict is."""
    module = torch.nn.Linear(1, 1).state_dict()
    module.clear()
    whole, at = torch.cat([t.reshape(-1) for t in tensors.values()]), 0
    for k, t in tensors.items():
        module[k] = whole[at:at + t.numel()].view(t.shape)
        at += t.numel()
    torch.save(module, path)


def save_training(tensors, path):
    torch.save({"step": 3, "rate": 1e-3, "model": {k: torch.nn.Parameter(t) for k, t in tensors.items()},
                "list": [1, (2, None, True)]}, path)


def save_big_endian(tensors, path):
    """torch.save on a big-endian machine: numbers the other way round, and a member that says so."""
    plain = io.BytesIO()
    torch.save(tensors, plain)
    size = next(iter(tensors.values())).element_size()
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for member in old.namelist():
            data = old.read(member)
            if "/data/" in member:
                data = np.frombuffer(data, f"<u{size}").astype(f">u{size}").tobytes()
            new.writestr(zipfile.ZipInfo(member), b"big" if member.endswith("byteorder") else data)


def save_old(tensors, path):
    torch.save(tensors, path, _use_new_zipfile_serialization=False)


def save_shards(tensors, path):
    names = list(tensors)
    parts = {f"pytorch_model-0000{i + 1}-of-00002.bin": names[i::2] for i in range(2)}
    for file, own in parts.items():
        torch.save({k: tensors[k] for k in own}, os.path.join(os.path.dirname(path), file))
    with open(path, "w") as f:
        json.dump({"weight_map": {k: file for file, own in parts.items() for k in own}}, f)


def main():
    np.random.seed(0)
    compressed = {"quant_method": "compressed-tensors"}
    packed("awq", {"quant_method": "awq", "bits": 4, "group_size": 8, "version": "gemm", "zero_point": True}, awq)
    packed("gptq", {"quant_method": "gptq", "bits": 4, "group_size": 8, "desc_act": True}, gptq(4, True, True))
    packed("gptq_v2", {"quant_method": "gptq", "bits": 4, "group_size": 8, "checkpoint_format": "gptq_v2"},
           gptq(4, False, False))
    packed("gptq8", {"quant_method": "gptq", "bits": 8, "group_size": 8, "desc_act": False}, gptq(8, True, False))
    packed("fp8", {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [10, 8]},
           fp8((10, 8), "weight_scale_inv"))
    packed("fp8_rows", {**compressed, "format": "float-quantized"}, fp8("row", "weight_scale", torch.bfloat16))
    packed("fp8_all", {"quant_method": "fp8"}, fp8("all", "weight_scale"))
    packed("int8", {**compressed, "format": "int-quantized"}, int8)
    packed("words", {**compressed, "format": "pack-quantized"}, words)
    pytorch("torch", torch.bfloat16, torch.save)
    pytorch("torch_views", torch.float16, save_views)
    pytorch("torch_training", torch.float32, save_training, "model.pth")
    pytorch("torch_big", torch.float16, save_big_endian)
    pytorch("torch_old", torch.float16, save_old)
    pytorch("torch_shards", torch.float16, save_shards, "pytorch_model.bin.index.json")


main()
