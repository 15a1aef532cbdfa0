"""References of GGUF files of mixtures of experts, and of what is lost on the way from a directory (Chameleon's norms
of each head's own, which tokens are images): tests/ref/gguf/moe_*.json, chameleon*.json and .bin.

    python tests/ref_gguf_moe.py [NAME...]          write them (default: all)
    python tests/ref_gguf_moe.py --write DIR NAME   the GGUF file itself, by gguf-py

The committed files were made by transformers 5.24.0, torch 2.15.0. The tensors of a file have hashed weights under their
GGUF names. Here they are brought into the form in which transformers has the same model (split, stacked, transposed,
rows in another order), and its logits are the reference. Keys and names are those of llama.cpp's converter.

NAME.json is as in ref_families.py, but instead of config and files it has "keys", as in ref_gguf.py, and tensors are
those of the GGUF file: [name, [shape], "F32", e, offset], or [name, [shape], values, null] where they are literal.
"""
import argparse
import json
import os
import sys
import tempfile

import numpy as np
import safetensors.torch
import torch

import ref_families as rf

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ref", "gguf")


def separate(w, heads):
    """Rows of a q or k that stand as interleaved pairs in half-split order."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


class Gguf:
    """One row: the config that transformers runs, the architecture's name, its keys beside the usual ones, and how
    tensors of the file become those of the config: a list of (pattern of transformers, patterns of the file, function);
    '#' is the layer, '~' the expert; the function gets the file's tensors (one expert's part of a stacked one)."""
    def __init__(self, name, about, arch, config, keys=(), tensors=(), n_ids=20):
        self.name, self.about, self.arch, self.config, self.keys = name, about, arch, config, list(keys)
        self.tensors, self.n_ids = list(tensors), n_ids


COMMON = [
    ("model.embed_tokens.weight", "token_embd.weight", None),
    ("model.norm.weight", "output_norm.weight", None),
    ("lm_head.weight", "output.weight", None),
    ("model.layers.#.input_layernorm.weight", "blk.#.attn_norm.weight", None),
    ("model.layers.#.post_attention_layernorm.weight", "blk.#.ffn_norm.weight", None),
    ("model.layers.#.self_attn.q_proj.weight", "blk.#.attn_q.weight", None),
    ("model.layers.#.self_attn.k_proj.weight", "blk.#.attn_k.weight", None),
    ("model.layers.#.self_attn.v_proj.weight", "blk.#.attn_v.weight", None),
    ("model.layers.#.self_attn.o_proj.weight", "blk.#.attn_output.weight", None),
]
BIASES = [("model.layers.#.self_attn.%s_proj.bias" % a, "blk.#.attn_%s.bias" % b, None)
          for a, b in (("q", "q"), ("k", "k"), ("v", "v"))]
O_BIAS = [("model.layers.#.self_attn.o_proj.bias", "blk.#.attn_output.bias", None)]
QK_NORM = [("model.layers.#.self_attn.%s_norm.weight" % a, "blk.#.attn_%s_norm.weight" % a, None) for a in "qk"]
EXPERTS = [("model.layers.#.mlp.experts.~.%s_proj.weight" % a, "blk.#.ffn_%s_exps.weight" % a, None)
           for a in ("gate", "up", "down")]
MIXTRAL_EXPERTS = [("model.layers.#.block_sparse_moe.experts.~.%s.weight" % w, "blk.#.ffn_%s_exps.weight" % a, None)
                   for w, a in (("w1", "gate"), ("w3", "up"), ("w2", "down"))]
ROUTER = [("model.layers.#.mlp.gate.weight", "blk.#.ffn_gate_inp.weight", None)]
MIXTRAL_ROUTER = [("model.layers.#.block_sparse_moe.gate.weight", "blk.#.ffn_gate_inp.weight", None)]
DENSE = [("model.layers.#.mlp.%s_proj.weight" % a, "blk.#.ffn_%s.weight" % a, None) for a in ("gate", "up", "down")]
SHARED = [("model.layers.#.mlp.shared_experts.%s_proj.weight" % a, "blk.#.ffn_%s_shexp.weight" % a, None)
          for a in ("gate", "up", "down")]


def pairs(q_heads, k_heads):
    """q and k as interleaved pairs in the file."""
    return [("model.layers.#.self_attn.q_proj.weight", "blk.#.attn_q.weight", lambda w: separate(w, q_heads)),
            ("model.layers.#.self_attn.k_proj.weight", "blk.#.attn_k.weight", lambda w: separate(w, k_heads))]


def moe_keys(c, n, used, width):
    return [["expert_count", "u32", n], ["expert_used_count", "u32", used],
            ["expert_feed_forward_length", "u32", width]]


def turns(gate, up):
    """[experts][width][..] each -> gate and up in turns, by columns: [experts][hidden][2 * width]"""
    both = np.stack((gate, up), axis=2).reshape(gate.shape[0], -1, *gate.shape[2:])
    return both.swapaxes(1, 2) if gate.ndim == 3 else both


def rows():
    m, q2, q3, ol, db = rf.MIXTRAL, rf.QWEN2_MOE, rf.QWEN3_MOE, rf.moe_models(), rf.DBRX
    olmoe = rf.merged(next(x for x in ol if x.name == "olmoe").config, {"clip_qkv": None})
    granite = next(x for x in ol if x.name == "granitemoeshared").config
    gpt, glm, ernie, exa = rf.GPT_OSS, rf.GLM4_MOE, rf.ERNIE_MOE, rf.EXAONE_MOE
    mini, l4, phi, grok = rf.MINIMAX_M2, rf.LLAMA4, rf.PHIMOE, rf.GROK1
    q2 = rf.merged(q2, {"mlp_only_layers": [], "num_hidden_layers": 2, "norm_topk_prob": False})
    gpt = rf.merged(gpt, {"swiglu_limit": 7.0})
    phi = rf.merged(phi, {"router_jitter_noise": 0.01, "rope_scaling": {"short_mscale": 1.25, "long_mscale": 1.25}})
    ernie = rf.merged(ernie, {"use_bias": False})
    l4 = rf.merged(l4, {"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1, "rope_scaling": None,
                        "no_rope_layers": [1, 1, 1, 0]})
    chameleon = dict(rf.CHAMELEON, mlp_bias=False, vocabulary_map={"<s>": 1, "</s>": 2, "<image>": 3})
    head_pairs = lambda heads: lambda w: separate(w.reshape(-1), heads).reshape(w.shape)
    chameleon_tensors = pairs(4, 2) + DENSE + [
        ("model.layers.#.self_attn.%s_norm.%s" % (a, part), "blk.#.attn_%s_norm.%s" % (a, part), head_pairs(heads))
        for a, heads in (("q", 4), ("k", 2)) for part in ("weight", "bias")]
    return [
        Gguf("chameleon", "q and k and their norms' weights, which differ from head to head, as pairs", "chameleon",
             chameleon, [["swin_norm", "bool", False]], chameleon_tensors),
        Gguf("chameleon_swin", "the same names for norms of the branches' outputs", "chameleon",
             rf.merged(chameleon, {"swin_norm": True}), [["swin_norm", "bool", True]], chameleon_tensors),
        Gguf("moe_mixtral", "q and k as pairs; \"llama\" with experts", "llama", m,
             moe_keys(m, 4, 2, 32)[:2], MIXTRAL_EXPERTS + MIXTRAL_ROUTER + pairs(4, 2)),
        Gguf("moe_qwen2moe", "shared expert with its gate, biases on q, k and v", "qwen2moe", q2,
             moe_keys(q2, 6, 3, 24) + [["expert_shared_feed_forward_length", "u32", 40]],
             EXPERTS + ROUTER + BIASES +
             [("model.layers.#.mlp.shared_expert.%s_proj.weight" % a, "blk.#.ffn_%s_shexp.weight" % a, None)
              for a in ("gate", "up", "down")] +
             [("model.layers.#.mlp.shared_expert_gate.weight", "blk.#.ffn_gate_inp_shexp.weight", lambda w: w[None])]),
        Gguf("moe_qwen3moe", "per-head norms; a dense layer is one without a router", "qwen3moe", q3,
             moe_keys(q3, 6, 2, 24), EXPERTS + ROUTER + QK_NORM + DENSE),
        Gguf("moe_olmoe", "whole-width norms, weights as they are", "olmoe", olmoe,
             moe_keys(olmoe, 6, 3, 24)[:2], EXPERTS + ROUTER + QK_NORM),
        Gguf("moe_dbrx", "attn_qkv, the second norm is attn_output_norm, clamp", "dbrx", db,
             [["expert_count", "u32", 5], ["expert_used_count", "u32", 2], ["attention.clamp_kqv", "f32", 1.0],
              ["attention.layer_norm_epsilon", "f32", 1e-5]],
             [("transformer.wte.weight", "token_embd.weight", None),
              ("transformer.norm_f.weight", "output_norm.weight", None), ("lm_head.weight", "output.weight", None),
              ("transformer.blocks.#.norm_attn_norm.norm_1.weight", "blk.#.attn_norm.weight", None),
              ("transformer.blocks.#.norm_attn_norm.norm_2.weight", "blk.#.attn_output_norm.weight", None),
              ("transformer.blocks.#.norm_attn_norm.attn.Wqkv.weight", "blk.#.attn_qkv.weight", None),
              ("transformer.blocks.#.norm_attn_norm.attn.out_proj.weight", "blk.#.attn_output.weight", None),
              ("transformer.blocks.#.ffn.router.layer.weight", "blk.#.ffn_gate_inp.weight", None),
              ("transformer.blocks.#.ffn.experts.mlp.w1", "blk.#.ffn_gate_exps.weight",
               lambda w: w.reshape(-1, w.shape[2])),
              ("transformer.blocks.#.ffn.experts.mlp.v1", "blk.#.ffn_up_exps.weight",
               lambda w: w.reshape(-1, w.shape[2])),
              ("transformer.blocks.#.ffn.experts.mlp.w2", "blk.#.ffn_down_exps.weight",
               lambda w: w.swapaxes(1, 2).reshape(-1, w.shape[1]))]),
        Gguf("moe_phimoe", "biases of norms, attention and head; LongRoPE factors", "phimoe", phi,
             moe_keys(phi, 6, 2, 24)[:2] +
             [["rope.scaling.original_context_length", "u32", 24], ["rope.scaling.attn_factor", "f32", 1.25],
              ["rope.scaling.type", "str", "longrope"]],
             MIXTRAL_EXPERTS + MIXTRAL_ROUTER + BIASES + O_BIAS +
             [("model.norm.bias", "output_norm.bias", None), ("lm_head.bias", "output.bias", None),
              ("model.layers.#.input_layernorm.bias", "blk.#.attn_norm.bias", None),
              ("model.layers.#.post_attention_layernorm.bias", "blk.#.ffn_norm.bias", None)], n_ids=10),
        Gguf("moe_granitemoe", "q and k as pairs, multipliers, a shared expert", "granitemoe", granite,
             moe_keys(granite, 4, 2, 24)[:2] +
             [["expert_shared_feed_forward_length", "u32", 40], ["attention.scale", "f32", 0.2],
              ["embedding_scale", "f32", 3.0], ["logit_scale", "f32", 2.0], ["residual_scale", "f32", 0.4]],
             pairs(4, 2) +
             [("model.layers.#.block_sparse_moe.router.layer.weight", "blk.#.ffn_gate_inp.weight", None),
              ("model.layers.#.block_sparse_moe.input_linear.weight",
               "blk.#.ffn_gate_exps.weight blk.#.ffn_up_exps.weight", lambda g, u: np.concatenate((g, u), axis=1)),
              ("model.layers.#.block_sparse_moe.output_linear.weight", "blk.#.ffn_down_exps.weight", None),
              ("model.layers.#.shared_mlp.input_linear.weight",
               "blk.#.ffn_gate_shexp.weight blk.#.ffn_up_shexp.weight", lambda g, u: np.concatenate((g, u))),
              ("model.layers.#.shared_mlp.output_linear.weight", "blk.#.ffn_down_shexp.weight", None)]),
        Gguf("moe_gpt_oss", "sinks, biases of experts and router, YaRN, windows on every other layer", "gpt-oss", gpt,
             moe_keys(gpt, 4, 2, 32) +
             [["attention.sliding_window", "u32", 8], ["rope.scaling.type", "str", "yarn"],
              ["rope.scaling.factor", "f32", 8.0], ["rope.scaling.original_context_length", "u32", 16],
              ["rope.scaling.yarn_beta_fast", "f32", 2.0], ["rope.scaling.yarn_beta_slow", "f32", 0.02]],
             BIASES + O_BIAS +
             [("model.layers.#.post_attention_layernorm.weight", "blk.#.post_attention_norm.weight", None),
              ("model.layers.#.self_attn.sinks", "blk.#.attn_sinks.weight", None),
              ("model.layers.#.mlp.router.weight", "blk.#.ffn_gate_inp.weight", None),
              ("model.layers.#.mlp.router.bias", "blk.#.ffn_gate_inp.bias", None),
              ("model.layers.#.mlp.experts.gate_up_proj", "blk.#.ffn_gate_exps.weight blk.#.ffn_up_exps.weight", turns),
              ("model.layers.#.mlp.experts.gate_up_proj_bias", "blk.#.ffn_gate_exps.bias blk.#.ffn_up_exps.bias", turns),
              ("model.layers.#.mlp.experts.down_proj", "blk.#.ffn_down_exps.weight", lambda w: w.swapaxes(1, 2)),
              ("model.layers.#.mlp.experts.down_proj_bias", "blk.#.ffn_down_exps.bias", None)], n_ids=24),
        Gguf("moe_glm4moe", "a bias for the selection, groups, shared experts; norms of q and k that no key announces",
             "glm4moe", glm,
             moe_keys(glm, 8, 3, 16) +
             [["expert_shared_count", "u32", 2], ["leading_dense_block_count", "u32", 1], ["expert_group_count", "u32", 4],
              ["expert_group_used_count", "u32", 2], ["expert_gating_func", "u32", 2],
              ["expert_weights_scale", "f32", 1.5], ["expert_weights_norm", "bool", True],
              ["rope.dimension_count", "u32", 8]],
             EXPERTS + ROUTER + DENSE + SHARED + QK_NORM + BIASES +
             [("model.layers.#.post_attention_layernorm.weight", "blk.#.post_attention_norm.weight", None),
              ("model.layers.#.mlp.gate.e_score_correction_bias", "blk.#.exp_probs_b.bias", None)], n_ids=24),
        Gguf("moe_ernie4_5_moe", "a bias on probabilities, interleaved RoPE", "ernie4_5-moe", ernie,
             moe_keys(ernie, 6, 2, 24) +
             [["expert_shared_count", "u32", 2], ["expert_shared_feed_forward_length", "u32", 48],
              ["interleave_moe_layer_step", "u32", 1], ["leading_dense_block_count", "u32", 1]],
             EXPERTS + ROUTER + DENSE + SHARED +
             [("model.layers.#.mlp.moe_statics.e_score_correction_bias", "blk.#.exp_probs_b.bias", lambda w: w[None])]),
        Gguf("moe_exaone_moe", "windows by a list, RoPE in those layers alone", "exaone-moe", exa,
             moe_keys(exa, 8, 2, 16) +
             [["attention.sliding_window", "u32", 8],
              ["attention.sliding_window_pattern", "[bool]", [True, True, True, False]],
              ["expert_shared_count", "u32", 1], ["expert_shared_feed_forward_length", "u32", 16],
              ["expert_group_count", "u32", 2], ["expert_group_used_count", "u32", 1], ["expert_gating_func", "u32", 2],
              ["expert_weights_scale", "f32", 2.5], ["expert_weights_norm", "bool", True],
              ["leading_dense_block_count", "u32", 1]],
             EXPERTS + ROUTER + DENSE + SHARED + QK_NORM +
             [("model.layers.#.mlp.e_score_correction_bias", "blk.#.exp_probs_b.bias", None)], n_ids=24),
        Gguf("moe_minimax_m2", "sigmoid with a bias, whole-width norms, part of a head rotates", "minimax-m2", mini,
             moe_keys(mini, 6, 2, 24) + [["expert_gating_func", "u32", 2], ["rope.dimension_count", "u32", 8]],
             MIXTRAL_EXPERTS + MIXTRAL_ROUTER + QK_NORM +
             [("model.layers.#.block_sparse_moe.e_score_correction_bias", "blk.#.exp_probs_b.bias", None)]),
        Gguf("moe_llama4", "dense layers between, a NoPE layer, interleaved RoPE, the weight on the input", "llama4", l4,
             moe_keys(l4, 4, 1, 24) + [["interleave_moe_layer_step", "u32", 2]],
             [("model.layers.#.feed_forward.router.weight", "blk.#.ffn_gate_inp.weight", None),
              ("model.layers.#.feed_forward.experts.gate_up_proj",
               "blk.#.ffn_gate_exps.weight blk.#.ffn_up_exps.weight",
               lambda g, u: np.concatenate((g, u), axis=1).swapaxes(1, 2)),
              ("model.layers.#.feed_forward.experts.down_proj", "blk.#.ffn_down_exps.weight",
               lambda w: w.swapaxes(1, 2))] +
             [("model.layers.#.feed_forward.%s%s_proj.weight" % (s, a), "blk.#.ffn_%s%s.weight" % (a, t), None)
              for s, t in (("", ""), ("shared_expert.", "_shexp")) for a in ("gate", "up", "down")]),
        Gguf("moe_grok", "four norms, caps and multipliers", "grok", grok,
             moe_keys(grok, 4, 2, 24)[:2] +
             [["attention.output_scale", "f32", 0.9], ["attn_logit_softcapping", "f32", 2.0],
              ["embedding_scale", "f32", 3.0], ["logit_scale", "f32", 0.57], ["router_logit_softcapping", "f32", 30.0]],
             [("model.norm.scale", "output_norm.weight", None),
              ("model.layers.#.pre_attn_norm.scale", "blk.#.attn_norm.weight", None),
              ("model.layers.#.post_attn_norm.scale", "blk.#.attn_output_norm.weight", None),
              ("model.layers.#.pre_moe_norm.scale", "blk.#.ffn_norm.weight", None),
              ("model.layers.#.post_moe_norm.scale", "blk.#.layer_output_norm.weight", None),
              ("model.layers.#.moe_block.gate.weight", "blk.#.ffn_gate_inp.weight", None)] +
             [("model.layers.#.attn.%s_proj.weight" % a, "blk.#.attn_%s.weight" % b, None)
              for a, b in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"))] +
             [("model.layers.#.moe_block.experts.~.%s.weight" % w, "blk.#.ffn_%s_exps.weight" % a, None)
              for w, a in (("linear", "gate"), ("linear_v", "up"), ("linear_1", "down"))]),
    ]


def match(pattern, name):
    """(layer, expert) if a name of transformers fits, None for absent ones; else None."""
    want, have, layer, expert = pattern.split("."), name.split("."), None, None
    if len(want) != len(have):
        return None
    for a, b in zip(want, have):
        if a == "#" and b.isdigit():
            layer = int(b)
        elif a == "~" and b.isdigit():
            expert = int(b)
        elif a != b:
            return None
    return layer, expert


def sources_of(g, hf):
    """{name of transformers: (names in the file, function, expert)}"""
    rules, sources = g.tensors + COMMON, {}
    for name, _ in hf:
        for pattern, files, fn in rules:
            found = match(pattern, name)
            if found is None:
                continue
            layer, expert = found
            sources[name] = ([f.replace("#", str(layer)) for f in files.split()], fn, expert)
            break
        else:
            raise SystemExit("%s: no rule for %s" % (g.name, name))
    return sources


def shapes_of(name, shape, sources, config):
    """Shapes in the file, rows first, of what makes the tensor `name` of transformers."""
    files, fn, expert = sources[name]
    experts = next((config[k] for k in ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
                    if k in config), config.get("ffn_config", {}).get("moe_num_experts"))
    if expert is not None:
        return [[experts] + list(shape)]
    if fn is None:
        return [list(shape)]
    if "experts.mlp.w2" in name:                    # [experts * width][hidden], by columns
        return [[experts, shape[1], shape[0] // experts]]
    if "experts.mlp." in name:
        return [[experts, shape[0] // experts, shape[1]]]
    if name.endswith("gate_up_proj"):               # [experts][hidden][2 * width]
        return [[shape[0], shape[2] // 2, shape[1]]] * 2
    if name.endswith("gate_up_proj_bias"):
        return [[shape[0], shape[1] // 2]] * 2
    if name.endswith("input_linear.weight"):
        half = list(shape)
        half[-2] //= 2
        return [half] * 2
    if name.endswith("experts.down_proj"):
        return [[shape[0], shape[2], shape[1]]]
    if len(shape) == 2 and shape[0] == 1:           # a vector in the file
        return [[shape[1]]]
    return [list(shape)]                            # another order of rows


def describe(g):
    """What the file is made of, and the same model as transformers has it: {name: array}."""
    saved = [row for _, tensors in rf.saved_form(g.config, False)[2] for row in tensors]
    hf = [row for row in saved if "vqmodel" not in row[0]]
    sources = sources_of(g, hf)
    shapes = {}
    for name, shape in hf:
        for file, dims in zip(sources[name][0], shapes_of(name, shape, sources, g.config)):
            shapes[file] = dims
    kinds = {file: name for name, (files, _, _) in sources.items() for file in files}
    rows_ = [[file, dims, "F32", *rf.scale_of(kinds[file] if len(dims) < 3 else "experts.down_proj", dims,
                                              g.config["model_type"])] for file, dims in shapes.items()]
    values = {row[0]: rf.weight(*row).numpy() for row in rows_}
    tensors = {name: np.zeros(shape, np.float32) for name, shape in saved if "vqmodel" in name}  # images: not in the file
    for name, _ in hf:
        files_, fn, expert = sources[name]
        arrays = [values[f] for f in files_]
        if expert is not None:
            arrays = [a[expert] for a in arrays]
        tensors[name] = np.ascontiguousarray(fn(*arrays) if fn else arrays[0])
    return rows_, tensors


def metadata(g):
    c, a = g.config, g.arch
    get = lambda *names: next((c[n] for n in names if n in c), None)
    out = [["general.architecture", "str", a]]
    heads = get("num_attention_heads", "n_heads")
    usual = [["block_count", "u32", get("num_hidden_layers", "n_layers")],
             ["context_length", "u32", get("max_position_embeddings", "max_seq_len")],
             ["embedding_length", "u32", get("hidden_size", "d_model")],
             ["feed_forward_length", "u32", get("intermediate_size_mlp", "intermediate_size") or
              c["ffn_config"]["ffn_hidden_size"]],
             ["attention.head_count", "u32", heads],
             ["attention.head_count_kv", "u32", get("num_key_value_heads") or c["attn_config"]["kv_n_heads"]],
             ["rope.freq_base", "f32", get("rope_theta") or 10000.0]]
    if get("head_dim"):
        usual += [["attention.key_length", "u32", c["head_dim"]], ["attention.value_length", "u32", c["head_dim"]]]
    if a != "dbrx":
        usual.append(["attention.layer_norm_rms_epsilon", "f32", c["rms_norm_eps"]])
    return out + [["%s.%s" % (a, key), kind, value] for key, kind, value in usual + g.keys]


def factors(g):
    """LongRoPE's lists, which are tensors in GGUF."""
    scaling = g.config.get("rope_scaling") or {}
    return [(name, scaling[key]) for name, key in (("rope_factors_long.weight", "long_factor"),
                                                   ("rope_factors_short.weight", "short_factor")) if key in scaling]


def write_directory(path, g, tensors):
    os.makedirs(path, exist_ok=True)
    rf.write_json(os.path.join(path, "config.json"), g.config)
    safetensors.torch.save_file({name: torch.from_numpy(a) for name, a in tensors.items()},
                                os.path.join(path, "model.safetensors"), metadata={"format": "pt"})


def make(g):
    rows_, tensors = describe(g)
    with tempfile.TemporaryDirectory() as path:
        write_directory(path, g, tensors)
        hf = rf.load(path)
        ids, answer, margins = rf.choose_ids(hf, g.name, g.n_ids, 64)
        logits = rf.run(rf.load(path), ids)
        peak = float(np.abs(logits).max())
        diff = float(np.abs(rf.run64(path, ids) - logits).max()) / peak
    if diff > 5e-5:
        raise SystemExit("%s: float32 is off by %g: a router that cannot decide?" % (g.name, diff))
    ref = {"name": g.name, "about": g.about,
           "made_by": "tests/ref_gguf.py with transformers %s, torch %s" % (
               rf.transformers.__version__, torch.__version__.split("+")[0]),
           "keys": metadata(g), "tensors": rows_ + [[name, [len(v)], v, None] for name, v in factors(g)], "ids": ids,
           "n_vocab": 64, "logits": g.name + ".bin", "greedy": answer,
           "greedy_margin": [float("%.4g" % m) for m in margins], "max_ref": float("%.6g" % peak),
           "tolerance": float("%.4g" % (peak * (5 * diff if diff > 2e-5 else 1e-4))), "diff32_64": float("%.3g" % diff)}
    return ref, logits.astype("<f4")


def write_gguf(path, g):
    import gguf
    rows_, _ = describe(g)
    w = gguf.GGUFWriter(path, g.arch)
    for key, kind, value in metadata(g)[1:]:
        add = {"u32": w.add_uint32, "f32": w.add_float32, "bool": w.add_bool, "str": w.add_string, "[bool]": w.add_array}
        add[kind](key, value)
    for name, values in factors(g):
        w.add_tensor(name, np.array(values, dtype=np.float32))
    for row in rows_:
        w.add_tensor(row[0], rf.weight(*row).numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    parser = argparse.ArgumentParser(description="references of GGUF files")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", metavar="DIR", help="write the GGUF file of NAME")
    args = parser.parse_args()
    table = {g.name: g for g in rows()}
    for name in args.names or table:
        if args.write:
            write_gguf(os.path.join(args.write, name + ".gguf"), table[name])
            continue
        ref, logits = make(table[name])
        rf.dump(os.path.join(OUT, name + ".json"), ref)
        logits.tofile(os.path.join(OUT, ref["logits"]))
        print("%-20s ids %2d  max %6.2f  tolerance %.2e  f32-f64 %.1e  margin %.3f" % (
            name, len(ref["ids"]), ref["max_ref"], ref["tolerance"], ref["diff32_64"], min(ref["greedy_margin"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
