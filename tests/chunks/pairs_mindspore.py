# SPDX-License-Identifier: Apache-2.0
"""What the family "pairs" asks of MindSpore, in a process with its Python: a line of JSON on the standard input for each
question, and one on the standard output for each answer. A tensor is [dtype as MindSpore writes it, shape, bytes in hex].

    {"do": "save", "folder", "tensors"}   writes a Checkpoint 2.0 of two ranks; gives the iteration's folder
    {"do": "load", "path", "format"}      load_checkpoint; gives {name: tensor}
    {"do": "resume", "folder", "infos"}   what MindSpore Transformers loads for one rank; infos: {name: [dtype, shape]}
"""
import json
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "interop")]

import numpy as np  # noqa: E402

import oracle  # noqa: E402

oracle.quiet()
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # MindSpore may print

import mindspore as ms  # noqa: E402

import mindformers_program  # noqa: E402
import mindformers_saves as saves  # noqa: E402
import values  # noqa: E402
from layouts import Layout  # noqa: E402

oracle.ignore_free_memory()
program = mindformers_program.Program(os.environ["RFS_MINDFORMERS"], "2.1.0")


def value_of(dtype, shape, content):
    return values.Value(dtype, np.frombuffer(bytes.fromhex(content), dtype=values.STORED[dtype]).reshape(shape))


def told(named):
    out = {}
    for name, parameter in named.items():
        dtype, shape, content = values.loaded_bytes(parameter)
        out[name] = [dtype, list(shape), content.hex()]
    return out


def save(folder, tensors):
    """Cut by rows where that is even."""
    checkpoint = saves.Checkpoint("2.1.0", 2)
    for name, tensor in tensors.items():
        shape = tensor[1]
        cut = shape and shape[0] % 2 == 0
        layout = Layout([2], [0] + [-1] * (len(shape) - 1)) if cut else None
        checkpoint.tensors.append(saves.Tensor(name, value_of(*tensor), layout))
    return saves.write(program, checkpoint, folder)


def load(path, format):
    return told(ms.load_checkpoint(path, format=format))


def resume(folder, infos):
    named = {name: [None, saves.real_dtype(dtype), tuple(shape)] for name, (dtype, shape) in infos.items()}
    return told(program.load(folder, 0, 1, named))


for line in sys.stdin:
    asked = json.loads(line)
    try:
        answer = globals()[asked.pop("do")](**asked)
    except Exception as error:  # noqa: BLE001 - the other process fails with it
        answer = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), file=answers, flush=True)
