# SPDX-License-Identifier: Apache-2.0
"""
The Python package beside the loaders that one would pick instead: run:ai's model streamer, fastsafetensors, safetensors'
load_file with a copy of each tensor, and torch's readers of DCP and of HuggingFace's files. All end with tensors of their
own in memory. Theirs load the file that `reshard export` has made of a rank; ours loads that file, and the rank from its
sources. The processes are this program, with the name of a side and its arguments, as in loaders.py.
"""
import json
import os
import shutil
import subprocess
import sys

import loaders
import objects
import steady
from loaders import MIB, RANK, timed

BUCKET_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
               "AWS_EC2_METADATA_DISABLED": "true", "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"}


# ---- sides: each returns the seconds that it took ------------------------------------------------


def ready(path):
    """Ours, of a file that needs no resharding."""
    import reshard
    import torch  # noqa: F401

    return timed(lambda: reshard.load(path, framework="torch"))


def load_file_clone(path):
    import safetensors.torch

    return timed(lambda: {name: t.clone() for name, t in safetensors.torch.load_file(path).items()})


def runai(path):
    """Its tensors lie in a buffer that is used again, so that each is copied by who keeps it."""
    from runai_model_streamer import SafetensorsStreamer

    def load():
        with SafetensorsStreamer() as streamer:
            streamer.stream_files([path])
            return {name: tensor.clone() for name, tensor in streamer.get_tensors()}
    return timed(load)


def fastsafetensors(path):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    def load():
        loader = SafeTensorsFileLoader(SingleGroup(), device="cpu", nogds=True)
        loader.add_filenames({0: [path]})
        buffers = loader.copy_files_to_device()
        return loader, buffers, {name: buffers.get_tensor(name) for name in loader.get_keys()}
    return timed(load)


def filled(reader, like):
    """A load of torch.distributed.checkpoint into new tensors like those of a file, of one process."""
    import safetensors.torch
    import torch
    import torch.distributed.checkpoint as dcp

    state = {name: torch.empty(t.shape, dtype=t.dtype) for name, t in safetensors.torch.load_file(like).items()}
    return timed(lambda: dcp.load(state, storage_reader=reader(), no_dist=True))


def dcp_reader(folder, like):
    from torch.distributed.checkpoint import FileSystemReader

    return filled(lambda: FileSystemReader(folder), like)


def huggingface_reader(path):
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    return filled(lambda: HuggingFaceStorageReader(os.path.dirname(path)), path)


SIDES = {side.__name__: side for side in (loaders.ours, ready, load_file_clone, runai, fastsafetensors, dcp_reader,
                                          huggingface_reader)}
# Peers of the file of a rank: their package, their side, and what is asked of ours of a rank, and of the ready file.
PEERS = (("run:ai's model streamer", "runai_model_streamer", "runai", 0.3, None),
         ("fastsafetensors", "fastsafetensors", "fastsafetensors", None, None),
         ("safetensors' load_file and copies", "safetensors", "load_file_clone", None, 1.1),
         ("torch's HuggingFaceStorageReader", "torch", "huggingface_reader", None, None))


# ---- the figures -------------------------------------------------------------------------------


class Peers(loaders.Loaders):
    """The programs: a Python that has the packages, all or some."""

    program = os.path.abspath(__file__)

    def has(self, package):
        return subprocess.run([self.torch, "-c", f"import {package}"], env=self.environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False).returncode == 0


def write(peers, size):
    """A transformer of 8 ranks, and what its rank 0 of 4 is as a file, and as a folder of DCP."""
    bench = peers.bench
    tree = bench.example("peers", ["--layers", "8", "--cut", "tp", "--hidden", "2048"], size, (8, 4))
    named = [word for option in tree.options() for word in ("-o", option)]
    out, dcp = tree.folder + "-ready", tree.folder + "-dcp"
    subprocess.run([bench.reshard, "export", tree.source, out, "--no-fsync", "-o", "format=safetensors", *named],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    path = os.path.join(out, f"rank_{RANK}", f"checkpoint_{RANK}.safetensors")
    subprocess.run([bench.reshard, "export", path, dcp, "--no-fsync", "-o", "view=dcp"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    steady.write_out(bench.work)
    return tree, path, dcp


def files_below(*folders):
    return [os.path.join(folder, name) for top in folders for folder, _, names in os.walk(top) for name in names]


class Cold:
    """A side whose files are taken out of the page cache first, or put into it. It gets SIZE bytes of memory that are there."""

    def __init__(self, files, cold, size):
        self.prepare, self.files, self.size = (steady.forget if cold else steady.remember), files, size

    def __call__(self, side):
        def run():
            self.prepare(*self.files)
            steady.fetch_memory(self.size)
            return side()
        return run


def rounds_of(peers, there, files, number, cold, figures):
    tree, path, dcp = files
    prepared = Cold(files_below(tree.source, os.path.dirname(path), dcp), cold, 2 * os.path.getsize(path))
    where = ", from the disk" if cold else ""
    options = json.dumps(dict(zip(("src_strategy", "dst_strategy"), tree.strategies)))
    rank = prepared(lambda: peers.ask(peers.torch, "ours", "torch", tree.source, options))
    file = prepared(lambda: peers.ask(peers.torch, "ready", path))
    sides = [(name, prepared(lambda side=side: peers.ask(peers.torch, side, path)), of_rank, of_file)
             for name, _, side, of_rank, of_file in there]
    sides.append(("torch's FileSystemReader", prepared(lambda: peers.ask(peers.torch, "dcp_reader", dcp, path)), None, None))
    for name, theirs, of_rank, of_file in sides:
        loaders.both(figures, f"load of a rank / {name}{where}", number, None if cold else of_rank, rank, theirs)
        loaders.both(figures, f"load of its ready file / {name}{where}", number, None if cold else of_file, file, theirs)


def from_bucket(peers, files, rounds, figures):
    """The ready file, from a server that answers as a bucket does: any request for a range."""
    _, path, _ = files
    with objects.serving(peers.bench, ["0"]) as url:
        peers.environment.update(BUCKET_KEYS, AWS_ENDPOINT_URL=url, no_proxy="*")
        bucket, _, key = os.path.relpath(path, peers.bench.work).partition("/")
        for number in range(rounds):
            loaders.both(figures, "load of a ready file by HTTP / run:ai's model streamer from S3", number, 0.9,
                         lambda: peers.ask(peers.torch, "ready", f"{url}/{bucket}/{key}"),
                         lambda: peers.ask(peers.torch, "runai", f"s3://{bucket}/{key}"))


def measure(bench, python, size, rounds, figures, say):
    peers = Peers(bench, None, python)
    problem = peers.missing(python, "torch")
    if problem:
        say(f"skipped: other loaders: {problem}")
        return
    there = [peer for peer in PEERS if peers.has(peer[1])]
    for name, package, *_ in PEERS:
        if all(package != each[1] for each in there):
            say(f"skipped: {name}: {python} has no {package}; try: pip install {package.replace('_', '-')}")
    files = write(peers, size)
    for number in range(rounds):
        for cold in (False, True):
            say(f"loading {os.path.getsize(files[1]) // MIB} MiB beside other loaders, {'from the disk' if cold else 'in memory'}, "
                f"round {number + 1} of {rounds}")
            rounds_of(peers, there, files, number, cold, figures)
    if any(side == "runai" for _, _, side, *_ in there):
        try:
            from_bucket(peers, files, rounds, figures)
        except RuntimeError as problem:
            say(f"skipped: run:ai's model streamer from S3: {problem}")
    for folder in (files[0].folder, os.path.dirname(os.path.dirname(files[1])), files[2]):
        shutil.rmtree(folder)


if __name__ == "__main__":
    print("RESULT " + json.dumps(SIDES[sys.argv[1]](*sys.argv[2:])), flush=True)
