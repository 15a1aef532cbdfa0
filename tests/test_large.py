#!/usr/bin/env python3
"""Converting what is large: memory, offsets beyond 4 GiB. Sources are sparse files, so only what is written takes space
(1.2 GB, removed at the end). The speed is shown beside a plain copy's and not judged: disks and neighbours differ.

    python tests/test_large.py BUILD

Linux; python alone. Ends with "N passed, N failed".
"""
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import time

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
WORK = os.path.join(BUILD, "tests", "large")
STORIES = "examples/models/stories"
MB = 1 << 20
passed = failed = 0


def check(ok, text):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    print(f"{'ok' if ok else 'FAILED'}: {text}", flush=True)


def write_safetensors(path, tensors, data=b""):
    """tensors: name -> (dtype, shape, bytes); `data` is what the last of them hold, the others are holes."""
    header, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
        f.seek(8 + len(text) + at - len(data))
        f.write(data)
    return 8 + len(text) + at


def run(args, limit=None):
    """(exit status, stderr, seconds, peak resident bytes); limit: of the address space."""
    def before():
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    start = time.time()
    p = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=before)
    out = p.stderr.read().decode()
    p.stdout.read()
    _, status, used = os.wait4(p.pid, 0)
    return os.waitstatus_to_exitcode(status), out, time.time() - start, used.ru_maxrss * 1024


def far_offsets():
    """Every real tensor lies beyond 4.5 GiB."""
    path = os.path.join(WORK, "far")
    shutil.copytree(STORIES, path)
    with open(os.path.join(STORIES, "model.safetensors"), "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(n)), f.read()
    header.pop("__metadata__", None)
    order = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    filler = 9 << 29
    tensors = {"unused.filler": ("U8", [filler], filler)}
    tensors.update({k: (v["dtype"], v["shape"], v["data_offsets"][1] - v["data_offsets"][0]) for k, v in order})
    os.remove(os.path.join(path, "model.safetensors"))
    write_safetensors(os.path.join(path, "model.safetensors"), tensors, data)
    near, far = os.path.join(WORK, "near.tfm"), os.path.join(WORK, "far.tfm")
    status, err, _, _ = run([f"{BUILD}/tfm-convert", STORIES, near])
    check(status == 0, f"the story model converts: {err.strip()}")
    status, err, _, _ = run([f"{BUILD}/tfm-convert", path, far])
    check(status == 0 and "unused.filler" in err, f"the same behind 4.5 GiB of filler: {err.strip()}")
    status, err, _, _ = run([f"{BUILD}/tfm-inspect", "--diff", near, far])
    check(status == 0, f"the two are the same: exit status {status} {err.strip()}")


def copy_speed(path, size):
    """Bytes per second of reading a file and writing another of its size, in pieces of 1 MB."""
    out = os.path.join(WORK, "copy")
    start = time.time()
    with open(path, "rb", buffering=0) as f, open(out, "wb", buffering=0) as g:
        while True:
            piece = f.read(MB)
            if not piece:
                break
            g.write(piece)
    speed = size / (time.time() - start)
    os.remove(out)
    return speed


def memory():
    """1.1 GB of BF16 under a limit of the address space: the largest tensor and 64 MB."""
    path, out = os.path.join(WORK, "big"), os.path.join(WORK, "big.tfm")
    os.makedirs(path)
    d, ff, layers, vocab = 2048, 5632, 11, 4096
    config = {"model_type": "llama", "hidden_size": d, "intermediate_size": ff, "num_hidden_layers": layers,
              "num_attention_heads": 16, "vocab_size": vocab, "tie_word_embeddings": True}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    shapes = {"model.embed_tokens.weight": [vocab, d], "model.norm.weight": [d]}
    for i in range(layers):
        p = f"model.layers.{i}."
        shapes.update({p + "input_layernorm.weight": [d], p + "post_attention_layernorm.weight": [d]})
        shapes.update({p + f"self_attn.{x}_proj.weight": [d, d] for x in "qkvo"})
        shapes.update({p + "mlp.gate_proj.weight": [ff, d], p + "mlp.up_proj.weight": [ff, d],
                       p + "mlp.down_proj.weight": [d, ff]})
    tensors = {k: ("BF16", s, 2 * s[0] * (s[1] if len(s) > 1 else 1)) for k, s in shapes.items()}
    size = write_safetensors(os.path.join(path, "model.safetensors"), tensors)
    largest = max(t[2] for t in tensors.values())
    limit = largest + 64 * MB
    status, err, seconds, peak = run([f"{BUILD}/tfm-convert", path, out, "-t", "1"], limit)
    disk = copy_speed(os.path.join(path, "model.safetensors"), size)
    check(status == 0, f"{size / 1e9:.2f} GB convert in {limit / 1e6:.0f} MB of address space: {err.strip()}")
    check(peak <= limit, f"peak memory {peak / 1e6:.1f} MB, allowed {limit / 1e6:.0f} MB")
    print(f"it took {seconds:.1f} s, {size / seconds / 1e6:.0f} MB/s; a plain copy here: {disk / 1e6:.0f} MB/s", flush=True)


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    try:
        far_offsets()
        memory()
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
