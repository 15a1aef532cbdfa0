"""The .tfm format, read by its specification alone: [A5] for the container, [B3] for tiles, [B10] for the tokenizer of
tfm.h. Nothing of this project's code is used for reading; tfm-inspect and tfm-tokenize say what should come out.

    python3 tests/test_format.py [--build build] [FILE.tfm...]

Without files: the story model, one of each quantised type made here, and every file that the tests of families left in
build/tests. Checked are the hashes, every field of the description, every entry of the directory, rows of every tensor
bit for bit, the cache's size and the tokenizer's texts. Standard library only. Ends with "N passed, N failed".
"""
import argparse
import array
import glob
import json
import math
import os
import random
import struct
import subprocess
import sys

MASK = (1 << 64) - 1
PASSED = FAILED = 0


def check(ok, text):
    global PASSED, FAILED
    PASSED, FAILED = PASSED + bool(ok), FAILED + (not ok)
    if not ok:
        print("FAILED format: %s" % text)
    return ok


# ---- [A5] the container ----------------------------------------------------------------------------------------------

def mix(h, w):
    h = (h ^ w) * 0x9e3779b97f4a7c15 & MASK
    return h ^ h >> 29


def hash_of(data):
    whole = len(data) // 32 * 32
    lanes = [0, 0, 0, 0]
    for a, b, c, d in struct.iter_unpack("<4Q", data[:whole]):
        lanes = [mix(lanes[0], a), mix(lanes[1], b), mix(lanes[2], c), mix(lanes[3], d)]
    h = len(data) * 0xd6e8feb86659fd93 & MASK
    for lane in lanes:
        h = mix(h, lane)
    for byte in data[whole:]:
        h = mix(h, byte)
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93 & MASK
    return h ^ h >> 32


DESCRIPTION, DIRECTORY, TOKENIZER, CHAT, PROVENANCE, SELFTEST, DATA = range(1, 8)
KEY_BLOCK, KEY_LAYER_BLOCK = 1, 2
MODEL_KEYS = dict(zip(range(16, 37), (
    "n_layers d_model n_vocab n_ctx embed_scale pos_kind pos_offset norm_kind norm_eps norm_offset norm_bias norm_no_weight "
    "tied head_bias logit_scale logit_softcap bos n_eos eos d_embed embed_norm").split()))
BLOCK_KEYS = {}
for first, names in (
        (64, "norm_kind norm_place norm_eps norm_offset norm_no_weight residual residual_scale bias"),
        (80, "attn_kind mask n_heads n_kv_heads head_dim attn_scale attn_softcap window qk_norm qk_norm_kind qk_norm_eps "
             "qk_norm_offset qk_norm_late qkv_clamp alibi temperature temperature_ctx temperature_offset sinks "
             "qk_norm_no_weight log_ctx mask_stride mask_columns mask_groups mask_part"),
        (112, "rope_style rope_dims rope_scaling rope_theta rope_factor rope_low rope_high rope_attn_factor rope_mscale "
              "rope_mscale_all rope_ctx_orig rope_ctx_max rope_no_truncate"),
        (144, "ffn_kind ffn_act ffn_gated d_ff ffn_limit ffn_up_offset d_expert n_experts n_experts_used router_score "
              "router_pick router_weight router_norm router_norm_eps router_norm_floor router_scale router_jitter "
              "router_on_input n_groups n_groups_used group_score shared_gate")):
    BLOCK_KEYS.update(zip(range(first, first + 100), names.split()))

NORMS = ["none", "rms", "layer", "l2"]
YES = ["no", "yes"]
ENUMS = {  # [A3], [A4]
    "norm_kind": NORMS, "qk_norm_kind": NORMS, "rope_style": ["none", "half-split", "interleaved"],
    "norm_place": ["pre", "post-branch", "sandwich", "post-add", "pre-stream"],
    "residual": ["sequential", "parallel-1", "parallel-2"], "pos_kind": ["none", "learned"],
    "mask": ["causal", "chunked", "strided", "fixed"], "mask_part": ["both", "near", "far", "heads"],
    "qk_norm": ["none", "per-head", "full-width", "own-per-head"], "alibi": ["none", "slopes", "bf16"],
    "rope_scaling": ["plain", "linear", "dynamic", "yarn", "long", "bands", "factors", "steps"],
    "ffn_kind": ["dense", "experts"], "router_score": ["logit", "softmax", "sigmoid"],
    "router_pick": ["top", "sparse-mixer"], "router_weight": ["score", "softmax", "sigmoid"],
    "group_score": ["max", "two-largest"],
    "ffn_act": ["none", "relu", "relu2", "gelu-erf", "gelu-tanh", "gelu-quick", "silu", "sigmoid", "xielu"],
}
for name in ("norm_no_weight norm_bias tied head_bias rope_no_truncate ffn_gated qk_norm_late qk_norm_no_weight sinks "
             "router_on_input shared_gate embed_norm").split():
    ENUMS[name] = YES


class File:
    def __init__(self, path):
        self.data = data = open(path, "rb").read()
        magic, version, size, n, zero, table_hash, head_hash = struct.unpack_from("<4sIQIIQQ", data)
        check(magic == b"tfm\x1a" and version == 1 and size == len(data) and not zero and not any(data[40:64]), "%s: header" % path)
        table = data[64:64 + 32 * n]
        check(hash_of(data[:32]) == head_hash and hash_of(table) == table_hash, "%s: hashes of header and table" % path)
        self.sections, used = {}, [(0, 64 + 32 * n)]
        for ident, flags, offset, size, digest in struct.iter_unpack("<IIQQQ", table):
            check(offset % 64 == 0 and offset >= 64 + 32 * n and offset + size <= len(data) and not flags & ~1, "%s: a section" % path)
            check(ident not in self.sections and 1 <= ident <= 7, "%s: section %d" % (path, ident))
            self.sections[ident] = data[offset:offset + size]
            check(digest == (0 if ident == DATA else hash_of(self.sections[ident])), "%s: hash of section %d" % (path, ident))
            used.append((offset, offset + size))
        used.sort()
        check(all(a[1] <= b[0] and not any(data[a[1]:b[0]]) for a, b in zip(used, used[1:])), "%s: gaps and overlaps" % path)
        self.model, self.layer_block, self.blocks = {}, None, []
        if DESCRIPTION in self.sections:
            self.read_description(path)
            self.layer_block = self.layer_block or [0] * self.model["n_layers"]

    def read_description(self, path):
        data, at, last = self.sections[DESCRIPTION], 0, 0
        while at < len(data):
            key, kind, flags, size = struct.unpack_from("<HBBI", data, at)
            payload = data[at + 8:at + 8 + size]
            at += (8 + size + 7) // 8 * 8
            if key == KEY_BLOCK:
                self.blocks.append({})
                last = 0
            elif key == KEY_LAYER_BLOCK:
                self.layer_block = list(payload)
            else:
                check(key > last and key >= 16, "%s: key %d after %d" % (path, key, last))
                last = key
                into, names = (self.blocks[-1], BLOCK_KEYS) if self.blocks else (self.model, MODEL_KEYS)
                values = struct.unpack("<%d%s" % (size // 4, "f" if kind == 2 else "i"), payload)
                check(kind in (1, 2, 3) and any(values), "%s: key %d is zero" % (path, key))
                if key in names:
                    into[names[key]] = list(values) if kind == 3 else values[0]
                else:
                    check(not flags & 1, "%s: unknown key %d" % (path, key))

    def tensors(self):
        for e in struct.iter_unpack("<HHiiiIIqqQQQ", self.sections.get(DIRECTORY, b"")):
            yield Tensor(self.data, e)


# ---- [B3] tensors ----------------------------------------------------------------------------------------------------

# code bits, zero, sub-blocks of, minimum (1 m, 2 dmin and integers), block
TYPES = {0: "F32", 1: "F16", 30: "BF16", 8: "Q8_0", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 10: "Q2_K", 11: "Q3_K",
         12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 20: "IQ4_NL", 23: "IQ4_XS", 39: "MXFP4"}
FORMS = {"Q8_0": (8, 0, 0, 0, 32), "Q4_0": (4, 8, 0, 0, 32), "Q4_1": (4, 0, 0, 1, 32), "Q5_0": (5, 16, 0, 0, 32),
         "Q5_1": (5, 0, 0, 1, 32), "Q2_K": (2, 0, 16, 2, 256), "Q3_K": (3, 4, 16, 0, 256), "Q4_K": (4, 0, 32, 2, 256),
         "Q5_K": (5, 0, 32, 2, 256), "Q6_K": (6, 32, 16, 0, 256), "IQ4_NL": (4, 0, 0, 0, 32), "IQ4_XS": (4, 0, 32, 0, 256),
         "MXFP4": (4, 12, 0, 0, 32)}
BOOK = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
E2M1 = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0]
FIELDS = {8: [8], 6: [4, 2], 5: [4, 1], 4: [4], 3: [2, 1], 2: [2]}


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def floats(name, data):
    if name == "F32":
        return list(struct.unpack("<%df" % (len(data) // 4), data))
    if name == "F16":
        return list(struct.unpack("<%de" % (len(data) // 2), data))
    return [struct.unpack("<f", struct.pack("<I", u << 16))[0] for u in struct.unpack("<%dH" % (len(data) // 2), data)]


class Tensor:
    def __init__(self, file, e):
        self.stack, self.layout, self.layer, self.role, self.expert, kind, self.flags = e[:7]
        self.rows, self.cols, self.offset, self.bytes, self.hash = e[7:]
        self.type = TYPES[kind]
        self.data = file[self.offset:self.offset + self.bytes]

    def row(self, r):
        if self.type in FORMS:
            return self.block_row(r)
        width = 4 if self.type == "F32" else 2
        if self.layout == 0:
            return floats(self.type, self.data[r * self.cols * width:(r + 1) * self.cols * width])
        strip = (self.cols * 16 * width + 63) // 64 * 64
        data = self.data[r // 16 * strip:r // 16 * strip + self.cols * 16 * width]
        return floats(self.type, data)[r % 16::16]

    def code(self, codes, bits, i, r):
        """Input i of row r: in its unit of 32 inputs, fields one after the other, the low one first."""
        unit, group, j, at, value, shift = i // 32, i % 32 // 4, i % 4, 0, 0, 0
        base = unit * 64 * bits
        for field in FIELDS[bits]:
            per = {8: (group, 0), 4: (group % 4, 4 * (group // 4)), 2: (group // 4, 2 * (group % 4)), 1: (0, group)}[field]
            byte = codes[base + at + 64 * per[0] + 4 * r + j]
            value |= (byte >> per[1] & (1 << field) - 1) << shift
            shift += field
            at += 64 * field
        return value

    def block_row(self, row):
        bits, zero, sub, minimum, block = FORMS[self.type]
        n, r = self.cols // block, row % 16
        subs = block // sub if sub else 0
        scale_bytes = (16 if self.type == "MXFP4" else 32) + (32 if minimum else 0) + subs * (
            16 if self.type == "Q2_K" or minimum != 2 else 32)
        code_bytes = block // 32 * 64 * bits
        strip = (n * (code_bytes + scale_bytes) + 63) // 64 * 64
        data = self.data[row // 16 * strip:(row // 16 + 1) * strip]
        out = []
        for b in range(n):
            codes, scales = data[b * code_bytes:(b + 1) * code_bytes], data[n * code_bytes + b * scale_bytes:]
            d, m, at = 2.0 ** (scales[r] - 128), 0.0, 16
            if self.type != "MXFP4":
                d, at = struct.unpack_from("<e", scales, 2 * r)[0], 32
            if minimum:
                m, at = struct.unpack_from("<e", scales, at + 2 * r)[0], at + 32
            for i in range(block):
                q = self.code(codes, bits, i, r)
                if self.type == "Q8_0":
                    q -= 256 * (q > 127)
                q = (BOOK[q] if self.type.startswith("IQ4") else E2M1[q] if self.type == "MXFP4" else q) - zero
                if not sub:
                    value = f32(d * q)
                    out.append(f32(value + m) if minimum else value)
                    continue
                s, wide = i // sub, 32 if minimum == 2 and self.type != "Q2_K" else 16
                scale = scales[at + s * wide + r]
                if self.type == "Q2_K":
                    low, scale = scale >> 4, scale & 15
                elif minimum:
                    low = scales[at + s * wide + 16 + r]
                scale -= 256 * (scale > 127)
                value = f32(f32(d * scale) * q)
                out.append(f32(value - f32(m * low)) if minimum else value)
        return out


# ---- [B10] the tokenizer ---------------------------------------------------------------------------------------------

def token_texts(section):
    """What each id prints in the middle of a text, None without a piece."""
    words = struct.unpack_from("<%dI" % (24 + 2 * 27), section)
    check(words[0] == 2 and words[1] <= len(section), "tokenizer: form %d" % words[0])
    n_ids, tables = words[4], [(words[24 + 2 * k], words[25 + 2 * k]) for k in range(27)]
    ends = 19 if tables[19][1] else 0  # TEXT_ENDS and TEXT_BYTES, else ENDS and BYTES
    places = struct.unpack_from("<%dI" % (n_ids + 1), section, tables[ends][0])
    flags = section[tables[2][0]:tables[2][0] + n_ids]
    at = tables[ends + 1][0]
    return [section[at + places[i]:at + places[i + 1]] if flags[i] & 8 else None for i in range(n_ids)]


# ---- comparing -------------------------------------------------------------------------------------------------------

def run(*command, stdin=b""):
    done = subprocess.run(command, input=stdin, capture_output=True)
    if done.returncode:
        sys.exit("%s: %s" % (" ".join(command), done.stderr.decode()))
    return done.stdout


def same_fields(what, mine, theirs):
    if "eos" in theirs:
        mine.setdefault("eos", [0] * 16)  # all zero, or none
    check(set(mine) == set(theirs), "%s: fields %s" % (what, set(mine) ^ set(theirs)))
    for name in set(mine) & set(theirs):
        value = mine[name]
        if name in ENUMS:
            value = ENUMS[name][value]
        if name == "eos":
            value = value[:mine.get("n_eos", 0)]
        if isinstance(value, float) and not isinstance(theirs[name], str):
            check(f32(theirs[name]) == value, "%s: %s is %s, not %s" % (what, name, value, theirs[name]))
        elif name != "bias":  # tfm-inspect spells its bits
            check(value == theirs[name], "%s: %s is %s, not %s" % (what, name, value, theirs[name]))


def compare_tensor(build, path, t, said, scratch):
    what = "%s: %s" % (path, said["name"])
    check(t.stack == 0 and t.flags == 0 and t.offset % 64 == 0, "%s: entry" % what)
    check((t.type, [t.rows, t.cols], t.layer, t.bytes) == (said["type"], said["dims"], said["layer"], said["bytes"]), "%s: entry" % what)
    check(hash_of(t.data) == t.hash, "%s: hash" % what)
    run(os.path.join(build, "tfm-inspect"), path, "--tensor", said["name"], "--out", scratch)
    whole = open(scratch, "rb").read()
    check(len(whole) == 4 * t.rows * t.cols, "%s: %d bytes" % (what, len(whole)))
    for r in sorted({0, 1, 7, 15, 16, 30, t.rows // 2, t.rows - 1} & set(range(t.rows))):
        row = array.array("f", t.row(r)).tobytes()
        check(row == whole[4 * r * t.cols:4 * (r + 1) * t.cols], "%s: row %d" % (what, r))


def compare(build, path, tensors=True):
    scratch = os.path.join(build, "tests", "format.f32")
    said = json.loads(run(os.path.join(build, "tfm-inspect"), path, "--json"))
    file = File(path)
    same_fields(path, file.model, said["config"])
    check(file.layer_block == said["layer_block"], "%s: layer_block" % path)
    check(len(file.blocks) == len(said["blocks"]), "%s: blocks" % path)
    for i, (mine, theirs) in enumerate(zip(file.blocks, said["blocks"])):
        same_fields("%s: block %d" % (path, i), mine, theirs)
    listed = list(file.tensors())
    check(len(listed) == len(said["tensors"]), "%s: %d tensors" % (path, len(listed)))
    kinds = set()
    for t, s in zip(listed, said["tensors"]):
        if tensors or (t.type, t.layout, t.expert >= 0) not in kinds:
            compare_tensor(build, path, t, s, scratch)
        kinds.add((t.type, t.layout, t.expert >= 0))
    kv, batch = 0, min(512, said["n_ctx"])
    for block in file.layer_block:
        b = file.blocks[block]
        if b.get("mask", 0) > 1:  # patterns: their near part is in the C tests
            return
        length = min(said["n_ctx"], b["window"] + batch) if b.get("window") else said["n_ctx"]
        kv += 2 * b["n_kv_heads"] * b["head_dim"] * length * 2
    check(kv == said["kv_bytes"], "%s: kv_bytes is %d, not %d" % (path, said["kv_bytes"], kv))


def compare_tokens(build, path):
    texts = token_texts(File(path).sections[TOKENIZER])
    for i in list(range(0, len(texts), max(1, len(texts) // 60))):
        if texts[i] is None:
            continue
        shown = run(os.path.join(build, "tfm-tokenize"), path, "--decode", stdin=b"%d" % i)
        text = texts[i].decode("utf-8", "replace").encode()
        check(shown in (text, text.lstrip(b" ")), "%s: id %d prints %r, not %r" % (path, i, shown, text))


def make_models(build):
    """A llama2.c checkpoint whose rows the K types divide, in every type."""
    folder = os.path.join(build, "tests")
    os.makedirs(folder, exist_ok=True)
    dim, hidden, vocab, steps = 256, 512, 40, 16
    source = os.path.join(folder, "format.bin")
    rng = random.Random(1)
    counts = [vocab * dim, dim, dim * dim, dim * dim // 2, dim * dim // 2, dim * dim, dim, hidden * dim, dim * hidden,
              hidden * dim, dim, steps * 16, steps * 16]
    with open(source, "wb") as f:
        f.write(struct.pack("<7i", dim, hidden, 1, 8, 4, vocab, steps))
        for n in counts:
            array.array("f", (rng.gauss(0, 0.05) for _ in range(n))).tofile(f)
    for kind in "f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4".split():
        out = os.path.join(folder, "format_%s.tfm" % kind)
        done = subprocess.run([os.path.join(build, "tfm-convert"), "--type", kind, source, out], capture_output=True, text=True)
        if done.returncode == 2:  # no type of its own: a mix
            done = subprocess.run([os.path.join(build, "tfm-convert"), "--type", kind + "_m", source, out], capture_output=True, text=True)
        if check(done.returncode == 0, "%s: %s" % (kind, done.stderr)):
            yield out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    if args.files:
        for path in args.files:
            compare(args.build, path)
    else:
        stories = os.path.join(args.build, "stories.tfm")
        compare(args.build, stories)
        compare_tokens(args.build, stories)
        seen = set()
        for path in make_models(args.build):
            compare(args.build, path)
            seen |= {t.type for t in File(path).tensors()}
        check(seen == set(TYPES.values()), "no tensor of type %s" % ", ".join(set(TYPES.values()) - seen))
        families = [p for p in sorted(glob.glob(os.path.join(args.build, "tests", "*.tfm"))) if "format_" not in p]
        check(len(families) > 50, "only %d files of families" % len(families))
        for path in families:
            if DESCRIPTION in File(path).sections:
                compare(args.build, path, tensors=False)
    print("%d passed, %d failed" % (PASSED, FAILED))
    return FAILED > 0


if __name__ == "__main__":
    sys.exit(main())
