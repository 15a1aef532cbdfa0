"""Speed beside llama.cpp: the same files, the same threads, in turn, in one run.

    python3 tests/bench_rivals.py [--build build] [--threads N] [--isa NAME] [--rounds N] [-p N] [-n N] [MODEL...]

Without --rival, llama.cpp is taken from PyPI (the source package of llama-cpp-python), built in the cache folder for this
CPU's instruction sets (or those of --isa) and measured by its llama-bench. --rival "NAME=PATH ARGUMENTS" measures another
llama-bench instead; it may be given several times. Each round runs every program once; the table shows medians over the
rounds, the spread of each, and ratios to the best rival. The cache folder is TFM_MODELS (default: a temporary one); nothing
is written into the repository. The models are those of real_models.py, or GGUF files by their path.

A ratio means something only on an idle machine: the load before the run is printed with the result.
"""
import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tarfile
import tempfile

import real_models

PACKAGE = "llama-cpp-python==0.3.36"
CMAKE = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=OFF", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF",
         "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF", "-DGGML_OPENMP=ON"]
# Its AMX path is left out: it dies of an illegal instruction on CPUs that claim AMX and do not have it.
SWITCHES = {"avx": "AVX", "avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "bmi2": "BMI2", "avx_vnni": "AVX_VNNI",
            "avx512f": "AVX512", "avx512_vnni": "AVX512_VNNI", "avx512vbmi": "AVX512_VBMI"}


def cpu():
    """The CPU's name and flags."""
    name, flags = platform.processor() or platform.machine(), set()
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    name = value.strip()
                if key.strip() == "flags":
                    flags = set(value.split())
    except OSError:
        pass
    return name, flags


def switches(isa):
    """What llama.cpp is built for: what the CPU has, but no more than the instruction set that we are held to."""
    flags = cpu()[1]
    if isa in ("avx2", "scalar"):
        flags = {f for f in flags if not f.startswith("avx512") and f != "avx_vnni"}
    if isa == "avxvnni":
        flags = {f for f in flags if not f.startswith("avx512")}
    return ["-DGGML_%s=%s" % (s, "ON" if f in flags else "OFF") for f, s in SWITCHES.items()]


def build_llama(cache, isa):
    """The path of a llama-bench built from the source package."""
    build = os.path.join(cache, "llama.cpp-" + (isa or "best"))
    program = os.path.join(build, "bin", "llama-bench")
    if os.path.exists(program):
        return program
    with tempfile.TemporaryDirectory(dir=cache) as tmp:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", tmp, PACKAGE],
                       check=True, stdin=subprocess.DEVNULL)
        with tarfile.open(os.path.join(tmp, os.listdir(tmp)[0])) as t:
            t.extractall(cache)
    source = os.path.join(cache, PACKAGE.replace("-", "_").replace("==", "-"), "vendor", "llama.cpp")
    print("building llama.cpp, this takes minutes ...", file=sys.stderr)
    subprocess.run(["cmake", "-S", source, "-B", build] + CMAKE + switches(isa), check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build, "--target", "llama-bench", "-j", str(os.cpu_count())], check=True,
                   stdout=subprocess.DEVNULL)
    return program


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("%s: exit status %d: %s" % (command[0], done.returncode, done.stderr.strip()[-300:]))
    return json.loads(done.stdout)


def measure_ours(a, model):
    command = [os.path.join(a.build, "tfm-bench"), model, "-p", str(a.prompt), "-n", str(a.generate), "-t", str(a.threads), "-r", "1",
               "--json"] + (["--isa", a.isa] if a.isa else [])
    r = run(command)
    return {"prefill": r["prefill_tokens_per_s"], "decode": r["decode_tokens_per_s"], "share": r["bandwidth_share"],
            "bandwidth": r["bandwidth_gb_per_s"], "isa": r["isa"]}


def measure_rival(a, command, gguf):
    r = run(command + ["-m", gguf, "-p", str(a.prompt), "-n", str(a.generate), "-t", str(a.threads), "-r", "1", "-o", "json"])
    return {"prefill": next(x["avg_ts"] for x in r if x["n_prompt"] and not x["n_gen"]),
            "decode": next(x["avg_ts"] for x in r if x["n_gen"] and not x["n_prompt"])}


def median(rows, key):
    return statistics.median(r[key] for r in rows)


def spread(rows, key):
    values = [r[key] for r in rows]
    return (max(values) - min(values)) / statistics.median(values)


def figures(rows):
    return "%.0f ±%.0f %% / %.1f ±%.0f %%" % (median(rows, "prefill"), 50 * spread(rows, "prefill"), median(rows, "decode"),
                                          50 * spread(rows, "decode"))


def compare(a, name, gguf, rivals, cache):
    """One row of the table; None if a program failed."""
    model = os.path.join(cache, os.path.basename(gguf) + ".tfm")
    subprocess.run([os.path.join(a.build, "tfm-convert"), gguf, model], check=True, stdin=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    ours, theirs = [], {r: [] for r in rivals}
    for _ in range(a.rounds):
        ours.append(measure_ours(a, model))
        for r, command in rivals.items():
            theirs[r].append(measure_rival(a, command, gguf))
    os.remove(model)
    best = {k: max(median(rows, k) for rows in theirs.values()) for k in ("prefill", "decode")}
    cells = [name, figures(ours)] + [figures(rows) for rows in theirs.values()]
    cells += ["%.2f × / %.2f ×" % tuple(median(ours, k) / best[k] for k in ("prefill", "decode")),
              "%.0f %% of %.1f GB/s" % (100 * median(ours, "share"), median(ours, "bandwidth"))]
    print("| " + " | ".join(cells) + " |", flush=True)
    return ours[0]["isa"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="MODEL", help="names of real_models.py or GGUF files; default: all")
    p.add_argument("--build", default="build")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--isa", help="hold our side to this instruction set, and build llama.cpp for no more")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("-p", dest="prompt", type=int, default=512)
    p.add_argument("-n", dest="generate", type=int, default=64)
    p.add_argument("--rival", action="append", default=[], metavar="NAME=PATH ARGUMENTS")
    a = p.parse_args()
    cache = os.environ.get("TFM_MODELS") or tempfile.mkdtemp()
    os.makedirs(cache, exist_ok=True)
    rivals = {r.partition("=")[0]: shlex.split(r.partition("=")[2]) for r in a.rival}
    rivals = rivals or {"llama.cpp": [build_llama(cache, a.isa)]}
    files = {}
    for name in a.models or [m.name for m in real_models.MODELS]:
        known = [m for m in real_models.MODELS if m.name == name]
        files[os.path.basename(name)] = real_models.obtain(known[0], cache) if known else name
    print("%s, %d threads, load before the run %.2f, %s" %
          (cpu()[0], a.threads, os.getloadavg()[0], datetime.date.today().isoformat()))
    print("prompt of %d / decode of %d, tokens/s: median of %d rounds ± half the spread\n" % (a.prompt, a.generate, a.rounds))
    print("| model | tfm.h | " + " | ".join(rivals) + " | tfm.h / best | share of bandwidth |")
    print("|" + "---|" * (len(rivals) + 4))
    isa = None
    for name, gguf in files.items():
        if gguf:
            isa = compare(a, name, gguf, rivals, cache)
    print("\ninstruction set: %s" % isa)
    return 0


if __name__ == "__main__":
    sys.exit(main())
