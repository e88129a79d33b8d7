# SPDX-License-Identifier: Apache-2.0
"""Whole models of PEFT in saves of trainings: view=peft must show the adapter alone, as PEFT itself saves it."""
import os
import random

import architectures
import compared
import numpy as np
import peft
import torch
import torch.distributed.checkpoint as dcp
import transformers_cases
import views

ALPHA = 12
SAVES = {
    "state": lambda state, path: torch.save(state, path + ".pt") or path + ".pt",
    "compiled": lambda state, path: torch.save(wrapped(state), path + ".pt") or path + ".pt",
    "dcp": lambda state, path: dcp.save(state, checkpoint_id=path, no_dist=True) and path,
    "trainer": lambda state, path: dcp.save({"model": state, "optim": {"state": {n: {"exp_avg": t} for n, t in state.items() if "lora_" in n}}},
                                            checkpoint_id=path, no_dist=True) and path,
}


def wrapped(state):
    """As FSDP and torch.compile put names of theirs in between."""
    return {"_fsdp_wrapped_module." + n.replace(".layers.0.", ".layers.0._orig_mod."): t for n, t in state.items()}


class Case:
    says, refusal, status = "", "", 1

    def __init__(self, name, kind):
        self.name, self.kind, self.rng = name, kind, random.Random(name)
        config = architectures.random_config(self.rng, "llama")
        config.update(attention_bias=False, tie_word_embeddings=False)
        self.model = architectures.fill(np.random.default_rng(7), config, "Float32", transformers_cases.small_value)

    def describe(self):
        return f"  {self.model.describe()}\n  {self.kind}"

    def write(self, folder):
        self.folder, self.base = folder, os.path.join(folder, "hf")
        views.write_huggingface(self.base, self.model, self.model.tensors)
        torch.manual_seed(7)
        config = peft.LoraConfig(r=3, lora_alpha=ALPHA, target_modules=["q_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
        self.tuned = peft.get_peft_model(transformers_cases.load(self.base, self.model), config)
        source = SAVES[self.kind](self.tuned.state_dict(), os.path.join(folder, "save"))
        return source, {"view": "peft", "lora_alpha": ALPHA}

    def check_oracle(self, folder):
        """What PEFT saves of the adapter has fewer tensors than the state, by other names."""
        self.tuned.save_pretrained(os.path.join(folder, "wanted"))
        self.wanted = views.read_safetensors(os.path.join(folder, "wanted"))
        state = self.tuned.state_dict()
        return None if len(self.wanted) < len(state) and not set(self.wanted) & set(state) else "the adapter is the whole state"

    def check_views(self, folder, source, options):
        target = os.path.join(folder, "shown")
        problem = compared.export(self, source, target, options) or views.tensors_differ(views.read_safetensors(target), self.wanted)
        if problem:
            return problem
        loaded = peft.PeftModel.from_pretrained(transformers_cases.load(self.base, self.model), target)
        if not torch.equal(transformers_cases.said(loaded, self.model), transformers_cases.said(self.tuned, self.model)):
            return "the model with the adapter that is shown says something else"
        return self.check_refusals(folder)

    def check_refusals(self, folder):
        """Two adapters, and what an adapter has beside A and B."""
        self.tuned.add_adapter("second", peft.LoraConfig(r=3, target_modules=["q_proj"], init_lora_weights=False))
        two = SAVES[self.kind](self.tuned.state_dict(), os.path.join(folder, "two"))
        more = {**self.tuned.state_dict(), "base_model.model.lm_head.modules_to_save.default.weight": torch.ones(2, 2)}
        more = {n: t for n, t in more.items() if ".second." not in n}
        more = SAVES[self.kind](more, os.path.join(folder, "more"))
        for source, self.refusal in ((two, [".default.weight'", ".second.weight'", "names="]), (more, ["modules_to_save", "no tensor of an adapter"])):
            problem = compared.export(self, source, source + "-shown", {"view": "peft", "lora_alpha": ALPHA})
            if problem:
                return problem
        return None


FIXED = {f"adapters-saved-{kind}": lambda name, kind=kind: Case(name, kind) for kind in SAVES}
