# SPDX-License-Identifier: Apache-2.0
"""
The Python package beside the loaders that one would pick instead: run:ai's model streamer, fastsafetensors, safetensors'
load_file with a copy of each tensor, torch's readers of DCP and of HuggingFace's files, and boto3. All end with tensors of
their own in memory. Theirs load the file that `reshard export` has made of a rank; ours loads that file, and the rank from
its sources. The processes are this program, with what is wanted of a side, its name and its arguments.
"""
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

import loaders
import objects
import steady
from loaders import MIB, RANK, timed

BUCKET_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
               "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
               "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"}
# Servers of the bucket: their words, and what is asked of ours of a rank, and of the ready file.
SERVERS = (("", ["0"], 0.9, 0.9), (", 20 ms and 30 MiB/s a connection", ["20", "30"], None, 0.9))


# ---- sides: each imports what it needs, and returns its load, which returns the tensors by name ----


def rank(source, options):
    """Ours, from the sources, of which nothing is known from before."""
    import reshard
    import torch  # noqa: F401

    return lambda: reshard.load(source, rank=RANK, framework="torch", index_cache="no", **json.loads(options))


def ready(path):
    """Ours, of a file that needs no resharding."""
    import reshard
    import torch  # noqa: F401

    return lambda: reshard.load(path, framework="torch")


def load_file_clone(path):
    import safetensors.torch

    return lambda: {name: t.clone() for name, t in safetensors.torch.load_file(path).items()}


def runai(path):
    from runai_model_streamer import SafetensorsStreamer
    if path.startswith("s3:"):
        import runai_model_streamer_s3.credentials.credentials  # noqa: F401

    def load():
        with SafetensorsStreamer() as streamer:
            streamer.stream_files([path], owned=True)
            return dict(streamer.get_tensors())
    return load


def fastsafetensors(path):
    import torch  # noqa: F401
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    kept = []

    def load():
        loader = SafeTensorsFileLoader(SingleGroup(), device="cpu", nogds=True)
        loader.add_filenames({0: [path]})
        buffers = loader.copy_files_to_device()
        kept.extend((loader, buffers))
        return {name: buffers.get_tensor(name) for name in loader.get_keys()}
    return load


def boto3(path):
    """Its transfers, into a file in memory, which is mapped."""
    import boto3 as aws
    import safetensors.torch

    bucket, _, key = path[len("s3://"):].partition("/")

    def load():
        with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".safetensors") as file:
            aws.client("s3").download_file(bucket, key, file.name)
            return safetensors.torch.load_file(file.name)
    return load


def filled(reader, like):
    """
    A load of torch.distributed.checkpoint into new tensors like those of a file, of one process. Only the header of that
    file is read: load_file would bring all of it into the page cache.
    """
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import _TYPES as types

    with open(like, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    state = {name: torch.empty(t["shape"], dtype=types[t["dtype"]]) for name, t in header.items() if name != "__metadata__"}

    def load():
        dcp.load(state, storage_reader=reader(), no_dist=True)
        return state
    return load


def dcp_reader(folder, like):
    from torch.distributed.checkpoint import FileSystemReader

    return filled(lambda: FileSystemReader(folder), like)


def huggingface_reader(path):
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    return filled(lambda: HuggingFaceStorageReader(os.path.dirname(path)), path)


def summed(load):
    """A digest of the names, types, shapes and bytes of all tensors."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(load().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


WANTED = {wanted.__name__: wanted for wanted in (timed, summed)}
SIDES = {side.__name__: side for side in (rank, ready, load_file_clone, runai, fastsafetensors, boto3, dcp_reader,
                                          huggingface_reader)}
# Peers of the file of a rank: their package, their side, and what is asked of ours of a rank, and of the ready file.
PEERS = (("run:ai's model streamer", "runai_model_streamer", "runai", 0.3, None),
         ("fastsafetensors", "fastsafetensors", "fastsafetensors", None, None),
         ("safetensors' load_file and copies", "safetensors", "load_file_clone", None, 1.1),
         ("torch's HuggingFaceStorageReader", "torch", "huggingface_reader", None, None))
# And of that file in a bucket.
BUCKET_PEERS = (("run:ai's model streamer from S3", "runai_model_streamer_s3", "runai"),
                ("boto3's download_file to memory and load_file", "boto3", "boto3"))


# ---- the figures -------------------------------------------------------------------------------


class Peers(loaders.Loaders):
    """The programs: a Python that has the packages, all or some."""

    program = os.path.abspath(__file__)

    def has(self, package):
        return subprocess.run([self.torch, "-c", f"import {package}"], env=self.environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False).returncode == 0

    def those_there(self, table, say):
        """The rows of a table whose packages are there; the others are named."""
        there = [row for row in table if self.has(row[1])]
        for name, package, *_ in table:
            if all(package != row[1] for row in there):
                say(f"skipped: {name}: {self.torch} has no {package}; try: scripts/test peers-packages")
        return there

    def time(self, side, *arguments):
        return self.ask(self.torch, "timed", side, *arguments)

    def see_same(self, sides):
        """All sides, with their arguments, must have the same tensors: else there is nothing to compare."""
        sums = {side: self.ask(self.torch, "summed", side, *arguments) for side, *arguments in sides}
        if len(set(sums.values())) != 1:
            raise RuntimeError(f"loaders give other tensors than each other: {sums}")


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


def strategies(tree):
    return json.dumps(dict(zip(("src_strategy", "dst_strategy"), tree.strategies)))


def beside(figures, number, name, theirs, *mine):
    """One of theirs between two of ours, each with what it loads and what is asked of it: neither pays for being first."""
    (first, *_), (last, *_) = mine if number % 2 else mine[::-1]
    took = {call: call() for call in (first, theirs, last)}
    for call, what, asked in mine:
        figures.add(f"load of a {what} / {name}", took[call] / took[theirs], asked, at_most=True,
                    note=f"{took[call]:.3f} s, {took[theirs]:.3f} s")


def rounds_of(peers, there, files, number, cold, figures):
    tree, path, dcp = files
    prepared = Cold(files_below(tree.source, os.path.dirname(path), dcp), cold, 2 * os.path.getsize(path))
    where = ", from the disk" if cold else ""
    of_sources = prepared(lambda: peers.time("rank", tree.source, strategies(tree)))
    file = prepared(lambda: peers.time("ready", path))
    sides = [(name, prepared(lambda side=side: peers.time(side, path)), of_rank, of_file)
             for name, _, side, of_rank, of_file in there]
    sides.append(("torch's FileSystemReader", prepared(lambda: peers.time("dcp_reader", dcp, path)), None, None))
    for name, theirs, of_rank, of_file in sides:
        beside(figures, number, name + where, theirs, (of_sources, "rank", None if cold else of_rank),
               (file, "ready file", None if cold else of_file))


@contextlib.contextmanager
def bucket_of(peers, words):
    """A server of which the folders in bench.work are buckets."""
    with objects.serving(peers.bench, words) as url:
        before = peers.environment
        peers.environment = {**before, **BUCKET_KEYS, "AWS_ENDPOINT_URL": url, "no_proxy": "*"}
        try:
            yield lambda path: f"s3://{os.path.relpath(path, peers.bench.work)}"
        finally:
            peers.environment = before


def from_bucket(peers, there, files, rounds, figures, say):
    """All sides sign their requests, and theirs and ours read through the same server."""
    tree, path, _ = files
    prepared = Cold(files_below(tree.source, os.path.dirname(path)), False, 2 * os.path.getsize(path))
    for where, words, of_rank, of_file in SERVERS:
        with bucket_of(peers, words) as url:
            mine = {"rank": ("rank", url(tree.source), strategies(tree)), "ready file": ("ready", url(path))}
            peers.see_same([*mine.values(), *((side, url(path)) for _, _, side in there)])
            for number in range(rounds):
                say(f"loading {os.path.getsize(path) // MIB} MiB from S3{where}, round {number + 1} of {rounds}")
                for name, _, side in there:
                    asked = (of_rank, of_file) if side == "runai" else (None, None)
                    beside(figures, number, name, prepared(lambda side=side: peers.time(side, url(path))),
                           *((prepared(lambda call=call: peers.time(*call)), f"{what} from S3{where}", least)
                             for (what, call), least in zip(mine.items(), asked)))


def measure(bench, python, size, rounds, figures, say):
    peers = Peers(bench, None, python)
    problem = peers.missing(python, "torch")
    if problem:
        say(f"skipped: other loaders: {problem}")
        return
    there = peers.those_there(PEERS, say)
    files = tree, path, dcp = write(peers, size)
    peers.see_same([("rank", tree.source, strategies(tree)), ("ready", path), ("dcp_reader", dcp, path),
                    *((side, path) for _, _, side, *_ in there)])
    for number in range(rounds):
        for cold in (False, True):
            say(f"loading {os.path.getsize(path) // MIB} MiB beside other loaders, {'from the disk' if cold else 'in memory'}, "
                f"round {number + 1} of {rounds}")
            rounds_of(peers, there, files, number, cold, figures)
    from_bucket(peers, peers.those_there(BUCKET_PEERS, say), files, rounds, figures, say)
    for folder in (tree.folder, os.path.dirname(os.path.dirname(path)), dcp):
        shutil.rmtree(folder)


if __name__ == "__main__":
    print("RESULT " + json.dumps(WANTED[sys.argv[1]](SIDES[sys.argv[2]](*sys.argv[3:]))), flush=True)
