# SPDX-License-Identifier: Apache-2.0
"""Reading at any offset, and mapping."""
import mmap
import os
import random

import hfai
import safetensors
import torch
from harness import *
from test_parts import saved


def every_file(mnt):
    return sorted(os.path.join(f, n) for f, _, names in os.walk(mnt) for n in names)


def read_anywhere(src, options, seed):
    """Files in any order, each first in pieces and only then whole."""
    rng = random.Random(seed)
    with Mount(src, options) as m:
        paths = every_file(m.mnt)
        rng.shuffle(paths)
        for path in paths:
            size = os.stat(path).st_size
            fd = os.open(path, os.O_RDONLY)
            pieces = []
            for _ in range(120):
                at = rng.randrange(size + 3)
                n = rng.choice([1, 2, 3, 7, 64, 1000, 4096, 70000])
                pieces.append((at, n, os.pread(fd, n, at)))
            os.close(fd)
            whole = read_all(path)
            equal(len(whole), size, f"the size of {path}")
            for at, n, got in pieces:
                same_bytes(got, whole[at:at + n], f"{path}, {n} bytes at {at}; seed {seed}")


def test_reads_at_odd_offsets():
    seed = int(os.environ.get("RFS_SEED") or random.randrange(2**32))
    print("seed", seed)
    read_anywhere(saved("views", 2), "nshards=3,large_size=300", seed)
    read_anywhere(saved("odd", 3, 100), "nshards=5,large_size=200,zip_crc", seed + 1)
    read_anywhere(saved("nested", 2), "nshards=2", seed + 2)


def big():
    """A transposed tensor, and one to be cut, of several MiB."""
    path = os.path.join(folder("big"), "PART_000.pt")
    torch.manual_seed(0)
    tensors = {"across": torch.randn(1500, 700).t(), "down": torch.randn(1200, 900),
               "every": torch.randn(3000, 700)[::2, 1::3]}
    torch.save({"__nshards__": 1, "__version__": "2.0.0", "model": [(tensors, {})], "optimizer": []}, path)
    return os.path.dirname(path)


def test_reads_of_large_tensors():
    seed = int(os.environ.get("RFS_SEED") or random.randrange(2**32))
    print("seed", seed)
    read_anywhere(big(), "nshards=2,large_size=1M,cache=4M", seed)


def mapped(path, how):
    with open(path, "rb") as f:
        with mmap.mmap(f.fileno(), 0, how, mmap.PROT_READ) as m:
            return m[:]


def test_mappings():
    """safetensors files are mapped shared by many processes; archives privately, by torch.load(mmap=True)."""
    src = saved("odd", 2)
    with Mount(src, "nshards=2") as m:
        tensors = os.path.join(m.mnt, "merged", "model.safetensors")
        archive = os.path.join(m.mnt, "merged", "checkpoint.pt")
        same_bytes(mapped(tensors, mmap.MAP_SHARED), read_all(tensors), "mapped shared")
        same_bytes(mapped(archive, mmap.MAP_PRIVATE), read_all(archive), "mapped privately")
        try:
            mapped(archive, mmap.MAP_SHARED)
            raise AssertionError("an archive can be mapped shared past the page cache")
        except OSError as error:
            equal(error.errno, 19, "errno")
        with safetensors.safe_open(tensors, framework="pt") as f:
            got = {k: f.get_tensor(k) for k in f.keys()}
        want = torch.load(os.path.join(m.mnt, "merged", "model.pt"))
        check(all(torch.equal(got[k], want[k]) for k in want) and len(got) == len(want), "safe_open")
        del got, want
    with Mount(src, "nshards=2,io=cached") as m:
        archive = os.path.join(m.mnt, "merged", "checkpoint.pt")
        same_bytes(mapped(archive, mmap.MAP_SHARED), read_all(archive), "an archive through the page cache")
    with Mount(src, "nshards=2,io=direct") as m:
        tensors = os.path.join(m.mnt, "merged", "model.safetensors")
        same_bytes(mapped(tensors, mmap.MAP_PRIVATE), read_all(tensors), "past the page cache")


def test_mounting_reads_no_tensors():
    """Sizes of all files come from the pickles; of tensors only the counts of steps are read."""
    src = os.path.join(folder("heavy"), "saved")
    model = torch.nn.ModuleList(torch.nn.Linear(1000, 1000) for _ in range(12))
    optimizer = torch.optim.Adam(model.parameters())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    hfai.save(src, [model], [optimizer], {}, 2, 1 << 20)
    total = sum(os.stat(os.path.join(src, n)).st_size for n in os.listdir(src))
    with Mount(src, "nshards=3,large_size=1M") as m:
        shown = sum(os.stat(path).st_size for path in every_file(m.mnt))
        check(shown > 2 * total, f"{shown} bytes are shown of {total}")
        with open(f"/proc/{m.pid}/io", encoding="ascii") as f:
            read = int(f.readline().split()[1])
        check(read < total // 20, f"{read} bytes were read of {total}")


def failures(paths):
    """The files that fail as stale."""
    out = []
    for path in paths:
        try:
            read_all(path)
        except OSError as error:
            equal(error.errno, 116, path)
            out.append(path)
    return out


def test_changed_parts():
    """What takes bytes from the part that was changed fails, and from then on everything."""
    src = saved("adam", 3)
    with Mount(src, "nshards=2") as m:
        paths = every_file(m.mnt)
        equal(failures(paths), [], "failures")
        os.utime(os.path.join(src, "PART_001.pt"))
        check(any(path.endswith("checkpoint.pt") for path in failures(paths)), "the whole is still read")
        equal(failures(paths), paths, "failures")
