# SPDX-License-Identifier: Apache-2.0
"""Adapters (LoRA) as MindSpore Transformers saves them: its own program that merges them into the weights, and PEFT's, which
merges what a view shows, must make the same model.
"""
import importlib
import json
import os
import subprocess
import sys
from unittest import mock

import adapters
import architectures
import mindformers_cases
import mindformers_program
import numpy as np
import training_names
import views
from values import Value

TARGETS = [list(adapters.LINEAR), ["linear_qkv", "linear_proj"], ["linear_fc1", "linear_fc2"], ["linear_proj"]]
ENDS = {"pynative": ("lora_a", "lora_b"), "graph": ("lora_A.weight", "lora_B.weight")}
MANIFEST = "mindformers_adapter_config.json"


class Merger:
    """The process of PEFT, started by the first."""
    process = None

    @classmethod
    def merge(cls, **given):
        if not cls.process:
            environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "merged_adapter.py")
            cls.process = subprocess.Popen([os.environ["RFS_TRANSFORMERS"], "-B", program], env=environment, text=True,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        print(json.dumps(given), file=cls.process.stdin, flush=True)
        said = cls.process.stdout.readline()
        return said.strip() if said else "PEFT failed"


def merge(source, out, alpha):
    """Merges by mindformers.tools.transform_safetensors_lora of 2.1.0."""
    folder = os.path.join(os.environ["RFS_MINDFORMERS"], "2.1.0", "mindformers")
    for name in [n for n in sys.modules if n.split(".")[0] in ("mindformers", "hyper_parallel")]:
        del sys.modules[name]
    finder = mindformers_program.Stubs("mindformers.checkpoint.", "mindformers.tools.transform_safetensors_lora")
    sys.meta_path.insert(0, finder)
    try:
        for name, at in (("mindformers", ""), ("mindformers.checkpoint", "checkpoint"), ("mindformers.tools", "tools")):
            mindformers_program.package(name, os.path.join(folder, at))
        program = importlib.import_module("mindformers.tools.transform_safetensors_lora")
        with mock.patch.object(program, "logger", mock.MagicMock()):
            program.merge_lora(source, out, alpha)
    finally:
        sys.meta_path.remove(finder)


class Case(mindformers_cases.Case):
    def __init__(self, name, shape, model, options, rng):
        super().__init__(name, shape, model, options, rng)
        self.targets = rng.choice(TARGETS) if model.kind != "qwen3_moe" else ["linear_qkv", "linear_proj"]
        self.names = rng.choice(list(ENDS))
        self.rank, self.alpha = rng.choice([1, 2, 4, 8]), rng.choice([1, 6, 16, 32])
        self.manifest = self.form == "2.0" and rng.random() < 0.5
        self.fill(np.random.default_rng(rng.getrandbits(64)))

    def fill(self, data):
        self.adapters = {}
        dtype = next(iter(self.trained.values())).dtype
        for layer in self.model.layers():
            for linear in self.targets:
                columns, rows = adapters.sizes(self.model, linear)
                at = f"{adapters.base(layer, linear)}."
                for end, shape in zip(ENDS[self.names], ((self.rank, columns), (rows, self.rank))):
                    self.adapters[at + end] = Value(dtype, (0.3 * data.standard_normal(shape)).astype(np.float32))

    def describe(self):
        return f"{super().describe()}\n  {self.targets} of rank {self.rank}, alpha {self.alpha}, {self.names}, {self.manifest}"

    def saved(self):
        """With the frozen weights in graph mode, and without them otherwise."""
        self.more, trained = self.adapters, self.trained
        self.trained = trained if self.names == "graph" else {}
        out = {**super().saved(), **({} if self.trained else {f"adam_v.{n}": v for n, v in self.adapters.items() if self.state})}
        self.trained = trained
        return out

    def convert(self):
        words = {k: v for k, v in self.options.items() if k in ("gate_up", "qkv")}
        words.update({"names": "graph"} if self.names == "graph" else {})
        words.update({linear: "plain" for linear in adapters.LINEAR if linear not in self.targets and
                      not (self.model.kind == "qwen3_moe" and linear.startswith("linear_fc"))})
        given = {"convert": views.rules("mindformers_lora"), "hf_config": self.config}
        return {**given, "convert_options": ":".join(f"{k}={v}" for k, v in words.items())} if words else given

    def write(self, folder):
        source, options = super().write(folder)
        if self.manifest:  # as checkpoint_callback.py of 2.1.0 has it
            at = next(os.path.join(source, n) for n in sorted(os.listdir(source)) if n.startswith("iteration_"))
            with open(os.path.join(at, MANIFEST), "w", encoding="utf-8") as out:
                json.dump({"format": "mindformers_pynative_lora_adapter_v1", "base_load_path": "/base", "base_fingerprint": None,
                           "lora_config": {"target_modules": ".*linear.*", "exclude_layers": None, "lora_rank": self.rank,
                                           "lora_alpha": self.alpha, "lora_dropout": 0.05, "lora_a_std": 0.01, "lora_b_std": 0.0},
                           "global_step": 1, "consumed_samples": 8}, out, indent=2)
        else:
            options["lora_alpha"] = self.alpha
        return source, {**options, "view": "peft"}

    def wanted(self):
        out = {}
        rows = {"gate_up": "interleaved", **self.options}
        for layer in self.model.layers():
            for linear in self.targets:
                a, b = (self.adapters[f"{adapters.base(layer, linear)}.{end}"] for end in ENDS[self.names])
                out.update(adapters.as_peft(self.model, linear, layer, a, b, rows))
        return out

    def check_oracle(self, folder):
        """MindSpore Transformers finds the adapters by these names, and merges them."""
        os.makedirs(os.path.join(folder, "both"))
        whole, out = os.path.join(folder, "both", "net.safetensors"), os.path.join(folder, "merged.safetensors")
        views.write_tensors(whole, {**self.trained, **self.adapters})
        merge(whole, out, self.alpha)
        self.merged = views.read_file(out)
        adapted = {f"{adapters.base(layer, linear)}.weight" for layer in self.model.layers() for linear in self.targets}
        return None if set(self.merged) == set(self.trained) and self.merged_differ(self.trained, 1e-6) == sorted(adapted) else \
            "MindSpore Transformers merges others"

    def merged_differ(self, other, most):
        """The names of weights that are others than it merged."""
        return sorted(n for n, v in self.merged.items() if not np.allclose(v.data, other[n].data, rtol=0, atol=most))

    def check_views(self, folder, source, options):
        return views.check(self, source, os.path.join(folder, "as-peft"), options,
                           lambda shown: adapters.differs(shown, self.wanted(), self.rank, self.alpha) or
                           self.loaded_differs(folder, shown))

    def loaded_differs(self, folder, shown):
        """PEFT's merge of the view is MindSpore Transformers' merge of its checkpoint."""
        out = os.path.join(folder, "by-peft.safetensors")
        problem = Merger.merge(model=os.path.join(folder, "hf"), adapter=shown, out=out)
        if problem:
            return f"PEFT says {problem}"
        model = architectures.Model(self.model.config, {**self.model.tensors, **views.read_file(out)})
        merged = training_names.make(training_names.Mindformers, model, self.repeated, **self.options)
        others = self.merged_differ(merged, 1e-4)
        return f"PEFT makes another {others}" if others else None


def make(name, rng):
    shape = rng.choice(["qwen3", "llama", "qwen2", "mistral", "qwen3_moe"])
    config = architectures.random_config(rng, shape)
    if "attention_bias" in config:
        config["attention_bias"] = False
    model = architectures.fill(np.random.default_rng(rng.getrandbits(64)), config, "Float32")
    return Case(name, shape, model, mindformers_cases.random_options(rng, shape), rng)
