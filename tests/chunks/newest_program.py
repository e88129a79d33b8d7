# SPDX-License-Identifier: Apache-2.0
"""A Megatron-Core that writes no common.pt. Usage: newest_program.py save|load FOLDER; load compares what it gets."""
import argparse
import os
import sys
import types

here = os.path.dirname(os.path.abspath(__file__))
os.environ["RFS_MEGATRON"], older = os.environ["RFS_NEWEST_MEGATRON"], os.environ["RFS_MEGATRON"]
sys.path[:0] = [here, os.path.join(here, "..", "support")]
sys.path.append(older)  # for packages that it needs

# Its checkpoints need nothing of the layers that megatron.core imports, which need triton and a newer Python.
for module, folder in (("megatron", "megatron"), ("megatron.core", "megatron/core")):
    sys.modules[module] = types.ModuleType(module)
    sys.modules[module].__path__ = [os.path.join(os.environ["RFS_MEGATRON"], folder)]
sys.modules["megatron"].core = sys.modules["megatron.core"]

import torch  # noqa: E402

torch.compile = lambda function=None, **_: function or (lambda one: one)

import megatron.core.parallel_state  # noqa: E402,F401 - before others, which import it in a circle
import megatron_program as program  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402

ITEMS = {"decoder.layers.w": program.Layers(torch.arange(96.0).reshape(4, 6, 4), {0: 2, 1: 2}),
         "decoder.layers._extra_state": program.Object([1, "two", None, 4.0]), "iteration": 10,
         "args": argparse.Namespace(num_attention_heads=4, lr=0.5, model_type=ModelType.encoder_or_decoder)}


def compare(have):
    for key, value in ITEMS.items():
        if isinstance(value, program.Layers):
            same = all(torch.equal(have[f"{key}/{i}"], part) for i, (part, _) in enumerate(value.pieces()))
        elif isinstance(value, program.Object):
            same = [have[f"{key}/{i}"] for i in range(len(value.values))] == value.values
        else:
            same = have[key] == value
        if not same:
            sys.exit(f"{key} has other values")


program.start()
if sys.argv[1] == "save":
    program.save(sys.argv[2], 10, ITEMS)
else:
    compare(program.load(sys.argv[2], ITEMS))
