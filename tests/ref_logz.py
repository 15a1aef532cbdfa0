"""nll and log Z of the checkpoint that ships, by transformers: the numbers that tests/test_programs.sh expects of
`tfm-eval --ppl`.

    python tests/ref_logz.py

The text is the prompt of test_programs.sh and ". ", 40 times; chunks of 32 ids, the first two, the first id of each
replaced by BOS; positions 16..30 are scored. Made with transformers 5.24.0, torch 2.15.0, tokenizers in float32.
"""
import os
import re

import torch
import transformers
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "..", "examples", "models", "stories")
CTX, CHUNKS = 32, 2

torch.set_num_threads(1)
with open(os.path.join(HERE, "test_programs.sh"), encoding="utf-8") as script:
    prompt = re.search(r'^PROMPT="(.*)"$', script.read(), re.M).group(1)
ids = Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json")).encode((prompt + ". ") * 40, add_special_tokens=False).ids
model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
nll, log_z = [], []
for c in range(CHUNKS):
    chunk = [model.config.bos_token_id] + ids[c * CTX + 1:(c + 1) * CTX]
    with torch.no_grad():
        logits = model(torch.tensor([chunk])).logits[0].double()
    for i in range(CTX // 2, CTX - 1):
        log_z.append(float(torch.logsumexp(logits[i], 0)))
        nll.append(log_z[-1] - float(logits[i, chunk[i + 1]]))
print("transformers %s, torch %s" % (transformers.__version__, torch.__version__))
print("nll %.6f\nlog_z_mean %.6f\nlog_z_max %.6f" % (sum(nll) / len(nll), sum(log_z) / len(log_z), max(log_z)))
