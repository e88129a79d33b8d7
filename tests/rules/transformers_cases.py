# SPDX-License-Identifier: Apache-2.0
"""The family "transformers": the library itself loads the mount, and computes what it computes with the original."""
import contextlib
import os
import random
import re

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is to be looked up anywhere

import architectures  # noqa: E402
import compared  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import training_names  # noqa: E402
import transformers  # noqa: E402
import views  # noqa: E402
from values import Value  # noqa: E402

FIXED = {}
ORDERS = ({"order": "layers"}, {"order": "layers", "file_size": "8K"})
# Experts one by one: what multiplies all at once wants sizes that our small models do not have.
EXPERTS = {"experts_implementation": "eager"} if transformers.__version__ >= "5" else {}


def small_value(data, dtype, shape):
    """Weights with which a network computes numbers, not infinity."""
    numbers = (0.3 * data.standard_normal(shape)).astype(np.float32)
    return Value(dtype, (numbers.view(np.uint32) >> 16).astype(np.uint16) if dtype == "BFloat16" else numbers)


def is_predicted(name, model):
    """Whether it is of the layers of multi-token prediction, which transformers leaves out."""
    at = re.match(r"model\.layers\.(\d+)\.", name)
    return bool(at) and int(at[1]) >= model.num_hidden_layers


def load(folder, model, dtype="auto"):
    """The model, loaded with all of its weights."""
    config = getattr(transformers, model.architectures[0].replace("ForCausalLM", "Config")).from_pretrained(folder)
    config.model_type = model.kind  # of a model that transformers has under the name of another
    loaded, told = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, output_loading_info=True, dtype=dtype, local_files_only=True, **EXPERTS)
    more = sorted(n for n in told["unexpected_keys"] if not is_predicted(n, model))
    if told["missing_keys"] or told["mismatched_keys"] or more:
        raise ValueError(f"transformers misses {told['missing_keys']}, does not fit {told['mismatched_keys']}, "
                         f"does not expect {more}")
    for parameter in loaded.parameters():  # not in mapped files: sums differ in the last bit by where in memory weights begin
        parameter.data = parameter.data.clone()
    return loaded


def said(loaded, model):
    """What it says to a few tokens."""
    with torch.no_grad():
        return loaded.eval()(torch.arange(model.vocab_size)[None] % 7).logits


def logits(folder, model, dtype="auto"):
    return said(load(folder, model, dtype), model)


class Case:
    def __init__(self, name, model, rng):
        self.name, self.model, self.rng = name, model, rng
        self.trained = training_names.make(training_names.Mindformers, model, architectures.repeated(model))
        self.devices, self.files = rng.choice([1, 2, 2, 4]), rng.choice([1, 2])
        self.says, self.refusal, self.status = "", "", 1

    def describe(self):
        return f"  {self.model.describe()}\n  from {self.devices} rank(s)"

    def write(self, folder):
        views.write_huggingface(os.path.join(folder, "hf"), self.model, self.model.tensors, self.files)
        source = os.path.join(folder, "trained")
        views.write_ranks(source, self.trained,
                          {n: views.fitting_layout(self.rng, self.devices, v.shape) for n, v in self.trained.items()})
        return source, {"src_strategy": source + ".json", "convert": views.rules(self.model.config["model_type"]), "view": "huggingface",
                        "hf_config": os.path.join(folder, "hf", "config.json"), **self.rng.choice([{}, *ORDERS])}

    def check_oracle(self, folder):
        self.wanted = logits(os.path.join(folder, "hf"), self.model)
        return None if torch.isfinite(self.wanted).all() else "the model's numbers are not finite"

    def check_views(self, folder, source, options):
        with contextlib.ExitStack() as stack:
            stack.enter_context(compared.mounted(source, os.path.join(folder, "mnt"), options))
            got = logits(os.path.join(folder, "mnt"), self.model)
        return None if torch.equal(got, self.wanted) else "the model that is loaded from the mount says something else"


def make(seed, number):
    rng = random.Random(f"{seed}/{number}")
    config = architectures.random_config(rng, architectures.KINDS[number % len(architectures.KINDS)])
    data = np.random.default_rng(rng.getrandbits(64))
    model = architectures.fill(data, config, rng.choice(["BFloat16", "Float32"]), small_value)
    return Case(f"transformers-{seed}-{number}", model, rng)


def prepare():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
