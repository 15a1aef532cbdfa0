"""Models that transformers 5.24 lacks, in plain torch: independent references for tests/ref_families.py.

Each is written from what its authors published, named at its class; nothing here knows how tfm.h works. A model takes
the text of its config.json as a dict, has the parameters of its checkpoints under their published names, and maps ids
[1][n] to an object with .logits [1][n][n_vocab]. Modules that hold the output of attention or the rotary tables are
named so that ref_families.py can silence them.
"""
import math
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F


class RotaryEmbedding(nn.Module):
    """cos and sin [n][dims], each half twice (arXiv:2104.09864)."""
    def forward(self, n, dims, theta):
        exponents = torch.arange(0, dims, 2).float() / dims
        angles = torch.outer(torch.arange(n).float(), 1.0 / theta ** exponents)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """x [heads][n][d], halves as pairs."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class RMSNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class LayerNorm(nn.Module):
    """Weight only."""
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, None, self.eps)


def linear(n_in, n_out, bias=False):
    return nn.Linear(n_in, n_out, bias=bias)


def embedding(rows, width):
    return nn.Embedding(rows, width)


def causal(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


def attention(q, k, v, seen, bias=None):
    """q [heads][n][d], k and v [kv heads][n][d], seen [n][n] or [heads][n][n] -> [n][heads * d]"""
    k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    return (weights @ v).transpose(0, 1).reshape(q.shape[1], -1)


def heads(x, n_heads):
    """[n][heads * d] -> [heads][n][d]"""
    return x.view(x.shape[0], n_heads, -1).transpose(0, 1)


def slopes(n_heads):
    """Of ALiBi, as published (arXiv:2108.12409): for other numbers than powers of two, those of the power below and then
    every other one of twice that power."""
    def of_power(n):
        start = 2 ** (-2 ** -(math.log2(n) - 3))
        return [start ** (i + 1) for i in range(n)]
    power = 2 ** int(math.log2(n_heads))
    return torch.tensor((of_power(power) + of_power(2 * power)[0::2])[:n_heads])


class Model(nn.Module):
    """What all have: ids in, logits out."""
    def __init__(self, config):
        super().__init__()
        self.config = SimpleNamespace(alibi=False, get_text_config=lambda: SimpleNamespace(**config))
        self.c = config

    def forward(self, ids, use_cache=False):
        return SimpleNamespace(logits=self.run(ids[0])[None])


# ---------------------------------------------------------------------------------------------------------------------

class PaLM(Model):
    """arXiv:2204.02311, section 2: SwiGLU, parallel layers, one key/value head, RoPE, tied embeddings, no biases; the
    LayerNorm has a weight. Logits are multiplied by logit_scale (hidden ^ -1/2 in section 5)."""
    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            D, d, I = c["hidden_size"], c["hidden_size"] // c["num_attention_heads"], c["intermediate_size"]
            self.input_layernorm = LayerNorm(D, c["layer_norm_eps"])
            self.self_attn, self.mlp = nn.Module(), nn.Module()
            for name, rows in (("q_proj", D), ("k_proj", d), ("v_proj", d), ("o_proj", D)):
                setattr(self.self_attn, name, linear(D, rows))
            for name, (n_in, n_out) in {"gate_proj": (D, I), "up_proj": (D, I), "down_proj": (I, D)}.items():
                setattr(self.mlp, name, linear(n_in, n_out))
            self.n_heads = c["num_attention_heads"]

        def forward(self, x, cos, sin):
            n, a, m = self.input_layernorm(x), self.self_attn, self.mlp
            q, k = rotate(heads(a.q_proj(n), self.n_heads), cos, sin), rotate(heads(a.k_proj(n), 1), cos, sin)
            mixed = attention(q, k, heads(a.v_proj(n), 1), causal(len(x)))
            return x + a.o_proj(mixed) + m.down_proj(F.silu(m.gate_proj(n)) * m.up_proj(n))

    def __init__(self, c):
        super().__init__(c)
        self.model = nn.Module()
        self.model.embed_tokens = embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(self.Block(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = LayerNorm(c["hidden_size"], c["layer_norm_eps"])
        self.rotary = RotaryEmbedding()

    def run(self, ids):
        c, x = self.c, self.model.embed_tokens(ids)
        cos, sin = self.rotary(len(ids), c["hidden_size"] // c["num_attention_heads"], c["rope_theta"])
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.model.norm(x) @ self.model.embed_tokens.weight.T * c["logit_scale"]


class SwiGLU(nn.Module):
    """down(silu(gate x) * up x) under the names a checkpoint gives them."""
    def __init__(self, D, I, gate="gate_proj", up="up_proj", down="down_proj"):
        super().__init__()
        self.names = gate, up, down
        for name, (n_in, n_out) in {gate: (D, I), up: (D, I), down: (I, D)}.items():
            setattr(self, name, linear(n_in, n_out))

    def forward(self, x):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(F.silu(gate(x)) * up(x))


class Baichuan(Model):
    """baichuan-inc/Baichuan-7B, Baichuan-13B and Baichuan2 (arXiv:2309.10305): W_pack holds q, k and v. 7B has RoPE and
    max_position_embeddings; 13B has ALiBi, the slope times the key's position, and model_max_length. Version 2 scales
    the rows of the head to length 1; its configuration has z_loss_weight."""
    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            D = c["hidden_size"]
            self.input_layernorm, self.post_attention_layernorm = (RMSNorm(D, c["rms_norm_eps"]) for _ in range(2))
            self.self_attn = nn.Module()
            self.self_attn.W_pack, self.self_attn.o_proj = linear(D, 3 * D), linear(D, D)
            self.mlp = SwiGLU(D, c["intermediate_size"])
            self.n_heads, self.alibi = c["num_attention_heads"], "max_position_embeddings" not in c

        def forward(self, x, cos, sin):
            q, k, v = (heads(y, self.n_heads) for y in self.self_attn.W_pack(self.input_layernorm(x)).chunk(3, -1))
            bias = None
            if self.alibi:
                bias = slopes(self.n_heads)[:, None, None] * torch.arange(len(x))[None, None, :]
            else:
                q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            x = x + self.self_attn.o_proj(attention(q, k, v, causal(len(x)), bias))
            return x + self.mlp(self.post_attention_layernorm(x))

    def __init__(self, c):
        super().__init__(c)
        self.model = nn.Module()
        self.model.embed_tokens = embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(self.Block(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.lm_head = linear(c["hidden_size"], c["vocab_size"])
        self.rotary = RotaryEmbedding()
        self.config.alibi = "max_position_embeddings" not in c

    def run(self, ids):
        c, x = self.c, self.model.embed_tokens(ids)
        cos, sin = self.rotary(len(ids), c["hidden_size"] // c["num_attention_heads"], 10000.0)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        head = self.lm_head.weight
        return self.model.norm(x) @ (F.normalize(head) if "z_loss_weight" in c else head).T


def dynamic_theta(theta, factor, length, trained, dims):
    """Dynamic NTK as its users write it: nothing up to the trained length."""
    if length <= trained:
        return theta
    return theta * (factor * length / trained - (factor - 1)) ** (dims / (dims - 2))


class InternLM(Model):
    """InternLM/InternLM, modeling_internlm.py: Llama's block with biases on q, k, v and o; rotary.type dynamic is dynamic
    NTK with factor 1."""
    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            D = c["hidden_size"]
            self.input_layernorm, self.post_attention_layernorm = (RMSNorm(D, c["rms_norm_eps"]) for _ in range(2))
            self.self_attn = nn.Module()
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                setattr(self.self_attn, name, linear(D, D, c["bias"]))
            self.mlp = SwiGLU(D, c["intermediate_size"])
            self.n_heads = c["num_attention_heads"]

        def forward(self, x, cos, sin):
            n, a = self.input_layernorm(x), self.self_attn
            q, k, v = (heads(p(n), self.n_heads) for p in (a.q_proj, a.k_proj, a.v_proj))
            x = x + a.o_proj(attention(rotate(q, cos, sin), rotate(k, cos, sin), v, causal(len(x))))
            return x + self.mlp(self.post_attention_layernorm(x))

    def __init__(self, c):
        super().__init__(c)
        self.model = nn.Module()
        self.model.embed_tokens = embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(self.Block(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.lm_head = linear(c["hidden_size"], c["vocab_size"])
        self.rotary = RotaryEmbedding()

    def run(self, ids):
        c, x = self.c, self.model.embed_tokens(ids)
        d, theta = c["hidden_size"] // c["num_attention_heads"], c["rotary"]["base"]
        if c["rotary"]["type"] == "dynamic":
            theta = dynamic_theta(theta, 1.0, len(ids), c["max_position_embeddings"], d)
        cos, sin = self.rotary(len(ids), d, theta)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.model.norm(x))


class InternLM2(Model):
    """arXiv:2403.17297, section 2.2: wqkv is laid out by key/value head, its query heads first, then the key, then the
    value; w1 gates w3, w2 goes back; dynamic NTK."""
    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            D, H, K = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
            self.H, self.K, self.d = H, K, D // H
            self.attention_norm, self.ffn_norm = (RMSNorm(D, c["rms_norm_eps"]) for _ in range(2))
            self.attention = nn.Module()
            self.attention.wqkv = linear(D, (H + 2 * K) * self.d, c["bias"])
            self.attention.wo = linear(D, D, c["bias"])
            self.feed_forward = SwiGLU(D, c["intermediate_size"], "w1", "w3", "w2")

        def forward(self, x, cos, sin):
            group = self.attention.wqkv(self.attention_norm(x)).view(len(x), self.K, self.H // self.K + 2, self.d)
            q = group[:, :, :-2].reshape(len(x), self.H, self.d).transpose(0, 1)
            k, v = group[:, :, -2].transpose(0, 1), group[:, :, -1].transpose(0, 1)
            x = x + self.attention.wo(attention(rotate(q, cos, sin), rotate(k, cos, sin), v, causal(len(x))))
            return x + self.feed_forward(self.ffn_norm(x))

    def __init__(self, c):
        super().__init__(c)
        self.model = nn.Module()
        self.model.tok_embeddings = embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(self.Block(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.output = linear(c["hidden_size"], c["vocab_size"])
        self.rotary = RotaryEmbedding()

    def run(self, ids):
        c, x = self.c, self.model.tok_embeddings(ids)
        d, scaling = c["hidden_size"] // c["num_attention_heads"], c["rope_scaling"]
        theta = dynamic_theta(c["rope_theta"], scaling["factor"], len(ids), c["max_position_embeddings"], d) \
            if scaling else c["rope_theta"]
        cos, sin = self.rotary(len(ids), d, theta)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.output(self.model.norm(x))


class Qwen1(Model):
    """QwenLM/Qwen and arXiv:2309.16609, sections 2.3 and 2.4: biases on q, k and v alone; the feed-forward's two inputs
    are half of intermediate_size wide, w1 x times silu(w2 x). Past seq_length, if use_dynamic_ntk, theta is multiplied by
    alpha^(d/(d-2)), alpha = 2^ceil(log2(n / seq_length) + 1) - 1; if use_logn_attn, the query at 1-based position i is
    multiplied by log_seq_length(i) where that is above 1."""
    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            D, d = c["hidden_size"], c["kv_channels"]
            self.ln_1, self.ln_2 = (RMSNorm(D, c["layer_norm_epsilon"]) for _ in range(2))
            self.attn = nn.Module()
            self.attn.c_attn = linear(D, 3 * d * c["num_attention_heads"], True)
            self.attn.c_proj = linear(d * c["num_attention_heads"], D)
            self.mlp = SwiGLU(D, c["intermediate_size"] // 2, gate="w2", up="w1", down="c_proj")
            self.c = c

        def forward(self, x, cos, sin):
            c, n = self.c, len(x)
            q, k, v = (heads(y, c["num_attention_heads"]) for y in self.attn.c_attn(self.ln_1(x)).chunk(3, -1))
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            if c["use_logn_attn"]:
                grow = [math.log(i, c["seq_length"]) if i > c["seq_length"] else 1 for i in range(1, n + 1)]
                q = q * torch.tensor(grow)[None, :, None]
            x = x + self.attn.c_proj(attention(q, k, v, causal(n)))
            return x + self.mlp(self.ln_2(x))

    def __init__(self, c):
        super().__init__(c)
        t = self.transformer = nn.Module()
        t.wte = embedding(c["vocab_size"], c["hidden_size"])
        t.h = nn.ModuleList(self.Block(c) for _ in range(c["num_hidden_layers"]))
        t.ln_f = RMSNorm(c["hidden_size"], c["layer_norm_epsilon"])
        self.lm_head = linear(c["hidden_size"], c["vocab_size"])
        self.rotary = RotaryEmbedding()

    def run(self, ids):
        c, t = self.c, self.transformer
        d, theta, n = c["kv_channels"], c["rotary_emb_base"], len(ids)
        if c["use_dynamic_ntk"]:
            alpha = max(2 ** math.ceil(math.log2(n / c["seq_length"]) + 1) - 1, 1)
            theta = theta * alpha ** (d / (d - 2))
        cos, sin = self.rotary(n, d, theta)
        x = t.wte(ids)
        for layer in t.h:
            x = layer(x, cos, sin)
        return self.lm_head(t.ln_f(x))


class OpenLM(Model):
    """mlfoundations/open_lm (DCLM, arXiv:2406.11794): LayerNorms without bias, over the whole width of q and k before
    RoPE; in_proj holds q, k and v, w12 the gate and what it gates."""
    class Block(nn.Module):
        def __init__(self, p, width):
            super().__init__()
            D = p["dim"]
            self.attention, self.feed_forward = nn.Module(), nn.Module()
            self.attention.in_proj, self.attention.out_proj = linear(D, 3 * D), linear(D, D)
            self.attention.q_norm, self.attention.k_norm = (LayerNorm(D, p["norm_eps"]) for _ in range(2))
            self.attention_norm, self.ffn_norm = (LayerNorm(D, p["norm_eps"]) for _ in range(2))
            self.feed_forward.w12, self.feed_forward.w3 = linear(D, 2 * width), linear(width, D)
            self.n_heads = p["n_heads"]

        def forward(self, x, cos, sin):
            a, f = self.attention, self.feed_forward
            q, k, v = a.in_proj(self.attention_norm(x)).chunk(3, -1)
            q, k = (rotate(heads(y, self.n_heads), cos, sin) for y in (a.q_norm(q), a.k_norm(k)))
            x = x + a.out_proj(attention(q, k, heads(v, self.n_heads), causal(len(x))))
            gate, up = f.w12(self.ffn_norm(x)).chunk(2, -1)
            return x + f.w3(F.silu(gate) * up)

    def __init__(self, c):
        super().__init__(c)
        p, self.model = c["params_args_dict"], nn.Module()
        width = 256 * ((int(2 * 4 * p["dim"] / 3) + 255) // 256)
        self.config = SimpleNamespace(alibi=False, get_text_config=lambda: SimpleNamespace(**p))
        self.model.tok_embeddings = embedding(p["vocab_size"], p["dim"])
        self.model.layers = nn.ModuleList(self.Block(p, width) for _ in range(p["n_layers"]))
        self.model.norm = LayerNorm(p["dim"], p["norm_eps"])
        self.model.output = linear(p["dim"], p["vocab_size"])
        self.rotary = RotaryEmbedding()

    def run(self, ids):
        p, x = self.c["params_args_dict"], self.model.tok_embeddings(ids)
        cos, sin = self.rotary(len(ids), p["dim"] // p["n_heads"], 10000.0)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.model.output(self.model.norm(x))


def sparse_mask(pattern, part, n, n_heads):
    """seen [n_heads][n][n] of one layer: arXiv:1904.10509, section 4, where l is the stride and c the columns. A head of
    the far part of `fixed` reads one of `groups` groups of columns, counted from a block's end, and always itself."""
    i, j, l = torch.arange(n)[:, None], torch.arange(n)[None, :], pattern["stride"]
    c, groups = pattern.get("columns", 1), pattern.get("groups", 1)
    masks, far_heads = [], 0
    for h in range(n_heads):
        near = (i - j < l) if pattern["pattern"] == "strided" else (i // l == j // l)
        mine = {"heads": "far" if h % 2 else "near"}.get(part, part)
        first = l - (far_heads % groups + 1) * c
        far = (i - j) % l == 0 if pattern["pattern"] == "strided" else \
            ((j % l >= first) & (j % l < first + c)) | (i == j)
        far_heads += mine != "near"
        masks.append({"near": near, "far": far, "both": near | far, "dense": near | True}[mine] & causal(n))
    return torch.stack(masks)


class SparseTransformer(Model):
    """arXiv:1904.10509: pre-norm blocks with biases, learned positions, GELU, tied; the masks as in sparse_mask, what a
    layer sees taken from `layers` in turn."""
    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            D, I, eps = c["hidden_size"], c["intermediate_size"], c["layer_norm_eps"]
            self.input_layernorm, self.post_attention_layernorm = (nn.LayerNorm(D, eps) for _ in range(2))
            self.self_attn, self.mlp = nn.Module(), nn.Module()
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                setattr(self.self_attn, name, linear(D, D, True))
            self.mlp.fc1, self.mlp.fc2 = linear(D, I, True), linear(I, D, True)
            self.n_heads = c["num_attention_heads"]

        def forward(self, x, seen):
            n, a = self.input_layernorm(x), self.self_attn
            q, k, v = (heads(p(n), self.n_heads) for p in (a.q_proj, a.k_proj, a.v_proj))
            x = x + a.o_proj(attention(q, k, v, seen))
            return x + self.mlp.fc2(F.gelu(self.mlp.fc1(self.post_attention_layernorm(x))))

    def __init__(self, c):
        super().__init__(c)
        self.model = nn.Module()
        self.model.embed_tokens = embedding(c["vocab_size"], c["hidden_size"])
        self.model.embed_positions = embedding(c["max_position_embeddings"], c["hidden_size"])
        self.model.layers = nn.ModuleList(self.Block(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = nn.LayerNorm(c["hidden_size"], c["layer_norm_eps"])

    def run(self, ids):
        m, pattern, n = self.model, self.c["sparse_attention"], len(ids)
        x = m.embed_tokens(ids) + m.embed_positions(torch.arange(n))
        for i, layer in enumerate(m.layers):
            part = pattern["layers"][i % len(pattern["layers"])]
            x = layer(x, sparse_mask(pattern, part, n, layer.n_heads))
        return m.norm(x) @ m.embed_tokens.weight.T


class SparseGPT2(Model):
    """GPT-2's block (arXiv:2005.14165, section 2.1: alternating dense and locally banded patterns) with the masks of
    SparseTransformer; matrices stored [in][out], q, k and v in one."""
    class Conv1D(nn.Module):
        def __init__(self, n_in, n_out):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.zeros(n_in, n_out)), nn.Parameter(torch.zeros(n_out))

        def forward(self, x):
            return x @ self.weight + self.bias

    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            D, self.n_heads = c["n_embd"], c["n_head"]
            self.ln_1, self.ln_2 = (nn.LayerNorm(D, c["layer_norm_epsilon"]) for _ in range(2))
            self.attn, self.mlp, conv = nn.Module(), nn.Module(), SparseGPT2.Conv1D
            self.attn.c_attn, self.attn.c_proj = conv(D, 3 * D), conv(D, D)
            self.mlp.c_fc, self.mlp.c_proj = conv(D, 4 * D), conv(4 * D, D)

        def forward(self, x, seen):
            q, k, v = (heads(y, self.n_heads) for y in self.attn.c_attn(self.ln_1(x)).chunk(3, -1))
            x = x + self.attn.c_proj(attention(q, k, v, seen))
            return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))

    def __init__(self, c):
        super().__init__(c)
        t = self.transformer = nn.Module()
        t.wte, t.wpe = embedding(c["vocab_size"], c["n_embd"]), embedding(c["n_positions"], c["n_embd"])
        t.h = nn.ModuleList(self.Block(c) for _ in range(c["n_layer"]))
        t.ln_f = nn.LayerNorm(c["n_embd"], c["layer_norm_epsilon"])

    def run(self, ids):
        t, pattern, n = self.transformer, self.c["sparse_attention"], len(ids)
        x = t.wte(ids) + t.wpe(torch.arange(n))
        for i, layer in enumerate(t.h):
            x = layer(x, sparse_mask(pattern, pattern["layers"][i % len(pattern["layers"])], n, layer.n_heads))
        return t.ln_f(x) @ t.wte.weight.T


class ScaledRMSNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.scale, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.scale


class Grok1(Model):
    """xai-org/grok-1 (model.py): a norm before and after each branch, inside the residual; scores times
    attn_output_multiplier, then capped at max_attn_value before the mask; top experts of a softmax over all, weights as
    they are; experts linear_1(gelu(linear x) * linear_v x) with the tanh form; embedding and logits multiplied."""
    class Block(nn.Module):
        def __init__(self, c):
            super().__init__()
            D, I, eps = c["hidden_size"], c["intermediate_size"], c["rms_norm_eps"]
            d = D // c["num_attention_heads"]
            for name in ("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"):
                setattr(self, name, ScaledRMSNorm(D, eps))
            self.attn, self.moe_block, self.c = nn.Module(), nn.Module(), c
            for name, rows in (("q_proj", D), ("k_proj", c["num_key_value_heads"] * d),
                               ("v_proj", c["num_key_value_heads"] * d), ("o_proj", D)):
                setattr(self.attn, name, linear(D, rows))
            self.moe_block.gate = linear(D, c["num_experts"])
            self.moe_block.experts = nn.ModuleList(nn.ModuleDict(
                {"linear": linear(D, I), "linear_v": linear(D, I), "linear_1": linear(I, D)})
                for _ in range(c["num_experts"]))

        def attend(self, x, cos, sin):
            c, a = self.c, self.attn
            n_heads, n_kv = c["num_attention_heads"], c["num_key_value_heads"]
            q, k = rotate(heads(a.q_proj(x), n_heads), cos, sin), rotate(heads(a.k_proj(x), n_kv), cos, sin)
            k, v = (t.repeat_interleave(n_heads // n_kv, 0) for t in (k, heads(a.v_proj(x), n_kv)))
            cap = c["max_attn_value"]
            scores = cap * torch.tanh(q @ k.transpose(1, 2) * c["attn_output_multiplier"] / cap)
            scores = scores.masked_fill(~causal(len(x)), -1e30)
            return a.o_proj((scores.softmax(-1) @ v).transpose(0, 1).reshape(len(x), -1))

        def mix(self, x):
            weights, picks = self.moe_block.gate(x).softmax(-1).topk(self.c["num_experts_per_tok"], dim=-1)
            rows = []
            for t in range(len(x)):
                row = torch.zeros_like(x[t])
                for w, e in zip(weights[t], picks[t]):
                    f = self.moe_block.experts[int(e)]
                    row = row + w * f["linear_1"](F.gelu(f["linear"](x[t]), approximate="tanh") * f["linear_v"](x[t]))
                rows.append(row)
            return torch.stack(rows)

        def forward(self, x, cos, sin):
            x = x + self.post_attn_norm(self.attend(self.pre_attn_norm(x), cos, sin))
            return x + self.post_moe_norm(self.mix(self.pre_moe_norm(x)))

    def __init__(self, c):
        super().__init__(c)
        self.model = nn.Module()
        self.model.embed_tokens = embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(self.Block(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = ScaledRMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.rotary = RotaryEmbedding()

    def run(self, ids):
        c, x = self.c, self.model.embed_tokens(ids) * self.c["embedding_multiplier_scale"]
        cos, sin = self.rotary(len(ids), c["hidden_size"] // c["num_attention_heads"], 10000.0)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.model.norm(x) @ self.model.embed_tokens.weight.T * c["output_multiplier_scale"]


MODELS = {"grok-1": Grok1, "palm": PaLM, "baichuan": Baichuan, "internlm": InternLM, "internlm2": InternLM2, "qwen": Qwen1,
          "openlm": OpenLM, "sparse_transformer": SparseTransformer}


def model_for(config):
    """The class that runs a config; None: transformers has it."""
    if config.get("sparse_attention") and config["model_type"] == "gpt2":
        return SparseGPT2
    return MODELS.get(config["model_type"])
