# SPDX-License-Identifier: Apache-2.0
"""The family "pairs": each source that describes itself, through each view, read by the program that the view is for.

A row of src/formats/formats.c that has no source here, or a word of view= or format= without a reader, is a failure.
"""
import glob
import json
import os
import re
import subprocess
import sys
import types

import torch
from safetensors.torch import load_file
from torch.distributed import checkpoint
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import compared
import dcp_program
import hyper_program
from dcp_cases import numbered
from dcp_program import Plain, Sharded
from tensor_bytes import bits

here = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(here, "..", "torch"))
import hfai as hfai_model  # noqa: E402

FIXED = {}
NAMES = {torch.float32: "Float32", torch.bfloat16: "BFloat16", torch.int64: "Int64"}  # of MindSpore

# Halves of an adapter are among them, for view=peft. Nothing is of a shape that a flattened one could be.
TENSORS = {"model.w": numbered(6, 3), "model.layers.0.q": numbered(4, 2, 3, dtype=torch.bfloat16), "model.bias": numbered(5),
           "model.n": numbered(2, 3, dtype=torch.int64), "model.scalar": torch.tensor(3.5),
           "base_model.model.l.lora_A.weight": numbered(2, 6), "base_model.model.l.lora_B.weight": numbered(8, 2)}
SHARDED = {(name,): Sharded(full, (2,), [0]) if full.ndim else Plain(full) for name, full in TENSORS.items()}


# ---- the truth -----------------------------------------------------------------------------------------------


class Near:
    """A value that another program computed: close is enough."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.shape, self.dtype = tensor.shape, torch.float32

    def is_like(self, have):
        return torch.allclose(have.double(), self.tensor.double(), rtol=1e-2, atol=1e-5)


def is_like(have, want):
    if have.shape != want.shape:
        return False
    if isinstance(want, Near):
        return want.is_like(have)
    return have.dtype == want.dtype and bits(have) == bits(want)


def differ(have, want):
    """None, or how {name: tensor} is not the truth."""
    if sorted(have) != sorted(want):
        return f"it has {sorted(have)} instead of {sorted(want)}"
    return next((f"{name} is {have[name].dtype}{list(have[name].shape)} {have[name].tolist()}"
                 for name in want if not is_like(have[name], want[name])), None)


# ---- MindSpore, in a process of its own ------------------------------------------------------------------------


class MindSpore:
    process = None

    @classmethod
    def ask(cls, do, **what):
        if cls.process is None:
            environment = {**os.environ, "PYTHONPATH": os.path.join(os.environ["RFS_MINDFORMERS"], "numpy")}
            cls.process = subprocess.Popen([os.environ["RFS_TEST_MINDFORMERS"], "-B", os.path.join(here, "pairs_mindspore.py")],
                                           env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           stderr=subprocess.DEVNULL)
        print(json.dumps({"do": do, **what}), file=cls.process.stdin, flush=True)
        answer = json.loads(cls.process.stdout.readline() or '{"failed": "it has ended"}')
        if "failed" in answer:
            raise RuntimeError(f"MindSpore, {do}: {answer['failed']}")
        return answer

    @classmethod
    def tensors(cls, do, **what):
        types = {name: dtype for dtype, name in NAMES.items()}
        return {name: torch.frombuffer(bytearray.fromhex(content), dtype=types[dtype]).reshape(shape)
                for name, (dtype, shape, content) in cls.ask(do, **what).items()}


# ---- sources: each gives the path of a save, and what is in it -------------------------------------------------

SOURCES = {}  # name -> (row of formats.c, function)


def source(row):
    def add(function):
        SOURCES[function.__name__] = row, function
        return function
    return add


@source("dcp")
def dcp(folder):
    dcp_program.save(folder, 2, SHARDED)
    return folder, TENSORS


FLATTENED = {name: {"shape": list(t.shape), "front": 0, "pieces": [1] * t.ndim, "cuts": [1]}
             for name, t in TENSORS.items() if t.ndim}
FLATTENED["layers.w"] = {"shape": [3, 4, 6], "front": 1, "pieces": [3, 1, 1], "cuts": [7]}


def run_megatron(what, folder):
    """Saves FLATTENED, or compares what it loads."""
    ran = subprocess.run([sys.executable, "-B", os.path.join(here, "flattened_program.py"), what, folder], text=True,
                         input=json.dumps(FLATTENED), capture_output=True, check=False, timeout=300)
    if ran.returncode:
        raise RuntimeError(f"Megatron, {what}: {ran.stderr.strip()}")


@source("dcp")
def megatron(folder):
    """Megatron flattens what it saves, and says the shapes in the metadata."""
    where = os.path.join(folder, "iter_0000001")
    run_megatron("save", where)
    return where, {name: numbered(*spec["shape"]) for name, spec in FLATTENED.items()}


@source("shards")
def shards(folder):
    dcp_program.save(folder, 2, SHARDED, writer=dcp_program.safetensors_writer)
    return folder, TENSORS


@source("fsdp")
def fsdp(folder):
    dcp_program.save_ranks(folder, 2, SHARDED)
    return folder, TENSORS


@source("hyper_parallel")
def hyper_parallel(folder):
    hyper_program.save(folder, 2, SHARDED, hyper_program.Options())
    return folder, TENSORS


@source("mindformers")
def mindformers(folder):
    given = {name: [NAMES[t.dtype], list(t.shape), bits(t).hex()] for name, t in TENSORS.items()}
    return MindSpore.ask("save", folder=folder, tensors=given), TENSORS


@source("hfai")
def hfai(folder):
    """Tensors of more than 8 bytes are flattened and cut over all parts."""
    model = types.SimpleNamespace(state_dict=lambda: TENSORS, named_buffers=lambda: [])
    hfai_model.save(folder, [model], [], {}, 3, 8)
    return folder, TENSORS


def of_zero(folder, stage, converted=False):
    """A training: zero_to_fp32 says what the weights are, and torch in one process what the moments are near to."""
    import zero_program as program
    leaves = [{"name": "a", "params": {"weight": [6, 3], "bias": [5]}},
              {"name": "b.c", "params": {"weight": [2, 3, 4], "cold": [3, 3]}, "frozen": ["cold"]}]
    leaves += [{"name": f"base_model.model.l.lora_{ab}", "params": {"weight": shape}} for ab, shape in (("A", [2, 6]), ("B", [8, 2]))]
    spec = {"stage": stage, "world": 2, "type": "float32", "steps": 2, "seed": 1, "groups": 1, "leaves": leaves}
    os.makedirs(folder)
    program.save(spec, folder)
    want, expected = dict(program.merged(folder)), program.expected(spec)
    lost = {"step"} if converted and stage == 3 else set()
    want.update({f"optim.state.{name}.{key}": Near(value) for name, keys in expected["state"].items()
                 for key, value in keys.items() if key not in lost})
    for name in expected["frozen"]:
        want.setdefault(name, Near(expected["weights"][name]))
    save = os.path.join(folder, f"global_step{spec['steps']}")
    if converted:
        program.convert(save, save + "_universal")
        save += "_universal"
    return save, want


@source("zero")
def zero_1(folder):
    return of_zero(folder, 1)


@source("zero")
def zero_2(folder):
    return of_zero(folder, 2)


@source("zero")
def zero_3(folder):
    return of_zero(folder, 3)


@source("zero")
def universal(folder):
    return of_zero(folder, 2, True)


@source("zero")
def universal_of_3(folder):
    return of_zero(folder, 3, True)


# ---- readers: each gives {name: tensor} of an exported view ------------------------------------------------------


def together(read, folder, pattern):
    """What all files have; a name is in one of them."""
    out = {}
    for path in sorted(glob.glob(os.path.join(folder, "**", pattern), recursive=True)):
        more = read(path)
        assert not set(more) & set(out), f"{sorted(set(more) & set(out))} is in two files"
        out.update(more)
    return out


def by_mindspore(form):
    return lambda path: MindSpore.tensors("load", path=path, format=form)


def read_dcp(folder, want):
    """Into tensors of the right shapes, and as one file of torch.save: by what .metadata says."""
    into = {name: torch.empty(t.shape, dtype=t.dtype) for name, t in want.items()}
    checkpoint.load(into, storage_reader=checkpoint.FileSystemReader(folder), no_dist=True)
    path = folder + ".pt"
    dcp_to_torch_save(folder, path)
    if said := differ(torch.load(path, weights_only=False), want):
        raise AssertionError(f"dcp_to_torch_save: {said}")
    return into


def read_flattened(folder, want):
    run_megatron("load", folder)
    return want


def read_mindformers(folder, want):
    return MindSpore.tensors("resume", folder=folder, infos={n: [NAMES[t.dtype], list(t.shape)] for n, t in want.items()})


def read_hfai(folder, _want):
    return dict(hfai_model.load(folder)["model"])


READERS = {  # word of view= or format= -> ([options], reader)
    "ranks": (["view=ranks,format=safetensors"], lambda folder, _: together(load_file, folder, "*.safetensors")),
    "ckpt": (["format=ckpt"], lambda folder, _: together(by_mindspore("ckpt"), folder, "*.ckpt")),
    "safetensors": (["format=safetensors"], lambda folder, _: together(by_mindspore("safetensors"), folder, "*.safetensors")),
    "pt": (["format=pt"], lambda folder, _: together(torch.load, folder, "*.pt")),
    "huggingface": (["view=huggingface,only=*", "view=huggingface,only=*,file_size=100"],
                    lambda folder, _: together(load_file, folder, "*.safetensors")),
    "unified": (["view=unified", "view=unified,file_size=100"],
                lambda folder, _: together(by_mindspore("safetensors"), folder, "*.safetensors")),
    "dcp": (["view=dcp", "view=dcp,dst_ranks=3,chunk_size=20"], read_dcp),
    "mindformers": (["view=mindformers"], read_mindformers),
    "hyper_parallel": (["view=hyper_parallel", "view=hyper_parallel,dst_ranks=3"], lambda folder, _: hyper_program.read(folder)),
    "peft": (["view=peft,lora_alpha=4,only=base_model.model.l.*"], lambda folder, _: together(load_file, folder, "*.safetensors")),
    "hfai": (["nshards=2,large_size=8"], read_hfai)}
# Views of some sources have readers of their own: Megatron alone unflattens its tensors.
OTHERS = {("megatron", "dcp"): (["view=dcp,dst_ranks=3,chunk_size=20"], read_flattened),
          ("hfai", "pt"): (["format=pt"], lambda folder, _: torch.load(os.path.join(folder, "merged", "model.pt")))}
ELSEWHERE = {"gguf"}  # tests/quantized/run reads these, where their programs are
# Pairs that are refused, and what is said.
REFUSED = {("hfai", word): "has no effect on a source in hfai's parts" for word in READERS if word not in ("hfai", "pt")}


def words():
    """Those of the options, and rows of the table: {folder: whether it describes itself}."""
    top = os.path.join(here, "..", "..", "src")
    with open(os.path.join(top, "base", "options.c"), encoding="utf-8") as file:
        shown = re.findall(r"static const char \*const shown\[\] = \{([^}]*)\}", file.read())[0]
    with open(os.path.join(top, "formats", "words.h"), encoding="utf-8") as file:
        formats = re.findall(r'ROW\(\w+, "(\w+)"\)', file.read())
    with open(os.path.join(top, "formats", "formats.c"), encoding="utf-8") as file:
        rows = re.findall(r'\[RFS_(FORMAT|ROW)_\w+\] = \{\.folder = "(\w+)"', file.read())
    return sorted({*formats, *re.findall(r'"(\w+)"', shown)} - ELSEWHERE), {folder for kind, folder in rows if kind == "ROW"}


class Case:
    def __init__(self, name, source):
        self.name, self.source = name, source

    def describe(self):
        return f"    {self.source}"

    def write(self, folder):
        self.path, self.want = SOURCES[self.source][1](os.path.join(folder, "checkpoint"))
        return self.path, {}

    def check_oracle(self, _folder):
        return None

    def check_views(self, folder, source, _options):
        said = []
        for word in READERS:
            if (word == "hfai") <= (self.source == "hfai"):  # hfai's parts have a view of their own
                all_options, read = OTHERS.get((self.source, word), READERS[word])
                said += [self.check_pair(source, word, options, read, os.path.join(folder, f"{word}-{i}"))
                         for i, options in enumerate(all_options)]
        return "\n  ".join(filter(None, said)) or None

    def check_pair(self, source, word, options, read, out):
        done = compared.run("export", source, out, "-o", options)
        refused = REFUSED.get((self.source, word))
        if refused:
            as_told = done.returncode and refused in done.stdout and not os.path.exists(out)
            return None if as_told else f"{options}: exit {done.returncode} instead of a refusal with '{refused}': {done.stdout}"
        if done.returncode:
            return f"{options}: exit {done.returncode}: {done.stdout.strip()}"
        try:
            os.remove(os.path.join(out, "reshard-manifest.json"))
            want = {n: t for n, t in self.want.items() if word != "peft" or n.startswith("base_model.model.l.")}
            said = differ(read(out, want), want)
        except (Exception, checkpoint.CheckpointException) as error:  # noqa: BLE001 - a program that cannot read it says so
            said = str(error).strip().splitlines()[-1]
        return f"{options}: {said}" if said else None


class AllRows:
    """Nothing is left out of the tables of this file."""

    def __init__(self, name):
        self.name = name

    def describe(self):
        return ""

    def write(self, _folder):
        return None, None

    def check_oracle(self, _folder):
        return None

    def check_views(self, *_):
        options, rows = words()
        have = {row for row, _ in SOURCES.values()}
        if have != rows:
            return f"there are sources of {sorted(have)}, and formats.c has {sorted(rows)}"
        if sorted(READERS) != sorted([*options, "hfai"]):
            return f"there are readers of {sorted(READERS)}, and the options have {options}"
        return None


FIXED["pairs-all-rows"] = AllRows
for _name in SOURCES:
    FIXED["pairs-" + _name.replace("_", "-")] = lambda name, source=_name: Case(name, source)


def prepare():
    pass


def make(_seed, number):
    raise ValueError(f"there are no random pairs: {number}")
