# SPDX-License-Identifier: Apache-2.0
"""Folders of HuggingFace models, and what views of converted checkpoints show."""
import json
import os
import subprocess

import architectures
import compared
import loading
import numpy as np
import random_cases
import safetensors_file
from layouts import Item, Layout, Strategy
from model import cut
from values import STORED, Value

RULES = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "convert"))
DTYPES = {"F32": "Float32", "BF16": "BFloat16", "F16": "Float16", "I32": "Int32", "I64": "Int64"}
OTHER_FILES = {"generation_config.json": '{"do_sample": false}\n', "tokenizer.json": '{"version": "1.0"}\n',
               "tokenizer_config.json": '{"model_max_length": 32}\n'}
TIMES_MOUNTED = 4  # of so many cases one is mounted, too


def rules(name):
    return os.path.join(RULES, {"mistral": "llama", **architectures.LIKE}.get(name, name) + ".rules")


class Saver:
    """The process of the current transformers that makes configs; started by the first."""
    process = None

    @classmethod
    def save(cls, config):
        if not cls.process:
            environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "saved_config.py")
            cls.process = subprocess.Popen([os.environ["RFS_TRANSFORMERS"], "-B", program], env=environment, text=True,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        print(json.dumps(config), file=cls.process.stdin, flush=True)
        return json.loads(cls.process.stdout.readline())


def write_config(path, config, **changed):
    """As save_pretrained of transformers has it; then some keys have other values, or none where that is None."""
    kind = config["model_type"]
    saved = {**Saver.save({**config, "model_type": architectures.LIKE.get(kind, kind)}), "model_type": kind, **changed}
    with open(path, "w", encoding="utf-8") as out:
        json.dump({k: v for k, v in saved.items() if k not in changed or v is not None}, out, indent=2)


def write_huggingface(folder, model, tensors, files=1):
    """config.json and what stands beside it, and TENSORS in so many files."""
    os.makedirs(folder)
    write_config(os.path.join(folder, "config.json"), model.config)
    for name, text in OTHER_FILES.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            out.write(text)
    named = list(tensors.items())
    if files == 1:
        write_tensors(os.path.join(folder, "model.safetensors"), tensors)
        return
    where = {}
    for k in range(files):
        name = f"model-{k + 1:05d}-of-{files:05d}.safetensors"
        write_tensors(os.path.join(folder, name), dict(named[k::files]))
        where.update({tensor: name for tensor, _ in named[k::files]})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
        json.dump({"metadata": {"total_size": sum(v.data.nbytes for v in tensors.values())}, "weight_map": where}, out)


def write_tensors(path, tensors):
    kinds = {ours: theirs for theirs, ours in DTYPES.items()}
    safetensors_file.write(path, [(n, kinds[v.dtype], v.shape, np.ascontiguousarray(v.data).tobytes())
                                  for n, v in tensors.items()])


def fitting_layout(rng, devices, shape):
    """A random layout that divides the shape, and that a strategy in JSON can say."""
    for _ in range(8):
        layout = random_cases.random_layout(rng, devices, len(shape))
        layout.opt, layout.nested = 0, False
        if all(len(a) < 2 for a in layout.axes) and \
                all(size % pieces == 0 for size, pieces in zip(shape, layout.cut_pieces())):
            return layout
    return Layout([devices], [-1] * len(shape))


def write_ranks(folder, tensors, layouts):
    """Files of ranks, and their strategy in FOLDER.json."""
    for rank in range(next(iter(layouts.values())).devices()):
        os.makedirs(os.path.join(folder, f"rank_{rank}"))
        write_tensors(os.path.join(folder, f"rank_{rank}", "net.safetensors"),
                      {n: v.with_data(cut(v.data, layouts[n], rank)) for n, v in tensors.items()})
    Strategy([Item(n, layouts[n], v.shape) for n, v in tensors.items()], "json").write(folder + ".json")


def read_file(path):
    """name -> Value of a safetensors file."""
    return {name: Value(DTYPES[kind], np.frombuffer(bytes(data), dtype=STORED[DTYPES[kind]]).reshape(shape))
            for name, kind, shape, data in safetensors_file.entries(path)}


def read_safetensors(folder):
    """name -> Value of all files of a folder."""
    out = {}
    for file in sorted(n for n in os.listdir(folder) if n.endswith(".safetensors")):
        found = read_file(os.path.join(folder, file))
        assert not set(found) & set(out), f"{sorted(set(found) & set(out))} are in two files"
        out.update(found)
    return out


def tensors_differ(have, want):
    """None, or how name -> Value differs from what is wanted."""
    missing, more = sorted(set(want) - set(have)), sorted(set(have) - set(want))
    if missing or more:
        return f"lacks {missing[:5]}, has {more[:5]} instead"
    for name, value in want.items():
        got = have[name]
        if (got.dtype, got.shape) != (value.dtype, value.shape):
            return f"{name} is {got.dtype}{list(got.shape)} instead of {value.dtype}{list(value.shape)}"
        if got.data.tobytes() != value.data.tobytes():
            return f"{name} has other values"
    return None


def huggingface_differs(folder, config, want):
    """None, or how a view with HuggingFace's names differs from the tensors WANT and the files beside CONFIG."""
    beside = os.path.dirname(config)
    for name in ["config.json", *OTHER_FILES]:
        with open(os.path.join(beside, name), "rb") as a:
            if not os.path.exists(os.path.join(folder, name)):
                return f"{name} is not shown"
            with open(os.path.join(folder, name), "rb") as b:
                if a.read() != b.read():
                    return f"{name} is another one"
    return tensors_differ(read_safetensors(folder), want)


def is_mounted(name):
    """Whether this case is mounted as well; by its name, so that it replays."""
    return sum(map(ord, name)) % TIMES_MOUNTED == 0 and not os.environ.get("RFS_NO_FUSE")


def check(case, source, target, options, differs):
    """None, or how an export, and for some cases a mount, differs; DIFFERS(folder) tells."""
    problem = compared.export(case, source, target, options)
    if problem or case.refusal:
        return problem
    problem = differs(target) or loading.differs(source, compared.given(options), case.name)
    if problem or not is_mounted(case.name):
        return problem
    with compared.mounted(source, target + "-mnt", options):
        problem = differs(target + "-mnt")
    return problem and f"mounted: {problem}"
