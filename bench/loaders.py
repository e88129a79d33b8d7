#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The Python package beside the loaders of MindSpore, safetensors and torch: a part of bench/run. Theirs load a rank's
file that `reshard export` has made before, ours loads the rank from the sources. Each load is the first one of a
process of its own, as in a training that starts, and what it imports is not in its time. The processes are this
program, with the name of a side and its arguments.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import steady

MIB = 1 << 20
GIB = 1 << 30
RANK = 0
PROCESSES = 4  # that load a checkpoint of torch at once
ROW_ELEMS = 16384  # a square of them has a GiB


# ---- sides: each returns what it has measured ----------------------------------------------------


def timed(call):
    """Seconds; what the call returns is kept until they are taken."""
    begin = time.monotonic()
    kept = call()
    took = time.monotonic() - begin
    del kept
    return took


def ours(framework, source, options):
    import reshard

    __import__(framework)
    return timed(lambda: reshard.load(source, rank=RANK, framework=framework, **json.loads(options)))


def load_checkpoint(path):
    import mindspore

    return timed(lambda: mindspore.load_checkpoint(path))


def torch_load(path):
    import torch

    return timed(lambda: torch.load(path, weights_only=True))


def load_file(path):
    """Maps the file: no tensor is read before it is used."""
    import safetensors.torch

    return timed(lambda: safetensors.torch.load_file(path))


def model_of(path):
    """Tensors like those of a file, with memory that is in use."""
    import safetensors.torch
    import torch

    return {name: torch.ones(t.shape, dtype=torch.float32).to(t.dtype)
            for name, t in safetensors.torch.load_file(path).items()}


def fill_ours(path, source, options):
    import reshard

    model = model_of(path)
    return timed(lambda: reshard.load(source, rank=RANK, framework="torch", into=model, **json.loads(options)))


def fill_theirs(path):
    """What load_state_dict does with each tensor."""
    import safetensors.torch

    model = model_of(path)

    def fill():
        for name, tensor in safetensors.torch.load_file(path).items():
            model[name].copy_(tensor)
    return timed(fill)


def status(name):
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def fill_memory(path, source, options):
    """The peak of resident memory above that before the model was made, and the bytes of the model."""
    import reshard
    import torch  # noqa: F401

    with reshard.View(source, **json.loads(options)) as view:
        shapes = {t.name: (t.shape, getattr(torch, t.dtype)) for t in view.tensors(RANK).values()}
    before = status("VmRSS")
    model = {name: torch.ones(shape, dtype=torch.float32).to(dtype) for name, (shape, dtype) in shapes.items()}
    reshard.load(source, rank=RANK, framework="torch", into=model, **json.loads(options))
    return status("VmHWM") - before, sum(t.nbytes for t in model.values())


def row(source):
    """The bytes that a row of a tensor has, and those that were read for it, by the kernel's count."""
    import reshard

    def read_bytes():
        with open("/proc/self/io", encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))
    with reshard.View(source, format="pt") as view:
        tensor = view.tensors()["weight0"]
        tensor[0]
        before = read_bytes()
        got = tensor[ROW_ELEMS // 2]
        # Reading the count is counted, too: less than 200 bytes.
        return read_bytes() - before, got.nbytes


def in_group(rank, meeting):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=PROCESSES)
    return dist


def sharded(axis, rows, tensors):
    """Square tensors of DTensor, cut along an axis."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, ones

    mesh = init_device_mesh("cpu", (PROCESSES,))
    return {f"weight{i}": ones((int(rows), int(rows)), dtype=torch.float32, device_mesh=mesh, placements=[Shard(axis)])
            for i in range(int(tensors))}


def dcp_save(rank, meeting, folder, rows, tensors):
    import torch.distributed.checkpoint as dcp

    dist = in_group(rank, meeting)
    dcp.save(sharded(1, rows, tensors), checkpoint_id=folder)
    dist.destroy_process_group()
    return 0


def dcp_load(rank, meeting, folder, rows, tensors, who):
    """Seconds until all processes have their tensors, which are cut along the first axis."""
    import torch.distributed.checkpoint as dcp

    import reshard.torch

    dist = in_group(rank, meeting)
    state = sharded(0, rows, tensors)
    dist.barrier()
    begin = time.monotonic()
    reader = reshard.torch.StorageReader(folder) if who == "ours" else dcp.FileSystemReader(folder)
    dcp.load(state, storage_reader=reader)
    dist.barrier()
    took = time.monotonic() - begin
    dist.destroy_process_group()
    return took


SIDES = {side.__name__: side for side in (ours, load_checkpoint, torch_load, load_file, fill_ours, fill_theirs,
                                          fill_memory, row, dcp_save, dcp_load)}


# ---- the figures -------------------------------------------------------------------------------


class Loaders:
    """The programs, and the package with the library that was built."""

    program = os.path.abspath(__file__)  # what has the sides

    def __init__(self, bench, mindspore, torch):
        self.bench, self.mindspore, self.torch = bench, mindspore, torch
        package = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python")
        self.environment = {**os.environ, "PYTHONPATH": package, "PYTHONWARNINGS": "ignore",
                            "PYTHONPYCACHEPREFIX": bench.path("pycache"),  # compiled once, like an installed package
                            "RESHARD_LIBRARY": os.path.join(bench.build, ".libs", "libreshard.so")}

    def missing(self, python, what):
        if not os.path.exists(self.environment["RESHARD_LIBRARY"]):
            return "there is no shared library; try: ./configure without --disable-shared"
        return None if os.access(python, os.X_OK) else f"no {what} at {python}; scripts/test installs it"

    def start(self, python, side, *arguments):
        return subprocess.Popen([python, self.program, side, *map(str, arguments)],
                                env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(self, python, side, *arguments):
        return answer(self.start(python, side, *arguments))

    def group(self, side, *arguments):
        """Asks processes that meet; the longest time."""
        with tempfile.TemporaryDirectory(dir=self.bench.work) as folder:
            meeting = os.path.join(folder, "meeting")
            processes = [self.start(self.torch, side, rank, meeting, *arguments) for rank in range(PROCESSES)]
            return max([answer(process) for process in processes])


def answer(process):
    """What a side has measured."""
    said = process.communicate()[0]
    lines = [line for line in said.splitlines() if line.startswith("RESULT ")]
    if process.returncode or not lines:
        raise RuntimeError(f"exit {process.returncode} of {' '.join(process.args)}: {said}")
    return json.loads(lines[-1][len("RESULT "):])


def both(figures, name, number, asked, mine, theirs):
    """One figure of a round; the sides go first in turn."""
    took = {}
    for side in ((mine, theirs) if number % 2 else (theirs, mine)):
        took[side] = side()
    figures.add(name, took[mine] / took[theirs], asked, at_most=True,
                note=f"{took[mine]:.3f} s, {took[theirs]:.3f} s")


def of_ranks(loaders, size, rounds, figures, say):
    """A rank of a transformer, cut anew, beside the files that a conversion has written."""
    bench = loaders.bench
    tree = bench.example("loaders", ["--layers", "8", "--cut", "tp", "--hidden", "2048"], size, (8, 4))
    tree.warm()
    options = dict(zip(("src_strategy", "dst_strategy"), tree.strategies))
    named = [word for option in tree.options() for word in ("-o", option)]
    files = {}
    for form in ("ckpt", "pt", "safetensors"):
        out = f"{tree.folder}-as-{form}"
        subprocess.run([bench.reshard, "export", tree.source, out, "--no-fsync", "-o", f"format={form}", *named],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        files[form] = os.path.join(out, f"rank_{RANK}", f"checkpoint_{RANK}.{form}")
    steady.write_out(bench.work)
    steady.remember(*files.values())
    source, text = tree.source, json.dumps(options)
    torch, ask = loaders.torch, loaders.ask
    problem = loaders.missing(loaders.mindspore, "MindSpore")
    if problem:
        say(f"skipped: loads for MindSpore: {problem}")
    for number in range(rounds):
        say(f"loading a rank of {os.path.getsize(files['pt']) // MIB} MiB, round {number + 1} of {rounds}")
        if not problem:
            # load_checkpoint refuses a file that does not fit into what is free beside the page cache.
            steady.fetch_memory(os.path.getsize(files["ckpt"]) + GIB)
            tree.warm()
            steady.remember(files["ckpt"])
            both(figures, "load for MindSpore / load_checkpoint of the local file", number, 0.35,
                 lambda: ask(loaders.mindspore, "ours", "mindspore", source, text),
                 lambda: ask(loaders.mindspore, "load_checkpoint", files["ckpt"]))
        both(figures, "load for torch / torch.load of the local file", number, 1.0,
             lambda: ask(torch, "ours", "torch", source, text), lambda: ask(torch, "torch_load", files["pt"]))
        both(figures, "load for torch / safetensors' load_file of the local file, which maps it", number, 1.2,
             lambda: ask(torch, "ours", "torch", source, text), lambda: ask(torch, "load_file", files["safetensors"]))
        both(figures, "load into a model / load_file, then copied into the model", number, 1.2,
             lambda: ask(torch, "fill_ours", files["safetensors"], source, text),
             lambda: ask(torch, "fill_theirs", files["safetensors"]))
    cache = 64
    used, state = ask(torch, "fill_memory", files["pt"], source, json.dumps({**options, "cache": f"{cache}M"}))
    allowed = state + (cache + 64) * MIB
    figures.add("load into a model: peak memory / (state + cache + index + 64 MiB)", used / allowed, 1.0, at_most=True,
                note=f"{used // MIB} of {allowed // MIB} MiB")
    for path in (tree.folder, *(os.path.dirname(os.path.dirname(path)) for path in files.values())):
        shutil.rmtree(path)


def of_torch(loaders, rounds, size, figures, say):
    """A checkpoint of torch, cut along the last axis and loaded as cut along the first."""
    bench = loaders.bench
    folder = bench.path("dcp")
    rows, tensors = 4096, max(1, size // (64 * MIB))
    loaders.group("dcp_save", folder, rows, tensors)
    steady.write_out(bench.work)
    steady.remember(*(os.path.join(folder, name) for name in os.listdir(folder)))
    for number in range(rounds):
        say(f"dcp.load of {tensors * 64} MiB, {PROCESSES} processes, round {number + 1} of {rounds}")
        both(figures, "dcp.load with our reader / with FileSystemReader", number, 0.7,
             lambda: loaders.group("dcp_load", folder, rows, tensors, "ours"),
             lambda: loaders.group("dcp_load", folder, rows, tensors, "theirs"))
    shutil.rmtree(folder)
    loaders.group("dcp_save", folder, ROW_ELEMS, 1)
    read, wanted = loaders.ask(loaders.torch, "row", folder)
    figures.add("a row of 1 GiB, cut along the other axis: bytes read / bytes of the row", read / wanted, 1.1, at_most=True,
                note=f"{read} of {wanted}")
    shutil.rmtree(folder)


def measure(bench, mindspore, torch, size, rounds, figures, say):
    loaders = Loaders(bench, mindspore, torch)
    problem = loaders.missing(torch, "torch")
    if problem:
        say(f"skipped: loads by Python: {problem}")
        return
    of_ranks(loaders, size, rounds, figures, say)
    of_torch(loaders, rounds, size // 2, figures, say)


if __name__ == "__main__":
    print("RESULT " + json.dumps(SIDES[sys.argv[1]](*sys.argv[2:])), flush=True)
