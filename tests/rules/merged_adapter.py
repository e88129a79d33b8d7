# SPDX-License-Identifier: Apache-2.0
"""Merges adapters into models by PEFT: a JSON object a line, in; what was wrong, or nothing, out."""
import json
import os
import re
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is to be looked up anywhere

import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
for line in sys.stdin:
    given = json.loads(line)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        base = transformers.AutoModelForCausalLM.from_pretrained(given["model"], dtype=torch.float32, local_files_only=True)
        merged = peft.PeftModel.from_pretrained(base, given["adapter"]).merge_and_unload().state_dict()
    linear = {n: t.clone() for n, t in merged.items() if re.fullmatch(r"model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj\.weight", n)}
    save_file(linear, given["out"])
    print("; ".join(str(one.message) for one in said if "adapter" in str(one.message)).replace("\n", " "), flush=True)
