# SPDX-License-Identifier: Apache-2.0
"""Writes configs as save_pretrained of the transformers that runs this writes them: a JSON object a line, in and out."""
import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is to be looked up anywhere

import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
for line in sys.stdin:
    given = json.loads(line)
    with tempfile.TemporaryDirectory() as folder:
        transformers.AutoConfig.for_model(given.pop("model_type"), **given).save_pretrained(folder)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as config:
            print(json.dumps(json.load(config)), flush=True)
