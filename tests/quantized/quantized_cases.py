# SPDX-License-Identifier: Apache-2.0
"""The family "quantized": folders of quantized models, as views show them with dequantize.

A random case is Random(f"{seed}/{number}") and nothing else. A seed that begins with the name of a format and a dot has
cases of that format alone.
"""
import itertools
import os
import shutil
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is to be looked up anywhere

import costs  # noqa: E402
import folders  # noqa: E402
import formats  # noqa: E402
import models  # noqa: E402
import refusals  # noqa: E402
import shown  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

FIXED = {}
LOOKS = 3  # of a random case, beside the first


class Changed:
    """The config changes between two exports, and the tensors do not: kept indexes are those of another config."""

    def __init__(self, name):
        self.name = name

    def describe(self):
        return "  blocks of 128, then of 100"

    def write(self, folder):
        rng = folders.Random(self.name)
        self.tensors = {"model.layers.0.mlp.up_proj.weight": formats.e4m3(rng, (200, 300), False),
                        "model.layers.0.mlp.up_proj.weight_scale_inv": formats.scales(rng, (2, 3), torch.float32, False)}
        return os.path.join(folder, "quantized"), {}

    def check_oracle(self, folder):
        del folder

    def check_views(self, folder, source, options):
        for size in (128, 100, 128):
            shutil.rmtree(source, ignore_errors=True)
            folders.write(source, self.tensors, {n: "model.safetensors" for n in self.tensors}, {
                "model_type": "llama", "quantization_config": {"quant_method": "fp8", "weight_block_size": [size, size]}})
            for name in os.listdir(source):
                os.utime(os.path.join(source, name), (1e9, 1e9))
            program = formats.FP8BlockDequantizer.from_pretrained(source, weight_block_size=(size, size), dtype=torch.bfloat16)
            target = os.path.join(folder, f"shown-{size}")
            shutil.rmtree(target, ignore_errors=True)
            problem = shown.export(source, target, {"dequantize": True, "view": "huggingface"}) or \
                shown.all_differ(shown.read(target), program.process(dict(self.tensors)))
            if problem:
                return f"blocks of {size}: {problem}"
        return None


class Case:
    def __init__(self, name, seed, kind, ways=None):
        self.name, self.rng = name, folders.Random(seed)
        self.model = folders.Folder(self.rng, kind)
        self.ways = ways or [shown.plain, *self.rng.sample(shown.WAYS, LOOKS), shown.lost]
        self.numbers, self.known = itertools.count(), {}

    def describe(self):
        return f"{self.model.describe()}\n  looked at by {', '.join(w.__name__ for w in self.ways)}"

    def new(self, name):
        """A path that nothing has."""
        return os.path.join(self.folder, f"{next(self.numbers)}-{name}")

    def write(self, folder):
        self.folder, self.source = folder, os.path.join(folder, "quantized")
        self.model.write(self.source)
        self.model.path = self.source
        return self.source, {}

    def truth(self, dtype):
        if dtype not in self.known:
            self.known[dtype] = self.model.truth(dtype)
        return self.known[dtype]

    def plain_folder(self, dtype=None):
        path = os.path.join(self.folder, f"plain-{dtype}")
        if not os.path.exists(path):
            self.model.write_truth(path, dtype)
        return path

    def check_oracle(self, folder):
        del folder
        return shown.torch_reader(self)

    def check_views(self, folder, source, options):
        del folder, source, options
        return next((f"{way.__name__}: {said}" for way in self.ways if (said := way(self))), None)


def make(seed, number):
    kinds = list(formats.MAKERS)
    said = seed.split(".")[0]
    return Case(f"quantized-{seed}-{number}", f"{seed}/{number}", said if said in kinds else kinds[number % len(kinds)])


def model(name, config, program):
    def made(full):
        rng = folders.Random(full)
        return models.Case(full, rng, config(), program(rng))

    made.__doc__ = f"transformers loads {name} from a view as it dequantizes the folder itself"
    return made


def config_changes(name):
    """another config, with the same tensors, gives other numbers"""
    return Changed(name)


FIXED["quantized-config-changes"] = config_changes
FIXED.update({f"quantized-model-{name}": model(name, *how) for name, how in models.CASES.items()})
FIXED.update({**refusals.FIXED, **costs.FIXED})


def prepare():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
