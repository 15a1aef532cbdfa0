"""Reference logits of tiny random models, one per family and spelling, made with transformers, or with ref_models.py
where transformers lacks the family.

    python tests/ref_families.py [NAME...]            write tests/ref/families/NAME.json and .bin (default: all)
    python tests/ref_families.py --list               the names and what each is for
    python tests/ref_families.py --save DIR NAME      write the Hugging Face directory of NAME
    python tests/ref_families.py --check LOGITS NAME  compare a raw float32 file with the reference

The committed files were made by transformers 5.24.0, torch 2.15.0, safetensors 0.8.0 on CPU (one thread, float32, eager
attention). `make test` needs no Python: it rebuilds every directory from the JSON alone.

Weights are not stored. Element `index` (row-major) of the tensor `name` is, in 32-bit unsigned arithmetic,
    x = fnv1a32(name) ^ index * 0x9E3779B1
    x ^= x >> 16;  x *= 0x85EBCA6B;  x ^= x >> 13;  x *= 0xC2B2AE35;  x ^= x >> 16
    value = offset + ((x & 255) - 128) * 2^-e        exact in float32; then rounded to nearest even for BF16 and F16
    value = offset + ((x & 255) >> e)                U8: codes and scales of MXFP4

NAME.json, in this order
    name, about       about = what a wrong reader of this model would miss
    made_by
    config            the text of config.json
    generation_config (optional) the text of generation_config.json
    files             (optional) [[file name, number of tensors]...]: tensors are dealt to the files in their order, and
                      model.safetensors.index.json maps names to files; without it all are in model.safetensors
    tensors           [[name, [shape], dtype, e, offset]...]; a tied lm_head is absent, as save_pretrained leaves it
    ids, n_vocab
    logits            the file of the logits of all positions, float32 little-endian [n_ids][n_vocab]; two spellings of
                      one model share a file
    greedy            12 ids that follow, each the argmax (lowest id of equals) of ONE call of n_ids + 12 positions on
                      prompt and answer, so that a RoPE that depends on the length has one length throughout
    greedy_margin     best minus second best logit of each
    max_ref           max|logit|
    tolerance         1e-4 * max_ref, or 5 * diff32_64 * max_ref where float32 itself is worse than 2e-5
    diff32_64         max|float32 - float64| / max_ref of the reference itself

A model nobody can get wrong proves nothing. So every model must notice when attention or RoPE is switched off, and
when any of its `wrong` changes is made to its config: the script stops if the logits move by less than 2 %.

To add a model: a row in `models()`. Its name appears in the JSON, the test finds it by itself.
"""
import argparse
import copy
import json
import os
import re
import struct
import sys
import tempfile

import numpy as np
import safetensors.torch
import torch
import transformers
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM

from ref_models import model_for

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ref", "families")
N_GREEDY = 12
NOTICEABLE = 0.02       # of max|logit|: the least that a wrong reading must change
SAFE_MARGIN = 0.02      # between the best and the second logit of a greedy step: over ten times the tolerances
DROP = object()         # a key to leave out of a config

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


# ---------------------------------------------------------------------------------------------------------------------
# weights

def fnv1a(text):
    h = 0x811C9DC5
    for byte in text.encode():
        h = ((h ^ byte) * 0x01000193) & 0xFFFFFFFF
    return h


def mix(name, count):
    """uint32 [count]: the hash of (name, index)."""
    index = np.arange(count, dtype=np.uint32)
    x = np.uint32(fnv1a(name)) ^ (index * np.uint32(0x9E3779B1))
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def weight(name, shape, dtype, e, offset):
    count = int(np.prod(shape))
    if dtype == "U8":
        return torch.from_numpy((offset + ((mix(name, count) & 0xFF) >> e)).astype(np.uint8).reshape(shape))
    values = np.float32(offset) + (mix(name, count) & 0xFF).astype(np.float32) * np.float32(2.0 ** -e) \
        - np.float32(128 * 2.0 ** -e)
    return torch.from_numpy(values.reshape(shape)).to(DTYPES[dtype])


EXPERTS = re.compile(r"experts\.(gate_up|down)_proj$|(input|output)_linear\.weight$")    # [experts][..][..]
ROUTER = re.compile(r"(mlp|block_sparse_moe|moe_block)\.gate\.weight$|router(\.layer)?\.weight$")
NORM = re.compile(r"norm|\bln_")
EMBEDDING = re.compile(r"embed_|tok_embeddings|\bwte\b|\bwpe\b|word_embeddings|tokens_embed|positions_embed")


def scale_of(name, shape, model_type):
    """(e, offset): spread and centre of a tensor, so that no part of the model drowns another."""
    gemma = "gemma" in model_type
    if name.endswith(("weight", ".scale")) and NORM.search(name):
        if gemma and name.endswith("model.norm.weight"):
            return 8, 1                             # around 2 in Gemma, whose head is tied to a small embedding
        return 8, 0 if gemma or model_type == "nemotron" else 1     # +-0.5 around a factor of 1
    if name.endswith("act_fn.eps"):
        return 20, -0.001                           # just below 0
    if name.endswith("act_fn.beta"):
        return 10, 0.5
    if name.endswith("e_score_correction_bias"):
        return 9, 0                                 # +-0.25 beside scores between 0 and 1
    if len(shape) == 1 or name.endswith("_proj_bias"):
        return 7, 0                                 # biases, +-1
    if EMBEDDING.search(name):
        return (9, 0) if gemma else (7, 0)          # Gemma multiplies by sqrt(hidden) as well
    columns = shape[-1] if EXPERTS.search(name) else int(np.prod(shape[1:]))
    if ROUTER.search(name):
        return 7 + max(0, round(0.5 * np.log2(columns / 32.0))), 0  # twice as wide: experts must differ
    return 8 + max(0, round(0.5 * np.log2(columns / 32.0))), 0      # gain about 1.6 whatever the width


# ---------------------------------------------------------------------------------------------------------------------
# the models

class Model:
    """One row. `wrong`: changes of the config that must change the logits. `twin`: the model that this one is, spelled
    as save_pretrained spells it. `dtype`: one for all tensors. `shards`: split over two files. `edit`: changes the list
    of (name, shape) after transformers made it. `fused`: experts as transformers holds them in memory."""
    def __init__(self, name, about, config=None, n_ids=20, wrong=(), twin=None, dtype="F32", shards=False, edit=None,
                 generation=None, fused=False):
        self.fused = fused
        self.name, self.about, self.config, self.n_ids = name, about, config, n_ids
        self.wrong, self.twin, self.dtype, self.shards = list(wrong), twin, dtype, shards
        self.edit, self.generation = edit, generation


def merged(base, changes):
    out = copy.deepcopy(base)
    for key, value in changes.items():
        if value is DROP:
            out.pop(key, None)
        elif isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merged(out[key], value)
        else:
            out[key] = copy.deepcopy(value)
    return out


# Each family as its published checkpoints spell it (before transformers 5), with their harmless keys.

def llama(**changes):
    return merged({
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 96,
        "max_position_embeddings": 64, "mlp_bias": False, "model_type": "llama", "num_attention_heads": 4,
        "num_hidden_layers": 2, "num_key_value_heads": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": None, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32",
        "transformers_version": "4.43.0", "use_cache": True, "vocab_size": 64}, changes)


def mistral(**changes):
    return merged({
        "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 96,
        "max_position_embeddings": 64, "model_type": "mistral", "num_attention_heads": 4, "num_hidden_layers": 2,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None,
        "tie_word_embeddings": False, "torch_dtype": "float32", "transformers_version": "4.42.0", "use_cache": True,
        "vocab_size": 64}, changes)


def qwen2(**changes):
    return merged({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 3, "eos_token_id": 3,
        "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 96,
        "max_position_embeddings": 64, "max_window_layers": 1, "model_type": "qwen2", "num_attention_heads": 4,
        "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
        "sliding_window": 8, "tie_word_embeddings": True, "torch_dtype": "float32", "transformers_version": "4.40.1",
        "use_cache": True, "use_mrope": False, "use_sliding_window": False, "vocab_size": 64}, changes)


def qwen3(**changes):
    return merged({
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 3,
        "eos_token_id": 4, "head_dim": 32, "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02,
        "intermediate_size": 96, "max_position_embeddings": 64, "max_window_layers": 2, "model_type": "qwen3",
        "num_attention_heads": 2, "num_hidden_layers": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": False,
        "torch_dtype": "float32", "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
        "vocab_size": 64}, changes)


def gemma(**changes):
    return merged({
        "architectures": ["GemmaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 2,
        "eos_token_id": 1, "head_dim": 16, "hidden_act": "gelu", "hidden_size": 32, "initializer_range": 0.02,
        "intermediate_size": 96, "max_position_embeddings": 64, "model_type": "gemma", "num_attention_heads": 4,
        "num_hidden_layers": 2, "num_key_value_heads": 1, "pad_token_id": 0, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 10000.0, "torch_dtype": "float32", "transformers_version": "4.38.0.dev0",
        "use_cache": True, "vocab_size": 64}, changes)


def gemma2(**changes):
    return merged({
        "architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "attn_logit_softcapping": 5.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
        "final_logit_softcapping": 4.0, "head_dim": 16, "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 32, "initializer_range": 0.02,
        "intermediate_size": 96, "max_position_embeddings": 64, "model_type": "gemma2", "num_attention_heads": 4,
        "num_hidden_layers": 3, "num_key_value_heads": 2, "pad_token_id": 0, "query_pre_attn_scalar": 10,
        "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4, "torch_dtype": "float32",
        "transformers_version": "4.42.0.dev0", "use_cache": True, "vocab_size": 64}, changes)


def gemma3(**changes):
    return merged({
        "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "attn_logit_softcapping": None, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 5],
        "final_logit_softcapping": None, "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 32,
        "initializer_range": 0.02, "intermediate_size": 96, "max_position_embeddings": 64, "model_type": "gemma3_text",
        "num_attention_heads": 4, "num_hidden_layers": 7, "num_key_value_heads": 1, "pad_token_id": 0,
        "query_pre_attn_scalar": 8, "rms_norm_eps": 1e-06, "rope_local_base_freq": 100,
        "rope_scaling": {"factor": 4.0, "rope_type": "linear"}, "rope_theta": 10000, "sliding_window": 8,
        "sliding_window_pattern": 6, "torch_dtype": "float32", "transformers_version": "4.50.0.dev0",
        "use_cache": True, "vocab_size": 64}, changes)


def gemma3_multimodal():
    """The published 4B shape: text_config gives only what differs from the class defaults, vision beside it."""
    return {
        "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
        "eos_token_id": [1, 5], "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 4,
        "model_type": "gemma3",
        "text_config": {
            "head_dim": 16, "hidden_size": 32, "intermediate_size": 96, "model_type": "gemma3_text",
            "num_attention_heads": 4, "num_hidden_layers": 6, "num_key_value_heads": 2, "query_pre_attn_scalar": 8,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 8, "vocab_size": 64},
        "torch_dtype": "float32", "transformers_version": "4.50.0.dev0",
        "vision_config": {
            "hidden_size": 8, "image_size": 8, "intermediate_size": 8, "model_type": "siglip_vision_model",
            "num_attention_heads": 2, "num_hidden_layers": 1, "patch_size": 2, "vision_use_head": False}}


# Rope scaling: original contexts are short, so that the ids pass them; `wrong` reads the block as if it were not there.

EPS = {"rms_norm_eps": 1e-06}       # models that should notice have a large one
PLAIN = {"rope_scaling": None}
DYNAMIC = llama(max_position_embeddings=24, rope_scaling={"type": "dynamic", "factor": 4.0})
YARN = {"factor": 4.0, "original_max_position_embeddings": 16, "rope_type": "yarn"}
LLAMA3 = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 32,
          "rope_type": "llama3"}
LONGROPE = llama(max_position_embeddings=96, rope_scaling={
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.5, 6.0, 7.0, 8.0], "original_max_position_embeddings": 24,
    "rope_type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7]})


def roll_head(tensors):
    """A head in the file although the config says tied: the file's own matrix is the one that is used."""
    shape = next(shape for name, shape in tensors if name == "model.embed_tokens.weight")
    return sorted(tensors + [("lm_head.weight", shape)])


def rename_embedding(tensors):
    """Only a head in the file and the config says tied: it serves as embedding too."""
    return sorted((("lm_head.weight" if name == "model.embed_tokens.weight" else name), shape)
                  for name, shape in tensors)


def published_vision_names(tensors):
    """The hub's files say vision_tower.vision_model.*, save_pretrained of today leaves the second word out."""
    return sorted((name.replace("vision_tower.", "vision_tower.vision_model."), shape) for name, shape in tensors)


def llama_models():
    return [
        Model("llama_mha", "no num_key_value_heads, rope_theta or tie_word_embeddings: as many as heads, 1e4, untied",
              llama(num_key_value_heads=DROP, rope_theta=DROP, tie_word_embeddings=DROP, attention_bias=DROP,
                    mlp_bias=DROP, rms_norm_eps=1e-06),
              wrong=[{"rope_theta": 500000.0}]),
        Model("llama_mha_v5", "rope_parameters and dtype, as save_pretrained writes them", twin="llama_mha"),
        Model("llama_gqa", "6 query and 2 key heads of 12, hidden 24: head_dim is not hidden/heads, no width is 32n",
              llama(hidden_size=24, intermediate_size=40, num_attention_heads=6, head_dim=12, num_hidden_layers=3,
                    vocab_size=67, tie_word_embeddings=True, rms_norm_eps=0.05),
              wrong=[EPS], generation={"bos_token_id": 1, "eos_token_id": [2, 7]}),
        Model("llama_bias", "attention_bias on q, k, v and o; mlp_bias on all three",
              llama(attention_bias=True, mlp_bias=True)),
        Model("llama_rope_linear", "old spelling, key 'type'",
              llama(rope_scaling={"type": "linear", "factor": 4.0}), n_ids=24, wrong=[PLAIN]),
        Model("llama_rope_dynamic_short", "the run, greedy included, stays inside max_position_embeddings: plain RoPE",
              DYNAMIC, n_ids=10),
        Model("llama_rope_dynamic_long", "one base for all positions, from the length of the run",
              DYNAMIC, n_ids=32, wrong=[PLAIN]),
        Model("llama_rope_dynamic_cross", "inside for the logits, outside for prompt + greedy",
              DYNAMIC, n_ids=20),
        Model("llama_rope_yarn", "beta 32 and 1, attention factor from the factor",
              llama(rope_theta=100.0, rope_scaling=YARN), n_ids=24,
              wrong=[PLAIN, {"rope_scaling": {"attention_factor": 1.0}}]),
        Model("llama_rope_yarn_mscale", "attention factor from mscale and mscale_all_dim; both 'type' and 'rope_type'",
              llama(rope_theta=1000.0, rope_scaling=dict(YARN, type="yarn", mscale=2.0, mscale_all_dim=0.5,
                                                          beta_slow=0.25)),
              n_ids=24, wrong=[PLAIN, {"rope_scaling": {"mscale": 1.0, "mscale_all_dim": 1.0}},
                               {"rope_scaling": {"mscale": None}}]),
        Model("llama_rope_yarn_ramp", "attention_factor given, wide ramp, truncate false, key 'type'",
              llama(rope_scaling={"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16,
                                  "attention_factor": 1.5, "beta_fast": 2, "beta_slow": 0.02, "truncate": False}),
              n_ids=24, wrong=[PLAIN, {"rope_scaling": {"attention_factor": None}},
                               {"rope_scaling": {"truncate": True}}, {"rope_scaling": {"beta_fast": None}}]),
        Model("llama_rope_yarn_null", "null means absent: factor is max_position_embeddings / original",
              llama(rope_theta=100.0, rope_scaling=dict(YARN, factor=None, attention_factor=None, beta_fast=None,
                                                        beta_slow=None, mscale=None, mscale_all_dim=None)),
              n_ids=24, wrong=[PLAIN]),
        Model("llama_rope_yarn_no_original", "original_max_position_embeddings absent: max_position_embeddings",
              llama(rope_theta=100.0, max_position_embeddings=16, rope_scaling={"rope_type": "yarn", "factor": 4.0}),
              n_ids=24, wrong=[PLAIN, {"max_position_embeddings": 64}]),
        Model("llama_rope_llama3", "old spelling; one pair kept, one blended, the rest divided",
              llama(head_dim=32, rope_theta=500000.0, rope_scaling=LLAMA3), n_ids=40,
              wrong=[PLAIN, {"rope_scaling": {"low_freq_factor": 3.99}},
                     {"rope_scaling": merged(LLAMA3, {"rope_type": "linear"})}]),
        Model("llama_rope_llama3_v5", "the same inside rope_parameters", twin="llama_rope_llama3"),
        Model("llama_rope_longrope_short", "the whole run, greedy included, inside the original context: short_factor",
              LONGROPE, n_ids=10, wrong=[PLAIN]),
        Model("llama_rope_longrope_long", "long_factor for all positions", LONGROPE, n_ids=32, wrong=[PLAIN]),
        Model("llama_bf16", "BF16 tensors", llama(torch_dtype="bfloat16"), dtype="BF16"),
        Model("llama_f16", "F16 tensors", llama(torch_dtype="float16"), dtype="F16"),
        Model("llama_sharded", "two files and an index", llama(), shards=True),
        Model("llama_tied_with_head", "tied says the config, but the file has another lm_head: the file's is used",
              llama(tie_word_embeddings=True), edit=roll_head),
        Model("llama_only_head", "tied, and the one matrix is stored as lm_head",
              llama(tie_word_embeddings=True), edit=rename_embedding),
    ]


def mistral_qwen_models():
    return [
        Model("mistral_window", "every layer has a window of 8", mistral(sliding_window=8), n_ids=24,
              wrong=[{"sliding_window": None}, {"sliding_window": 9}, {"sliding_window": 7}]),
        Model("mistral_window_v5", "as save_pretrained writes it", twin="mistral_window"),
        Model("mistral_full", "sliding_window null", mistral(), wrong=[{"sliding_window": 8}]),
        Model("mistral_nemo", "head_dim 32 though hidden/heads is 12",
              mistral(head_dim=32, hidden_size=48, rms_norm_eps=0.05), wrong=[EPS]),
        Model("qwen2", "bias on q, k, v that no key announces; sliding_window present but off; tied", qwen2(),
              wrong=[{"use_sliding_window": True}]),
        Model("qwen2_v5", "as save_pretrained writes it (sliding_window null, layer_types)", twin="qwen2"),
        Model("qwen2_window", "use_sliding_window: layers from max_window_layers on slide; untied",
              qwen2(use_sliding_window=True, tie_word_embeddings=False, num_hidden_layers=3, rms_norm_eps=0.05),
              n_ids=24, wrong=[EPS, {"use_sliding_window": False}, {"max_window_layers": 0}, {"max_window_layers": 2}]),
        Model("qwen2_window_v5", "as save_pretrained writes it, with layer_types", twin="qwen2_window"),
        Model("qwen2_yarn", "YaRN as the Qwen2.5 cards recommend it (key 'type')",
              qwen2(rope_theta=100.0, rope_scaling={"factor": 4.0, "original_max_position_embeddings": 16,
                                                    "type": "yarn"}), n_ids=24, wrong=[PLAIN]),
        Model("qwen3", "q_norm and k_norm per head before RoPE; untied", qwen3(), wrong=[{"rope_theta": 10000}]),
        Model("qwen3_v5", "as save_pretrained writes it", twin="qwen3"),
        Model("qwen3_tied", "head_dim 32 though hidden/heads is 16; tied",
              qwen3(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, rms_norm_eps=0.05),
              wrong=[EPS]),
        Model("qwen3_bias", "attention_bias on q, k, v and o; head_dim absent is 128, not hidden/heads",
              qwen3(attention_bias=True, head_dim=DROP)),
    ]


def gemma_models():
    return [
        Model("gemma", "(1+w) norms, embeddings times sqrt(hidden), tied by default; gelu means its tanh form",
              gemma()),
        Model("gemma_v5", "as save_pretrained writes it", twin="gemma"),
        Model("gemma_d256", "head_dim absent is 256; hidden_activation beside hidden_act",
              gemma(head_dim=DROP, hidden_activation=None, hidden_act="gelu_pytorch_tanh", rms_norm_eps=0.05),
              wrong=[EPS]),
        Model("gemma2", "soft-caps 5 and 4, scale from query_pre_attn_scalar, window 4 on layers 0 and 2, four norms",
              gemma2(), n_ids=24,
              wrong=[{"attn_logit_softcapping": None}, {"final_logit_softcapping": None},
                     {"query_pre_attn_scalar": 16}, {"sliding_window": 5},
                     {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}]),
        Model("gemma2_v5", "as save_pretrained writes it, with layer_types", twin="gemma2"),
        Model("gemma2_no_caps", "null caps are off, not zero",
              gemma2(attn_logit_softcapping=None, final_logit_softcapping=None, rms_norm_eps=0.05), n_ids=24,
              wrong=[EPS, {"attn_logit_softcapping": 5.0}, {"final_logit_softcapping": 4.0}]),
        Model("gemma3", "five windows to one full layer, two thetas, linear scaling on the full layer, QK-norm",
              gemma3(), n_ids=32,
              wrong=[{"rope_scaling": None}, {"rope_local_base_freq": 10000}, {"rope_theta": 100},
                     {"sliding_window": 9}, {"sliding_window_pattern": 5}, {"query_pre_attn_scalar": 16}]),
        Model("gemma3_v5", "rope_parameters nested by layer type, layer_types", twin="gemma3"),
        Model("gemma3_pattern", "pattern 3, final soft-cap, thetas absent (1e6, 1e4); the attention cap is not applied",
              gemma3(num_hidden_layers=4, sliding_window_pattern=3, final_logit_softcapping=5.0,
                     attn_logit_softcapping=2.0, rope_scaling=None, rope_theta=DROP, rope_local_base_freq=DROP,
                     rms_norm_eps=0.05),
              n_ids=24, wrong=[EPS, {"final_logit_softcapping": None}, {"rope_theta": 10000.0},
                               {"sliding_window_pattern": 4}]),
        Model("gemma3_multimodal", "text_config inside, tensors under language_model, a vision tower to skip",
              gemma3_multimodal(), n_ids=24, edit=published_vision_names,
              wrong=[{"text_config": {"rope_scaling": {"factor": 1.0}}}, {"text_config": {"sliding_window": 9}}]),
        Model("gemma3_multimodal_v5", "as save_pretrained writes it, vision_tower without vision_model",
              twin="gemma3_multimodal"),
    ]


def small(model_type, **changes):
    """What most Llama-shaped configs share."""
    return merged({
        "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 32,
        "initializer_range": 0.02, "intermediate_size": 64, "max_position_embeddings": 64, "model_type": model_type,
        "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-05,
        "tie_word_embeddings": False, "torch_dtype": "float32", "use_cache": True, "vocab_size": 64}, changes)


# the LayerNorm families have no rms_norm_eps
def small_layer_norm(model_type, **changes):
    return small(model_type, rms_norm_eps=DROP, **changes)


PHI3 = small("phi3", num_attention_heads=2, num_key_value_heads=1, original_max_position_embeddings=24,
             max_position_embeddings=96, partial_rotary_factor=0.75, sliding_window=None, rope_theta=10000.0,
             rope_scaling={"long_factor": [1.0, 1.5, 2.0, 3.0, 4.5, 6.0], "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                           "type": "longrope"}, pad_token_id=0, attention_bias=False, embd_pdrop=0.0, resid_pdrop=0.0)
COHERE2 = small_layer_norm("cohere2", head_dim=8, layer_norm_eps=0.01, logit_scale=0.25, num_hidden_layers=4,
                           rope_theta=50000, rotary_pct=1.0, sliding_window=8, sliding_window_pattern=4,
                           tie_word_embeddings=DROP, order_of_interleaved_layers="local_attn_first",
                           position_embedding_type="rope_gptj", use_parallel_block=True)


def llama_shaped_models():
    return [
        Model("phi3", "q, k, v fused, gate and up fused; window on every layer",
              merged(PHI3, {"rope_scaling": None, "partial_rotary_factor": DROP, "sliding_window": 8,
                            "original_max_position_embeddings": 96}), n_ids=24, wrong=[{"sliding_window": None}]),
        Model("phi3_longrope_short", "partial RoPE, LongRoPE inside the original context",
              PHI3, n_ids=10, wrong=[PLAIN, {"partial_rotary_factor": 1.0, "rope_scaling": None}]),
        Model("phi3_longrope_long", "beyond it; the scaling of cos and sin is that of max / original", PHI3, n_ids=32,
              wrong=[PLAIN]),
        Model("granite", "four multipliers; attention_multiplier replaces the scale",
              small("granite", attention_bias=False, attention_multiplier=0.2, embedding_multiplier=3.0,
                    logits_scaling=2.0, mlp_bias=False, residual_multiplier=0.4, rope_theta=10000.0,
                    rope_scaling=None, tie_word_embeddings=True),
              wrong=[{"attention_multiplier": 0.3536}, {"embedding_multiplier": 1.0}, {"residual_multiplier": 1.0},
                     {"logits_scaling": 1.0}]),
        Model("helium", "interleaved RoPE", small("helium", head_dim=8, rms_norm_eps=1e-08, rope_theta=100000.0,
              attention_bias=False, mlp_bias=False)),
        Model("ernie4_5", "interleaved RoPE, use_bias on every linear map, tied by default, theta 5e5 by default",
              small("ernie4_5", head_dim=16, use_bias=True, tie_word_embeddings=DROP, rope_theta=DROP),
              wrong=[{"rope_theta": 100.0}]),
        Model("seed_oss", "attention_bias on q, k, v; attention_out_bias on o",
              small("seed_oss", head_dim=16, attention_bias=True, attention_out_bias=True, mlp_bias=False,
                    rope_theta=10000.0, residual_dropout=0.1)),
        Model("seed_oss_default", "q, k and v have biases if no key says so",
              small("seed_oss", head_dim=16)),
        Model("arcee", "down(relu(up)^2) without a gate",
              small("arcee", hidden_act="relu2", attention_bias=False, mlp_bias=True, rope_theta=10000.0)),
        Model("hunyuan_v1_dense", "the norms of q and k come after RoPE",
              small("hunyuan_v1_dense", head_dim=16, attention_bias=False, rope_theta=10000.0)),
        Model("glm", "interleaved RoPE over half a head by default, gate_up fused, bias on q, k, v and not on o",
              small("glm", pad_token_id=0, head_dim=16, attention_bias=True, rope_theta=10000.0),
              wrong=[{"partial_rotary_factor": 1.0}]),
        Model("glm4", "sandwich norms: post_attention_layernorm is the one before the feed-forward",
              small("glm4", pad_token_id=0, head_dim=16, attention_bias=False, partial_rotary_factor=0.5,
                    rope_theta=10000.0)),
        Model("olmo", "LayerNorms without tensors; q, k and v clamped before RoPE",
              small("olmo", clip_qkv=1.0, rms_norm_eps=DROP, rope_theta=10000.0, attention_bias=False),
              wrong=[{"clip_qkv": None}]),
        Model("olmo2", "norms on the outputs of the branches; q and k normed over their whole width",
              small("olmo2", attention_bias=False, rope_theta=10000.0, rms_norm_eps=0.02), wrong=[EPS]),
        Model("olmo3", "windows on three of four layers, YaRN on the full ones alone; old spelling",
              small("olmo3", num_hidden_layers=4, sliding_window=8, rope_theta=500000.0, rope_scaling=YARN,
                    attention_bias=False),
              n_ids=24, wrong=[PLAIN, {"sliding_window": 9}]),
        Model("olmo3_v5", "the same with rope_parameters by layer type", twin="olmo3"),
        Model("exaone4", "RoPE on window layers alone, norms on outputs, q and k normed per head",
              small("exaone4", num_hidden_layers=4, sliding_window=8, sliding_window_pattern=4, rope_theta=10000.0),
              n_ids=24, wrong=[{"sliding_window": 9}]),
        Model("exaone4_full", "no windows: RoPE everywhere",
              small("exaone4", sliding_window=None, sliding_window_pattern=None, rope_theta=10000.0,
                    layer_types=["full_attention", "full_attention"], tie_word_embeddings=True)),
        Model("smollm3", "every fourth layer has no RoPE; in no_rope_layers 1 means that there is",
              small("smollm3", pad_token_id=0, num_hidden_layers=4, rope_theta=5000000.0,
                    no_rope_layers=[1, 0, 1, 1],
                    no_rope_layer_interval=4, sliding_window=None, use_sliding_window=False, attention_bias=False,
                    mlp_bias=False, tie_word_embeddings=DROP),
              wrong=[{"no_rope_layers": [1, 1, 1, 1]}, {"no_rope_layers": [1, 1, 1, 0]}]),
        Model("smollm3_default", "the list absent: every fourth layer",
              small("smollm3", pad_token_id=0, num_hidden_layers=4, rope_theta=10000.0),
              wrong=[{"no_rope_layers": [1, 1, 1, 1]}]),
        Model("ministral", "a window by layer_types",
              small("ministral", head_dim=16, sliding_window=8, rope_theta=10000.0, num_hidden_layers=3,
                    layer_types=["full_attention", "sliding_attention", "full_attention"]),
              n_ids=24, wrong=[{"sliding_window": 9}]),
        Model("ministral3", "queries grow with the position, YaRN",
              small("ministral3", head_dim=16, sliding_window=None, rope_parameters={
                  "beta_fast": 32.0, "beta_slow": 1.0, "factor": 4.0, "llama_4_scaling_beta": 0.5, "mscale": 1.0,
                  "mscale_all_dim": 1.0, "original_max_position_embeddings": 8, "rope_theta": 100.0,
                  "rope_type": "yarn", "type": "yarn"}),
              n_ids=32, wrong=[{"rope_parameters": {"llama_4_scaling_beta": 0.0}}]),
        Model("cohere", "one bias-free LayerNorm for both branches, interleaved RoPE, logit_scale, tied by default",
              small_layer_norm("cohere", attention_bias=False, layer_norm_eps=0.05, logit_scale=0.25,
                               rope_theta=10000.0, tie_word_embeddings=DROP, use_qk_norm=False),
              wrong=[{"logit_scale": 0.0625}, {"layer_norm_eps": 1e-05}]),
        Model("cohere_qk_norm", "LayerNorm on q and k, each head with weights of its own; biases",
              small_layer_norm("cohere", attention_bias=True, layer_norm_eps=1e-05, logit_scale=0.25,
                               rope_theta=10000.0, tie_word_embeddings=True, use_qk_norm=True)),
        Model("cohere2", "windows with RoPE, every fourth layer full and without", COHERE2, n_ids=24,
              wrong=[{"sliding_window": 9}]),
        Model("cohere2_v5", "as save_pretrained writes it", twin="cohere2"),
        Model("nemotron", "LayerNorm with 1 + w and a bias, squared ReLU without a gate, partial RoPE",
              small_layer_norm("nemotron", hidden_act="relu2", head_dim=16, norm_eps=0.02, partial_rotary_factor=0.5,
                               rope_theta=10000.0, attention_bias=False, mlp_bias=False),
              wrong=[{"norm_eps": 1e-05}, {"partial_rotary_factor": 1.0}]),
        Model("stablelm", "LayerNorm with bias, a quarter of a head rotates by default, biases on q, k, v",
              small_layer_norm("stablelm", num_attention_heads=2, num_key_value_heads=1, layer_norm_eps=1e-05,
                               use_qkv_bias=True, use_parallel_residual=False, rope_theta=10000.0,
                               hidden_dropout=0.0),
              wrong=[{"partial_rotary_factor": 1.0}]),
        Model("stablelm_parallel", "both branches read input_layernorm",
              small_layer_norm("stablelm", num_attention_heads=2, num_key_value_heads=2, layer_norm_eps=1e-05,
                               use_qkv_bias=False, use_parallel_residual=True, partial_rotary_factor=0.5)),
        Model("stablelm_qk_norm", "a LayerNorm for each head of q and k, each a tensor of its own",
              small_layer_norm("stablelm", layer_norm_eps=1e-05, qk_layernorm=True, partial_rotary_factor=0.5)),
        Model("apertus", "an activation with parameters of each layer's own, no gate, llama3 scaling",
              small("apertus", pad_token_id=0, hidden_act="xielu", head_dim=DROP, post_norm=False, qk_norm=True,
                    rope_theta=10000.0, rope_scaling=LLAMA3)),
        Model("nanochat", "norms without weights, over the embedding too and over q and k after RoPE, which turns back",
              small("nanochat", pad_token_id=0, hidden_act="relu2", final_logit_softcapping=5.0),
              wrong=[{"final_logit_softcapping": 15.0}]),
        Model("vaultgemma", "Gemma 2 without the norms on the outputs",
              merged(gemma2(), {"model_type": "vaultgemma", "architectures": ["VaultGemmaForCausalLM"],
                                "hidden_act": DROP}), n_ids=24, wrong=[{"sliding_window": 5}]),
        Model("starcoder2", "biases everywhere, c_fc and c_proj, a window on every layer, tied by default",
              small_layer_norm("starcoder2", hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-05, sliding_window=8,
                               use_bias=True, rope_theta=10000.0, tie_word_embeddings=DROP, embedding_dropout=0.0,
                               residual_dropout=0.0, norm_type="layer_norm", mlp_type="default"),
              n_ids=24, wrong=[{"sliding_window": None}]),
        Model("jais2", "LayerNorm, biases everywhere, squared ReLU",
              small_layer_norm("jais2", hidden_act="relu2", layer_norm_eps=1e-05, attention_bias=True, mlp_bias=True,
                               head_dim=8)),
    ]


def gpt2(**changes):
    return merged({
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 1,
        "embd_pdrop": 0.1, "eos_token_id": 2, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2", "n_ctx": 64, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64,
        "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
        "summary_type": "cls_index", "summary_use_proj": True, "vocab_size": 64,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}}, changes)


def gptj(model_type, **changes):
    return gpt2(model_type=model_type, rotary_dim=4, tie_word_embeddings=False, **changes)


def gpt_neo(**changes):
    return merged({
        "activation_function": "gelu_new", "attention_dropout": 0, "attention_types": [[["global", "local"], 1]],
        "bos_token_id": 1, "embed_dropout": 0, "eos_token_id": 2, "hidden_size": 32, "intermediate_size": None,
        "layer_norm_epsilon": 1e-05, "max_position_embeddings": 64, "model_type": "gpt_neo", "num_heads": 4,
        "num_layers": 2, "resid_dropout": 0, "use_cache": True, "vocab_size": 64, "window_size": 8}, changes)


def gpt_neox(**changes):
    return merged({
        "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu", "hidden_size": 32, "initializer_range": 0.02,
        "intermediate_size": 64, "layer_norm_eps": 1e-05, "max_position_embeddings": 64, "model_type": "gpt_neox",
        "num_attention_heads": 2, "num_hidden_layers": 2, "rotary_emb_base": 10000, "rotary_pct": 0.25,
        "tie_word_embeddings": False, "torch_dtype": "float16", "use_cache": True, "use_parallel_residual": True,
        "vocab_size": 64}, changes)


def opt(**changes):
    return merged({
        "_remove_final_layer_norm": False, "activation_dropout": 0.0, "activation_function": "relu",
        "attention_dropout": 0.0, "bos_token_id": 2, "do_layer_norm_before": True, "dropout": 0.1, "eos_token_id": 2,
        "ffn_dim": 64, "hidden_size": 32, "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": 64,
        "model_type": "opt", "num_attention_heads": 4, "num_hidden_layers": 2, "pad_token_id": 1, "prefix": "</s>",
        "torch_dtype": "float16", "use_cache": True, "vocab_size": 64, "word_embed_proj_dim": 32}, changes)


def bloom(**changes):
    return merged({
        "apply_residual_connection_post_layernorm": False, "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_dropout": 0.0, "hidden_size": 32, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "bloom", "n_head": 4, "n_layer": 2, "offset_alibi": 100,
        "pad_token_id": 3, "pretraining_tp": 1, "seq_length": 64, "skip_bias_add": True, "use_cache": False,
        "vocab_size": 64}, changes)


def mpt(**changes):
    return merged({
        "attn_config": {"alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0,
                        "attn_type": "multihead_attention", "attn_uses_sequence_id": False, "clip_qkv": None,
                        "prefix_lm": False, "qk_ln": False, "softmax_scale": None},
        "d_model": 32, "emb_pdrop": 0, "embedding_fraction": 1.0, "expansion_ratio": 4, "init_device": "cpu",
        "learned_pos_emb": True, "logit_scale": None, "max_seq_len": 64, "model_type": "mpt", "n_heads": 4,
        "n_layers": 2, "no_bias": True, "norm_type": "low_precision_layernorm", "resid_pdrop": 0,
        "torch_dtype": "bfloat16", "use_cache": False, "verbose": 0, "vocab_size": 64}, changes)


def falcon(**changes):
    return merged({
        "alibi": False, "apply_residual_connection_post_layernorm": False, "attention_dropout": 0.0, "bias": False,
        "bos_token_id": 11, "eos_token_id": 11, "hidden_dropout": 0.0, "hidden_size": 32, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "falcon", "multi_query": True, "new_decoder_architecture": False,
        "num_attention_heads": 4, "num_hidden_layers": 2, "parallel_attn": True, "torch_dtype": "bfloat16",
        "use_cache": True, "vocab_size": 64}, changes)


def phi(**changes):
    return merged({
        "attention_dropout": 0.0, "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 2, "hidden_act": "gelu_new",
        "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 64, "layer_norm_eps": 1e-05,
        "max_position_embeddings": 64, "model_type": "phi", "num_attention_heads": 2, "num_hidden_layers": 2,
        "num_key_value_heads": None, "partial_rotary_factor": 0.5, "qk_layernorm": False, "resid_pdrop": 0.1,
        "rope_scaling": None, "rope_theta": 10000.0, "tie_word_embeddings": False, "use_cache": True,
        "vocab_size": 64}, changes)


def hub_names(tensors):
    """Old files of the hub have no "transformer." in front and hold the causal mask of every layer."""
    out = [(name.replace("transformer.", ""), shape) for name, shape in tensors]
    layers = sorted({name.split(".")[1] for name, _ in out if name.startswith("h.")})
    return sorted(out + [("h.%s.attn.bias" % layer, [1, 1, 8, 8]) for layer in layers])


def without_prefix(tensors):
    return sorted((name.replace("transformer.", ""), shape) for name, shape in tensors)


def gpt_shaped_models():
    return [
        Model("gpt2", "matrices stored by columns, q, k and v in one, learned positions, tied by default", gpt2()),
        Model("gpt1", "norms after the sums, none at the end; gelu means its tanh form",
              gpt2(model_type="openai-gpt", afn="gelu", activation_function=DROP, n_ctx=DROP)),
        Model("gpt2_hub", "no prefix, mask buffers", gpt2(n_layer=1), edit=hub_names),
        Model("gpt2_inverse", "scores divided by the layer's number; n_inner",
              gpt2(scale_attn_by_inverse_layer_idx=True, n_inner=48, n_layer=3),
              wrong=[{"scale_attn_by_inverse_layer_idx": False}]),
        Model("gpt_bigcode", "one key/value head; rows, not columns",
              gpt2(model_type="gpt_bigcode", activation_function="gelu_pytorch_tanh", multi_query=True,
                   attention_softmax_in_fp32=True, scale_attention_softmax_in_fp32=True, n_ctx=DROP)),
        Model("gpt_bigcode_mha", "q, k and v head by head",
              gpt2(model_type="gpt_bigcode", activation_function="gelu_pytorch_tanh", multi_query=False, n_ctx=DROP)),
        Model("gpt_neo", "scores not scaled, a window on every other layer", gpt_neo(), n_ids=24,
              wrong=[{"window_size": 9}]),
        Model("gptj", "parallel under one norm, interleaved RoPE over rotary_dim, a bias at the head",
              gptj("gptj", rotary=True), wrong=[{"rotary_dim": 8}]),
        Model("codegen", "q, v and k in four parts of one matrix", gptj("codegen"), wrong=[{"rotary_dim": 8}]),
        Model("gpt_neox", "parallel under two norms, q, k, v head by head, a quarter of a head rotates", gpt_neox(),
              wrong=[{"use_parallel_residual": False}, {"rotary_pct": 1.0}]),
        Model("gpt_neox_v5", "as save_pretrained writes it", twin="gpt_neox"),
        Model("gpt_neox_sequential", "sequential, no biases in attention",
              gpt_neox(use_parallel_residual=False, attention_bias=False, rotary_pct=0.5),
              wrong=[{"use_parallel_residual": True}]),
        Model("opt", "positions start at row 2, ReLU, norms before the branches", opt()),
        Model("opt_post", "norms after the sums, none at the end, a narrow embedding projected in and out",
              opt(do_layer_norm_before=False, word_embed_proj_dim=16)),
        Model("opt_no_affine", "norms without tensors, no biases, the final norm removed",
              opt(layer_norm_elementwise_affine=False, enable_bias=False, _remove_final_layer_norm=True)),
        Model("bloom", "ALiBi, a norm over the embedding, q, k, v head by head", bloom()),
        Model("bloom_hub", "no prefix; six heads, whose slopes are those of four and of eight",
              bloom(n_head=6, hidden_size=24, n_layer=1), edit=without_prefix),
        Model("mpt", "ALiBi, LayerNorm without bias, no biases", mpt()),
        Model("mpt_clip", "six heads: slopes 2, 4, 6, 8, 1, 3 of eight; clamped q, k, v; a softmax scale",
              mpt(n_heads=6, d_model=24, attn_config={"clip_qkv": 1.0, "softmax_scale": 0.7}),
              wrong=[{"attn_config": {"clip_qkv": None}}, {"attn_config": {"softmax_scale": None}}]),
        Model("falcon", "parallel under one norm, one key/value head, RoPE, no biases", falcon()),
        Model("falcon_sequential", "sequential, q, k and v head by head, biases",
              falcon(multi_query=False, parallel_attn=False, bias=True)),
        Model("falcon_alibi", "ALiBi in bfloat16 and under the scale; six heads; no RoPE",
              falcon(alibi=True, hidden_size=48, num_attention_heads=6, multi_query=False, parallel_attn=False,
                     bias=True, num_hidden_layers=1)),
        Model("falcon_new", "q heads, key and value group by group; a norm for each branch",
              falcon(new_decoder_architecture=True, num_kv_heads=2)),
        Model("falcon_new_one_norm", "the same with one norm",
              falcon(new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1)),
        Model("phi", "parallel under one norm, half a head rotates, a bias at the head", phi(),
              wrong=[{"partial_rotary_factor": 1.0}]),
        Model("phi_qk_norm", "LayerNorm with bias on q and k",
              phi(qk_layernorm=True, num_key_value_heads=1)),
        Model("persimmon", "q, k, v head by head, normed with bias before partial RoPE, squared ReLU",
              phi(model_type="persimmon", hidden_act="relu2", qk_layernorm=True, num_key_value_heads=DROP,
                  embd_pdrop=DROP, resid_pdrop=DROP, hidden_dropout=0.0)),
    ]


HUNYUAN_ALPHA = {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                 "type": "dynamic"}
CHAMELEON = small("chameleon", attention_bias=False, mlp_bias=True, model_parallel_size=1, swin_norm=False,
                  rope_theta=10000.0, rope_scaling=None, pad_token_id=0,
                  vocabulary_map=dict({"<s>": 1, "</s>": 2, "<image>": 3, "word": 9},
                                      **{"IMGIMG" + word + "Z": 10 + i for i, word in enumerate("ABCDE")}),
                  vq_config={"embed_dim": 8, "num_embeddings": 8, "base_channels": 32, "channel_multiplier": [1],
                             "num_res_blocks": 1, "resolution": 8, "latent_channels": 8, "in_channels": 3})


def baichuan(**changes):
    return merged(small("baichuan", num_key_value_heads=DROP, attention_dropout=DROP, pad_token_id=0,
                 architectures=["BaichuanForCausalLM"], _from_model_config=True, model_max_length=64,
                 auto_map={"AutoModelForCausalLM": "modeling_baichuan.BaichuanForCausalLM"}), changes)


def internlm(**changes):
    return merged(small("internlm", num_key_value_heads=DROP, attention_dropout=DROP, pad_token_id=0, bias=True,
                 rotary={"base": 10000, "type": "dynamic"}, max_position_embeddings=24), changes)


def internlm2(**changes):
    return merged(small("internlm2", bias=False, attn_implementation="eager", pad_token_id=2, rope_theta=1000000,
                 attention_dropout=DROP, rope_scaling={"type": "dynamic", "factor": 2.0}), changes)


def qwen1(**changes):
    return merged({
        "architectures": ["QWenLMHeadModel"], "attn_dropout_prob": 0.0, "bf16": False, "emb_dropout_prob": 0.0,
        "fp16": False, "fp32": False, "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 96,
        "kv_channels": 16, "layer_norm_epsilon": 1e-06, "max_position_embeddings": 96, "model_type": "qwen",
        "no_bias": True, "num_attention_heads": 2, "num_hidden_layers": 2, "onnx_safe": None, "rotary_emb_base": 10000,
        "rotary_pct": 1.0, "scale_attn_weights": True, "seq_length": 12, "tie_word_embeddings": False,
        "tokenizer_type": "QWenTokenizer", "torch_dtype": "bfloat16", "use_cache": True, "use_dynamic_ntk": True,
        "use_flash_attn": "auto", "use_logn_attn": True, "vocab_size": 64}, changes)


def sparse(pattern, **changes):
    return small_layer_norm("sparse_transformer", hidden_act="gelu", layer_norm_eps=1e-05, num_key_value_heads=DROP,
                            attention_dropout=DROP, tie_word_embeddings=True, sparse_attention=pattern, **changes)


OPENLM = {
    "architectures": ["OpenLMModel"], "model_type": "openlm", "params": None, "torch_dtype": "float32",
    "params_args_dict": {
        "apply_qk_norm": True, "attn_activation": None, "attn_name": "auto", "attn_seq_scalar": None, "dim": 32,
        "ffn_type": "swiglu_torch", "model": "open_lm_7b", "model_norm": "gain_only_lp_layer_norm",
        "moe_capacity_factor": 1.25, "moe_expert_model_parallelism": False, "moe_freq": 0, "moe_loss_weight": 0.1,
        "moe_num_experts": None, "moe_top_k": 2, "moe_weight_parallelism": False, "n_heads": 4, "n_layers": 2,
        "norm_eps": 1e-05, "positional_embedding_type": "rotary", "post_embed_norm": False, "qk_norm": True,
        "seq_len": 64, "vocab_size": 64, "weight_tying": False}}


def other_models():
    strided = {"pattern": "strided", "stride": 5, "layers": ["near", "far"]}
    fixed = {"pattern": "fixed", "stride": 6, "columns": 2, "groups": 2, "layers": ["heads", "both", "dense"]}
    return [
        Model("phi4_mini", "tied, three quarters of a head rotate, LongRoPE",
              merged(PHI3, {"tie_word_embeddings": True}), n_ids=32, wrong=[PLAIN]),
        Model("qwen3_odd", "hidden_size is no multiple of the number of heads: head_dim says all",
              qwen3(hidden_size=40, num_attention_heads=6, num_key_value_heads=3, head_dim=16)),
        Model("nemotron_narrow", "no head_dim: hidden / heads",
              small_layer_norm("nemotron", hidden_act="relu2", norm_eps=1e-05, partial_rotary_factor=0.5,
                               rope_theta=10000.0, attention_bias=False, mlp_bias=False)),
        Model("starcoder2_full", "no window",
              small_layer_norm("starcoder2", hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-05, sliding_window=None,
                               use_bias=True, rope_theta=10000.0, tie_word_embeddings=True)),
        Model("glm_edge", "head_dim is hidden / heads",
              small("glm", pad_token_id=0, head_dim=8, attention_bias=False, rope_theta=10000.0,
                    partial_rotary_factor=0.5)),
        Model("gpt3", "GPT-3's block with its patterns off is GPT-2's", gpt2(sparse_attention=None, n_layer=3)),
        Model("bloom_post_layernorm", "the residual is the normed value",
              bloom(apply_residual_connection_post_layernorm=True),
              wrong=[{"apply_residual_connection_post_layernorm": False}]),
        Model("hunyuan_alpha", "dynamic with alpha: theta is stretched once, whatever the length",
              small("hunyuan_v1_dense", head_dim=16, attention_bias=False, rope_theta=10000.0,
                    rope_scaling=HUNYUAN_ALPHA), n_ids=24, wrong=[PLAIN, {"rope_scaling": {"alpha": 10.0}}]),
        Model("chameleon", "LayerNorm of each head's own on q and k, tokens of images switched off", CHAMELEON),
        Model("chameleon_swin", "the same names, but the norms are on the outputs of the branches",
              merged(CHAMELEON, {"swin_norm": True, "mlp_bias": False}), wrong=[{"swin_norm": False}]),
        Model("palm", "parallel under one LayerNorm without bias, one key/value head, SwiGLU, tied, logit_scale",
              small_layer_norm("palm", num_key_value_heads=1, layer_norm_eps=1e-05, rope_theta=10000.0, logit_scale=0.5,
                               tie_word_embeddings=True, attention_dropout=DROP), wrong=[{"logit_scale": 1.0}]),
        Model("baichuan_7b", "W_pack, RoPE", baichuan(max_position_embeddings=64, tie_word_embeddings=False)),
        Model("baichuan_13b", "of its 40 layers GGUF knows that it has ALiBi",
              baichuan(max_position_embeddings=DROP, num_attention_heads=2, num_hidden_layers=40, hidden_size=16,
                       intermediate_size=24), n_ids=8),
        Model("baichuan2_13b", "no max_position_embeddings: ALiBi; the rows of the head have length 1",
              baichuan(z_loss_weight=0, max_position_embeddings=DROP, num_attention_heads=2),
              wrong=[{"z_loss_weight": DROP}, {"max_position_embeddings": 64}]),
        Model("internlm", "biases on q, k, v and o; dynamic NTK under `rotary`, inside the context", internlm(), n_ids=10),
        Model("internlm_long", "and past it", internlm(), n_ids=32, wrong=[{"rotary": {"type": "origin"}}]),
        Model("internlm2", "wqkv group by group, names of its own", internlm2(num_attention_heads=4),
              wrong=[{"rope_theta": 100.0}]),
        Model("internlm2_long", "dynamic NTK past the context",
              internlm2(max_position_embeddings=24, bias=True), n_ids=32, wrong=[{"rope_scaling": None}]),
        Model("qwen1", "inside seq_length: plain", qwen1(seq_length=64),
              wrong=[{"rotary_emb_base": 100}]),
        Model("qwen1_long", "past twice seq_length: theta in steps, queries by the logarithm of the position", qwen1(),
              n_ids=28, wrong=[{"use_dynamic_ntk": False}, {"use_logn_attn": False}]),
        Model("openlm", "LayerNorms without bias, over the whole width of q and k; in_proj and w12 fused", OPENLM),
        Model("sparse_strided", "strided, near and far by layer", sparse(strided), n_ids=24,
              wrong=[{"sparse_attention": {"stride": 6}}, {"sparse_attention": {"layers": ["far", "near"]}},
                     {"sparse_attention": {"layers": ["dense"]}}]),
        Model("sparse_strided_heads", "strided, near and far by head, the cache of a whole context",
              sparse(dict(strided, layers=["heads"])), n_ids=24, wrong=[{"sparse_attention": {"layers": ["both"]}}]),
        Model("sparse_fixed", "fixed: by head with two groups of columns, merged, dense in turn",
              sparse(fixed, num_hidden_layers=3), n_ids=24,
              wrong=[{"sparse_attention": {"columns": 3}}, {"sparse_attention": {"groups": 1}},
                     {"sparse_attention": {"layers": ["heads", "far", "dense"]}},
                     {"sparse_attention": {"layers": ["dense"]}}]),
        Model("sparse_fixed_near", "fixed, near in every layer: the cache keeps one block and the batch",
              sparse(dict(fixed, layers=["near"])), n_ids=24, wrong=[{"sparse_attention": {"pattern": "strided"}}]),
        Model("gpt3_banded", "GPT-3's alternating dense and banded layers, on GPT-2's names",
              gpt2(sparse_attention={"pattern": "strided", "stride": 6, "layers": ["dense", "near"]}), n_ids=24,
              wrong=[{"sparse_attention": {"stride": 7}}]),
    ]


# Mixtures of experts. Few ids go to each expert, so that every expert's rows and every group of them are used.

MIXTRAL = small("mixtral", num_local_experts=4, num_experts_per_tok=2, intermediate_size=32, rope_theta=10000.0,
                router_aux_loss_coef=0.02, output_router_logits=False, sliding_window=None)
QWEN2_MOE = small("qwen2_moe", num_experts=6, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=False,
                  shared_expert_intermediate_size=40, decoder_sparse_step=1, num_hidden_layers=3, mlp_only_layers=[1],
                  max_window_layers=3, sliding_window=8, use_sliding_window=False, rope_theta=10000.0,
                  rms_norm_eps=1e-06)
QWEN3_MOE = small("qwen3_moe", num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True,
                  decoder_sparse_step=2, head_dim=16, mlp_only_layers=[], attention_bias=False, rope_scaling=None,
                  rope_theta=10000.0, sliding_window=None, use_sliding_window=False, max_window_layers=2)
DBRX = {
    "architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "d_model": 32, "n_heads": 4, "n_layers": 2,
    "max_seq_len": 64, "vocab_size": 64, "resid_pdrop": 0.0, "emb_pdrop": 0.0, "initializer_range": 0.02,
    "attn_config": {"attn_pdrop": 0.0, "clip_qkv": 1.0, "kv_n_heads": 2, "model_type": "", "rope_theta": 10000.0},
    "ffn_config": {"ffn_hidden_size": 24, "moe_jitter_eps": 0.01, "moe_loss_weight": 0.05, "model_type": "",
                   "moe_num_experts": 5, "moe_top_k": 2, "moe_normalize_expert_weights": 1.0},
    "router_aux_loss_coef": 0.05, "tie_word_embeddings": False, "torch_dtype": "float32", "use_cache": True}
PHIMOE = small("phimoe", num_local_experts=6, num_experts_per_tok=2, intermediate_size=24, attention_bias=True,
               lm_head_bias=True, router_jitter_noise=0.3, input_jitter_noise=0.0, sliding_window=None,
               hidden_dropout=0.0, rope_theta=10000.0, original_max_position_embeddings=24,
               max_position_embeddings=96, rope_scaling={
                   "long_factor": [1.0, 2.0, 3.0, 4.0], "short_factor": [1.0, 1.2, 1.4, 1.6], "long_mscale": 1.3,
                   "short_mscale": 1.1, "type": "longrope", "original_max_position_embeddings": 24})
GPT_OSS = small("gpt_oss", num_local_experts=4, num_experts_per_tok=2, experts_per_token=2, head_dim=16,
                intermediate_size=32, swiglu_limit=0.5, sliding_window=8, attention_bias=True, num_attention_heads=4,
                num_hidden_layers=3, initial_context_length=16, rope_theta=10000.0, pad_token_id=3,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                rope_scaling={"beta_fast": 2.0, "beta_slow": 0.02, "factor": 8.0, "rope_type": "yarn",
                              "original_max_position_embeddings": 16, "truncate": False})
GLM4_MOE = small("glm4_moe", n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=3, n_group=4, topk_group=2,
                 moe_intermediate_size=16, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.5,
                 attention_bias=True, use_qk_norm=True, head_dim=16, partial_rotary_factor=0.5, rope_theta=10000.0,
                 num_nextn_predict_layers=1, num_hidden_layers=3, rope_scaling=None)
ERNIE_MOE = small("ernie4_5_moe", moe_num_experts=6, moe_k=2, moe_intermediate_size=24, moe_num_shared_experts=2,
                  moe_layer_start_index=1, moe_layer_end_index=-1, moe_layer_interval=1, moe_norm_min=1e-12,
                  use_bias=True, tie_word_embeddings=True, num_hidden_layers=3, rope_theta=500000.0,
                  moe_capacity=[64, 64, 64], moe_gate="topk", moe_use_aux_free=True)
EXAONE_MOE = small("exaone_moe", num_experts=8, num_experts_per_tok=2, num_shared_experts=1, moe_intermediate_size=16,
                   n_group=2, topk_group=1, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5,
                   head_dim=16, sliding_window=8, sliding_window_pattern="LLLG", num_hidden_layers=4, rope_theta=10000.0,
                   layer_types=["sliding_attention"] * 3 + ["full_attention"])
MINIMAX_M2 = small("minimax_m2", num_local_experts=6, num_experts_per_tok=2, intermediate_size=24, head_dim=16,
                   rotary_dim=8, rope_theta=10000.0, qk_norm_type="per_layer", use_qk_norm=True,
                   scoring_func="sigmoid", use_routing_bias=True, shared_intermediate_size=0, use_mtp=True,
                   num_mtp_modules=3, mtp_transformer_layers=1, attn_type_list=[1, 1])
LLAMA4 = small("llama4_text", num_local_experts=4, num_experts_per_tok=1, intermediate_size=24,
               intermediate_size_mlp=48, interleave_moe_layer_step=2, moe_layers=[1, 3], num_hidden_layers=4,
               head_dim=16, attention_chunk_size=8, no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4,
               use_qk_norm=True, attn_temperature_tuning=True, attn_scale=0.4, floor_scale=4, attention_bias=False,
               rope_theta=10000.0, rms_norm_eps=0.02, for_llm_compressor=False,
               rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                             "original_max_position_embeddings": 16, "rope_type": "llama3"})


GROK1 = small("grok-1", num_experts=4, num_experts_per_tok=2, intermediate_size=24, tie_word_embeddings=True,
              attn_output_multiplier=0.9, max_attn_value=2.0, embedding_multiplier_scale=3.0, hidden_act=DROP,
              output_multiplier_scale=0.57, router_aux_loss_coef=0.001, output_router_logits=False,
              attention_dropout=DROP)


def mxfp4_names(tensors):
    """Experts as gpt-oss is published: [experts][out][in / 32] blocks of 16 bytes, and their scales."""
    out = []
    for name, shape in tensors:
        if name.endswith(("gate_up_proj", "down_proj")):
            shape = [shape[0], shape[2], shape[1] // 32]
            out += [(name + "_blocks", shape + [16]), (name + "_scales", shape)]
        else:
            out.append((name, shape))
    return sorted(out)


def moe_models():
    return [
        Model("gpt_oss_mxfp4", "experts in MXFP4, gate and up row by row in turns", merged(GPT_OSS, {
              "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "quantization_config": {
                  "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                             "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}}),
              n_ids=24, edit=mxfp4_names),
        Model("grok1", "norms before and after each branch, capped scores with a scale of their own, weights as they are, "
              "GeGLU experts, multiplied embedding and logits", GROK1,
              wrong=[{"max_attn_value": 30.0}, {"attn_output_multiplier": 0.3536}, {"num_experts_per_tok": 1},
                     {"embedding_multiplier_scale": 1.0}]),
        Model("mixtral", "softmax over all experts, the two best weighed to the sum 1; w1 gate, w3 up, w2 down", MIXTRAL,
              wrong=[{"num_experts_per_tok": 1}]),
        Model("mixtral_window", "a window on every layer; layers as save_pretrained writes them; BF16",
              merged(MIXTRAL, {"sliding_window": 8}), n_ids=24, dtype="BF16", wrong=[{"sliding_window": 9}]),
        Model("mixtral_fused", "all experts in two tensors, as transformers holds them", MIXTRAL, fused=True),
        Model("qwen2_moe", "weights not normalised, a shared expert with a gate, a dense layer between", QWEN2_MOE,
              wrong=[{"norm_topk_prob": True}]),
        Model("qwen2_moe_v5", "as save_pretrained writes it", twin="qwen2_moe"),
        Model("qwen2_moe_window", "windows on even layers below max_window_layers",
              merged(QWEN2_MOE, {"use_sliding_window": True, "max_window_layers": 1}), n_ids=24,
              wrong=[{"use_sliding_window": False}, {"max_window_layers": 3}]),
        Model("qwen3_moe", "every second layer is a mixture; per-head norms of q and k", QWEN3_MOE,
              wrong=[{"norm_topk_prob": False}]),
        Model("qwen3_moe_v5", "num_local_experts", twin="qwen3_moe"),
        Model("olmoe", "q and k normed over their whole width, then clamped; weights not normalised",
              small("olmoe", num_experts=6, num_experts_per_tok=3, intermediate_size=24, norm_topk_prob=False,
                    clip_qkv=0.7, attention_bias=False, rope_theta=10000.0, num_key_value_heads=4),
              wrong=[{"norm_topk_prob": True}, {"clip_qkv": None}]),
        Model("dbrx", "LayerNorms without bias, clamp, stacked experts whose w2 stands by columns", DBRX,
              wrong=[{"ffn_config": {"moe_normalize_expert_weights": None}}, {"attn_config": {"clip_qkv": 8.0}}]),
        Model("dbrx_l2", "weights over their L2 norm",
              merged(DBRX, {"ffn_config": {"moe_normalize_expert_weights": 2.0}, "n_layers": 1}),
              wrong=[{"ffn_config": {"moe_normalize_expert_weights": 1.0}}]),
        Model("phimoe", "two rounds of arg-max; LayerNorms, attention and head with biases; short_mscale", PHIMOE,
              n_ids=10, wrong=[{"router_jitter_noise": 0.01}]),
        Model("phimoe_long", "long_mscale beyond the original context (equal factors: the reference keeps the short ones)",
              merged(PHIMOE, {"rope_scaling": {"long_factor": [1.0, 1.2, 1.4, 1.6]}, "router_jitter_noise": 0.01}),
              n_ids=32, wrong=[{"rope_scaling": {"long_mscale": 1.1}}]),
        Model("granitemoe", "softmax over the experts picked alone; four multipliers; gate rows above up rows",
              small("granitemoe", num_local_experts=6, num_experts_per_tok=3, intermediate_size=24, attention_bias=False,
                    attention_multiplier=0.2, embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.4,
                    rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=True),
              wrong=[{"attention_multiplier": 0.3536}, {"residual_multiplier": 1.0}]),
        Model("granitemoeshared", "and a shared expert of its own width",
              small("granitemoeshared", num_local_experts=4, num_experts_per_tok=2, intermediate_size=24,
                    shared_intermediate_size=40, attention_bias=False, attention_multiplier=0.2,
                    embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.4, rope_theta=10000.0,
                    rope_scaling=None, tie_word_embeddings=True)),
        Model("gpt_oss", "sinks, clamped gate and up, up + 1, biases everywhere, gate and up in turns, YaRN not truncated",
              GPT_OSS, n_ids=24, wrong=[{"swiglu_limit": 7.0}, {"sliding_window": 9},
                                        {"rope_scaling": {"truncate": True}}]),
        Model("gpt_oss_v5", "as save_pretrained writes it", twin="gpt_oss"),
        Model("glm4_moe", "sigmoid, a bias for the selection alone, two of four groups by their two largest, two shared "
              "experts as one, the first layer dense, half a head rotates", GLM4_MOE, n_ids=24,
              wrong=[{"n_group": 1, "topk_group": 1}, {"topk_group": 3}, {"norm_topk_prob": False},
                     {"routed_scaling_factor": 1.0}]),
        Model("glm4_moe_v5", "as save_pretrained writes it", twin="glm4_moe"),
        Model("ernie4_5_moe", "a bias on probabilities, interleaved RoPE, biases at the head too, which is tied", ERNIE_MOE),
        Model("ernie4_5_moe_layers", "every second layer from 1 to 2, a floor under the sum of weights",
              merged(ERNIE_MOE, {"moe_layer_interval": 2, "moe_layer_end_index": 2, "num_hidden_layers": 4,
                                 "moe_norm_min": 0.9, "use_bias": False}), wrong=[{"moe_norm_min": 1e-12}]),
        Model("exaone_moe", "one of two groups; RoPE in window layers alone; its bias without gate in the name", EXAONE_MOE,
              n_ids=24, wrong=[{"sliding_window": 9}, {"routed_scaling_factor": 1.0}]),
        Model("exaone_moe_v5", "mlp_layer_types and layer_types", twin="exaone_moe"),
        Model("minimax_m2", "sigmoid with a bias for the selection, whole-width norms of q and k, half a head rotates",
              MINIMAX_M2),
        Model("minimax_m2_v5", "as save_pretrained writes it", twin="minimax_m2"),
        Model("llama4", "chunks of 8, RoPE layers normed after it without weights, a NoPE layer with temperature, the "
              "weight on the input, dense layers between", LLAMA4, n_ids=28,
              wrong=[{"attention_chunk_size": 9}, {"attn_scale": 0.1}, {"floor_scale": 12}, {"use_qk_norm": False},
                     {"no_rope_layers": [1, 1, 1, 1]}]),
        Model("llama4_v5", "layer_types", twin="llama4"),
        Model("llama4_top2", "two experts a token, lists absent, no tuning",
              merged(LLAMA4, {"num_experts_per_tok": 2, "moe_layers": DROP, "no_rope_layers": [],
                              "interleave_moe_layer_step": 1, "attn_temperature_tuning": False,
                              "use_qk_norm": False, "num_hidden_layers": 4}), n_ids=20),
        Model("llama4_multimodal", "text_config inside, tensors under language_model, a vision tower to skip",
              {"architectures": ["Llama4ForConditionalGeneration"], "boi_token_index": 61, "eoi_token_index": 62,
               "image_token_index": 63, "model_type": "llama4", "tie_word_embeddings": False, "torch_dtype": "float32",
               "text_config": merged(LLAMA4, {"num_hidden_layers": 2, "moe_layers": [1], "no_rope_layers": [1, 0]}),
               "vision_config": {"hidden_size": 16, "image_size": 8, "intermediate_size": 64, "num_attention_heads": 2,
                                 "model_type": "llama4_vision_model", "num_channels": 3, "num_hidden_layers": 1,
                                 "patch_size": 4, "pixel_shuffle_ratio": 0.5, "projector_input_dim": 16,
                                 "projector_output_dim": 16, "vision_output_dim": 16, "rope_theta": 10000}},
              n_ids=20),
    ]


# What readers of these families get wrong, and the models that notice: a norm in the wrong place, a bias too many or a
# switch taken as on changes their logits far beyond the tolerance (each `wrong` is proved to).
TRAPS = {
    "one name, several places of a norm (post_attention_layernorm)":
        "llama_mha gemma2 gemma3 glm4 olmo2 exaone4 chameleon chameleon_swin vaultgemma",
    "norms of q and k: shared by heads, a row a head, a tensor a head, the whole width; before RoPE or after":
        "qwen3 gemma3 exaone4 apertus hunyuan_v1_dense phi_qk_norm persimmon cohere_qk_norm chameleon stablelm_qk_norm "
        "olmo2 openlm nanochat",
    "head_dim is not hidden / heads, and hidden need not be a multiple of heads":
        "mistral_nemo llama_gqa qwen3_tied qwen3_bias qwen3_odd gemma_d256",
    "switches that are off, and keys whose absence is not false":
        "qwen2 qwen2_window gemma3_pattern gemma2_no_caps phi3 gpt_neox gpt3 seed_oss_default",
    "biases that no key announces, and those that a key does not mean":
        "qwen2 glm glm_edge llama_bias qwen3_bias seed_oss stablelm",
    "more rows than the tokenizer has pieces":    # and test tokenizer_rows
        "llama_gqa gemma3_multimodal",
    "scales that replace or divide":
        "granite cohere gemma2 gpt_neo gpt2_inverse mpt_clip palm",
    "no final norm in post-norm models": "opt_post gpt1 opt_no_affine",
    "types, shards, missing prefixes, extra buffers":
        "llama_bf16 llama_f16 llama_sharded gpt2_hub bloom_hub gemma3_multimodal llama_only_head",
    "RoPE that depends on the length of the call, on both sides":
        "llama_rope_dynamic_short llama_rope_dynamic_long llama_rope_dynamic_cross llama_rope_longrope_short "
        "llama_rope_longrope_long phi3_longrope_short phi3_longrope_long internlm internlm_long internlm2_long qwen1 "
        "qwen1_long",
}


def models():
    rows = (llama_models() + mistral_qwen_models() + gemma_models() + llama_shaped_models() + gpt_shaped_models() +
            other_models() + moe_models())
    table = {row.name: row for row in rows}
    missing = [name for names in TRAPS.values() for name in names.split() if name not in table]
    assert not missing, "TRAPS names models that are not there: %s" % missing
    return table


# ---------------------------------------------------------------------------------------------------------------------
# the directory

def write_json(path, value):
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def read_json(directory, name):
    """The value in the file, None without a file."""
    path = os.path.join(directory, name)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def auto_class(config):
    """Chameleon and Llama 4 read images too, so they stand in another list."""
    both = config["model_type"] in ("chameleon", "llama4")
    return transformers.AutoModelForImageTextToText if both else AutoModelForCausalLM


def saved_form(config, shards, fused=False):
    """(config, generation_config, [[file name, [(name, shape)...]]...]) as save_pretrained writes a new model."""
    if model_for(config):
        state = model_for(config)(config).state_dict()
        return config, None, [["model.safetensors", [(name, list(state[name].shape)) for name in sorted(state)]]]
    with tempfile.TemporaryDirectory() as tmp:
        write_json(os.path.join(tmp, "config.json"), config)
        model = auto_class(config).from_config(AutoConfig.from_pretrained(tmp), dtype=torch.float32)
        nbytes = sum(p.numel() * 4 for p in model.parameters())
        model.save_pretrained(tmp, max_shard_size=nbytes * 6 // 10 if shards else "1GB", save_original_format=not fused)
        files = []
        for file in sorted(f for f in os.listdir(tmp) if f.endswith(".safetensors")):
            with open(os.path.join(tmp, file), "rb") as f:
                header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            files.append([file, [(name, info["shape"]) for name, info in header.items() if name != "__metadata__"]])
        return read_json(tmp, "config.json"), read_json(tmp, "generation_config.json"), files


def dtype_of(name, dtype, shape, model_type):
    """dtype, e, offset; scales of MXFP4 are exponents around 2^-7."""
    if name.endswith("_blocks"):
        return "U8", 0, 0
    if name.endswith("_scales"):
        return "U8", 6, 119
    return (dtype, *scale_of(name, shape, model_type))


def describe(model, table):
    """The part of NAME.json that says how to build the directory."""
    base = table[model.twin] if model.twin else model
    config, generation = base.config, base.generation
    saved, saved_generation, files = saved_form(config, base.shards, model.fused)
    if model.twin:
        config, generation = saved, saved_generation
    if model.edit:
        files = [[file, model.edit(tensors)] for file, tensors in files]
    out = {"name": model.name, "about": model.about,
           "made_by": "tests/ref_families.py with transformers %s, torch %s" % (
               transformers.__version__, torch.__version__.split("+")[0]),
           "config": config}
    if generation:
        out["generation_config"] = generation
    if base.shards:
        out["files"] = [[file, len(tensors)] for file, tensors in files]
    out["tensors"] = [[name, shape, *(dtype_of(name, base.dtype, shape, config["model_type"]))]
                      for _, tensors in files for name, shape in tensors]
    return out


def write_directory(path, ref):
    os.makedirs(path, exist_ok=True)
    write_json(os.path.join(path, "config.json"), ref["config"])
    if "generation_config" in ref:
        write_json(os.path.join(path, "generation_config.json"), ref["generation_config"])
    files, at, where, total = ref.get("files", [["model.safetensors", len(ref["tensors"])]]), 0, {}, 0
    for file, count in files:
        tensors = {row[0]: weight(*row) for row in ref["tensors"][at:at + count]}
        safetensors.torch.save_file(tensors, os.path.join(path, file), metadata={"format": "pt"})
        where.update((name, file) for name in tensors)
        total += sum(t.numel() * t.element_size() for t in tensors.values())
        at += count
    if "files" in ref:
        write_json(os.path.join(path, "model.safetensors.index.json"),
                   {"metadata": {"total_size": total}, "weight_map": where})


# ---------------------------------------------------------------------------------------------------------------------
# running it

def dequantized(path):
    """The directory with MXFP4 as float32: pairs of codes, the low half first, times 2^(scale - 127)."""
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    tensors = safetensors.torch.load_file(os.path.join(path, "model.safetensors"))
    for name in [n for n in tensors if n.endswith("_blocks")]:
        blocks, scales = tensors.pop(name).int(), tensors.pop(name.replace("_blocks", "_scales")).float()
        values = table[torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2).long()]
        values = values * torch.exp2(scales - 127)[..., None]
        tensors[name.replace("_blocks", "")] = values.flatten(-2).transpose(1, 2).contiguous()
    plain = os.path.join(path, "plain")
    os.makedirs(plain, exist_ok=True)
    write_json(os.path.join(plain, "config.json"), merged(read_json(path, "config.json"), {"quantization_config": DROP}))
    safetensors.torch.save_file(tensors, os.path.join(plain, "model.safetensors"), metadata={"format": "pt"})
    return plain


def load(path):
    """Float32, eager, strictly: every parameter of the model from the file, and nothing left over. Falcon's ALiBi is run
    by SDPA, as its authors do: the eager code of transformers adds the bias twice."""
    config = read_json(path, "config.json")
    if (config.get("quantization_config") or {}).get("quant_method") == "mxfp4":
        return load(dequantized(path))
    if model_for(config):
        model = model_for(config)(config)
        model.load_state_dict(safetensors.torch.load_file(os.path.join(path, "model.safetensors")))
        return model.float().eval()
    attention = "sdpa" if config["model_type"] == "falcon" and config["alibi"] else "eager"
    model, info = auto_class(config).from_pretrained(path, dtype=torch.float32, attn_implementation=attention,
                                                   experts_implementation="eager", output_loading_info=True)
    bad = {kind: keys for kind, keys in info.items() if keys}
    if bad:
        raise SystemExit("%s does not load: %s" % (path, bad))
    if config["model_type"] == "llama4":
        model = model.language_model    # the whole asks for images
    return model.eval()


def run(model, ids):
    """logits [n_ids][n_vocab] of one call on the whole sequence."""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy().copy()


class Widen(TorchFunctionMode):
    """Float64 wherever the model asks for float32 (norms, RoPE, softmax do)."""
    def __torch_function__(self, func, types, args=(), kwargs=None):
        wide = lambda x: torch.float64 if x is torch.float32 else x
        func = torch.Tensor.double if func is torch.Tensor.float else func
        return func(*map(wide, args), **{key: wide(x) for key, x in (kwargs or {}).items()})


def run64(path, ids):
    model = load(path).double()
    torch.set_default_dtype(torch.float64)
    try:
        with Widen():
            return run(model, ids)
    finally:
        torch.set_default_dtype(torch.float32)


ATTENTION_OUT = re.compile(r"\.o_proj$|attention\.wo$|attn\.c_proj$|out_proj$|att\w*\.dense$|self_attn\.dense$")
POSITIONS = re.compile(r"\bwpe$|embed_positions$|positions_embed$")


def run_without(path, ids, part):
    """The logits with attention silenced ("attention") or without RoPE or position embedding ("positions"); None where
    no module does that alone (RoPE inside attention, ALiBi)."""
    model, hooks = load(path), 0
    rope = not getattr(model.config, "alibi", False)    # Falcon builds a RotaryEmbedding in any case
    for name, module in model.named_modules():
        if part == "attention" and ATTENTION_OUT.search(name) or part == "positions" and POSITIONS.search(name):
            module.register_forward_hook(lambda m, args, out: torch.zeros_like(out))
            hooks += 1
        if part == "positions" and rope and type(module).__name__.endswith("RotaryEmbedding"):
            module.register_forward_hook(lambda m, args, out: torch.ones_like(out) if torch.is_tensor(out) else
                                         (torch.ones_like(out[0]), torch.zeros_like(out[1])))
            hooks += 1
    return run(model, ids) if hooks else None


def greedy(model, ids):
    """(answer, margins): teacher-forced, always one call of the full length; no position sees what follows it."""
    sequence, margins = ids + [0] * N_GREEDY, []
    for i in range(len(ids), len(sequence)):
        row = run(model, sequence)[i - 1]
        best, second = np.sort(row)[::-1][:2]
        sequence[i] = int(np.argmax(row))
        margins.append(float(best - second))
    return sequence[len(ids):], margins


def choose_ids(model, name, n_ids, n_vocab):
    """(ids, answer, margins): the first hashed prompt whose answer is worth comparing, else the liveliest of them.
    Worth: at least 6 different ids (tiny models like to repeat themselves), none nearly tied."""
    best = None
    for salt in range(64):
        ids = [int(x) for x in mix("%s.ids.%d" % (name, salt), n_ids) % n_vocab]
        answer, margins = greedy(model, ids)
        if min(margins) < SAFE_MARGIN:
            continue
        if best is None or len(set(answer)) > len(set(best[1])):
            best = ids, answer, margins
        if len(set(answer)) >= 6:
            break
    return best


def largest(x):
    """max|x| of what is not switched off (Chameleon's image tokens are as low as float32 goes)."""
    return float(np.abs(x[np.abs(x) < 1e30]).max())


def prove(path, ref, logits, wrong, ids):
    """Stops unless the model notices every fault in question; returns what each changed, relative to max|logit|."""
    changes = {part: run_without(path, ids, part) for part in ("attention", "positions")}
    if changes["attention"] is None:
        raise SystemExit("%s: no module is the output of attention" % ref["name"])
    for patch in wrong:
        write_json(os.path.join(path, "config.json"), merged(ref["config"], patch))
        changes[json.dumps(patch, default=lambda _: "DROP")] = run(load(path), ids)
    write_json(os.path.join(path, "config.json"), ref["config"])
    changes = {name: largest(other - logits) / largest(logits) for name, other in changes.items() if other is not None}
    for name, change in changes.items():
        if change < NOTICEABLE:
            raise SystemExit("%s would not notice %s (%.4f)" % (ref["name"], name, change))
    return changes


def make(model, table):
    """(description, logits, changes) of one model."""
    ref = describe(model, table)
    base = table[model.twin] if model.twin else model
    with tempfile.TemporaryDirectory() as path:
        write_directory(path, ref)
        hf = load(path)
        n_vocab = hf.config.get_text_config().vocab_size
        ids, answer, margins = choose_ids(hf, base.name, base.n_ids, n_vocab)
        logits = run(load(path), ids)       # a fresh model: dynamic RoPE remembers the longest call it has seen
        peak = largest(logits)
        wide = run64(path, ids)
        diff = largest(np.where(np.abs(logits) < 1e30, wide - logits, 0)) / peak
        changes = prove(path, ref, logits, model.wrong, ids)
    ref.update(ids=ids, n_vocab=n_vocab, logits=base.name + ".bin", greedy=answer,
               greedy_margin=[float("%.4g" % m) for m in margins], max_ref=float("%.6g" % peak),
               tolerance=float("%.4g" % (peak * (5 * diff if diff > 2e-5 else 1e-4))), diff32_64=float("%.3g" % diff))
    if diff > 5e-5:
        raise SystemExit("%s: float32 is off by %g: a router that cannot decide?" % (model.name, diff))
    if min(margins) < 10 * ref["tolerance"]:
        raise SystemExit("%s: greedy margin %g is close to the tolerance" % (model.name, min(margins)))
    return ref, logits.astype("<f4"), changes


def dump(path, ref):
    """One line a key, one a tensor, so that a difference can be read."""
    compact = lambda x: json.dumps(x, separators=(",", ":"))
    lines = []
    for key, value in ref.items():
        if key == "tensors":
            text = "[\n" + ",\n".join(map(compact, value)) + "\n]"
        elif key == "config":
            text = "{\n" + ",\n".join("%s: %s" % (json.dumps(k), compact(v)) for k, v in value.items()) + "\n}"
        else:
            text = compact(value)
        lines.append("%s: %s" % (json.dumps(key), text))
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")


def write_reference(model, table):
    ref, logits, changes = make(model, table)
    dump(os.path.join(OUT, model.name + ".json"), ref)
    path = os.path.join(OUT, ref["logits"])
    if not model.twin:
        logits.tofile(path)
    elif not np.array_equal(np.fromfile(path, dtype="<f4"), logits.reshape(-1)):
        raise SystemExit("%s does not give the logits of %s" % (model.name, model.twin))
    print("%-28s ids %2d  max %6.2f  tolerance %.2e  f32-f64 %.1e  margin %.3f  distinct %2d  %s" % (
        model.name, len(ref["ids"]), ref["max_ref"], ref["tolerance"], ref["diff32_64"], min(ref["greedy_margin"]),
        len(set(ref["greedy"])), " ".join("%s:%.2f" % item for item in changes.items())))


def check(file, name):
    """Exit status 0 if the logits in `file` agree with the reference of `name`."""
    ref = read_json(OUT, name + ".json")
    want = np.fromfile(os.path.join(OUT, ref["logits"]), dtype="<f4").reshape(-1, ref["n_vocab"])
    got = np.fromfile(file, dtype="<f4")
    if got.size != want.size:
        print("%s: %d values, expected %d" % (file, got.size, want.size))
        return 1
    diff = np.abs(got.reshape(want.shape).astype(np.float64) - want)
    diff[np.isnan(diff)] = np.inf
    at = np.unravel_index(np.argmax(diff), diff.shape)
    good = diff.max() <= ref["tolerance"]
    print("%s %s: max|a-b| %.3e at position %d, id %d; tolerance %.3e" % (
        "ok" if good else "FAILED", name, diff.max(), *at, ref["tolerance"]))
    return 0 if good else 1


def main():
    parser = argparse.ArgumentParser(description="reference logits of tiny models of every family")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="show the names")
    parser.add_argument("--save", metavar="DIR", help="write the Hugging Face directory of NAME")
    parser.add_argument("--check", metavar="LOGITS", help="compare a raw float32 file with the reference of NAME")
    args = parser.parse_args()
    table = models()
    unknown = [name for name in args.names if name not in table]
    if unknown or ((args.save or args.check) and len(args.names) != 1):
        parser.error("no model named %s" % unknown[0] if unknown else "--save and --check take one NAME")
    if args.list:
        for model in table.values():
            print("%-28s %s" % (model.name, model.about))
    elif args.save:
        write_directory(args.save, describe(table[args.names[0]], table))
    elif args.check:
        return check(args.check, args.names[0])
    else:
        os.makedirs(OUT, exist_ok=True)
        for name in args.names or table:
            write_reference(table[name], table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
