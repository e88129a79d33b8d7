# SPDX-License-Identifier: Apache-2.0
"""Checksums in the archives: right without reading where a storage is copied or joined whole, else 0 or asked for."""
import os
import shutil
import zipfile

import hfai
import torch
from archive import Archive
from harness import *
from test_files import written
from test_parts import saved


def archives(mnt):
    folders = [mnt, os.path.join(mnt, "merged")]
    return [os.path.join(f, n) for f in folders for n in sorted(os.listdir(f)) if n.endswith(".pt")]


def unknown(path):
    """Entries whose checksum is 0 though they have bytes; all others are right."""
    out = set()
    for name, (said, true) in Archive(path).checksums().items():
        if said == 0 and true != 0:
            out.add(name)
        else:
            equal(said, true, f"the checksum of {name} in {path}")
    return out


def complain(path):
    with zipfile.ZipFile(path) as z:
        return z.testzip()


def all_known(src, options):
    with Mount(src, options) as m:
        for path in archives(m.mnt):
            equal(unknown(path), set(), f"unknown checksums in {path}")
            equal(complain(path), None, path)


def test_sums_of_what_is_copied_whole():
    all_known(saved("adam", 3), "nshards=5")
    all_known(saved("views", 2), "nshards=3")


def test_sums_of_what_is_joined_whole():
    """Three parts to one: every piece is taken as a whole; the same number of parts: as it is."""
    all_known(saved("odd", 3, 300), "nshards=1,large_size=300")
    all_known(saved("odd", 3, 300), "nshards=3,large_size=300")
    all_known(saved("odd", 8, 40), f"nshards=2,large_size={hfai.LARGE}")


def test_sums_of_what_is_cut_anew():
    """Those are 0, and nothing else is; Python's zipfile minds, torch.load does not."""
    src = saved("odd", 3, 300)
    with Mount(src, "nshards=5,large_size=300") as m:
        for rank in range(5):
            path = os.path.join(m.mnt, "PART_%03d.pt" % rank)
            part = hfai.torch_load(path)
            pieces = [p for pair in part["model"] + part["optimizer"] for _, p in pair[1].values()]
            equal(len(unknown(path)), sum(p.numel() > 0 for p in pieces), f"unknown checksums in {path}")
            check(complain(path) is not None, "zipfile does not mind")
        equal(unknown(os.path.join(m.mnt, "merged", "checkpoint.pt")), set(), "merged")


def test_sums_of_a_source_are_checked():
    """check=crc finds a bit of a state dict that torch.load does not."""
    path = written({"w": torch.arange(300.0), "b": torch.zeros(5)})
    with zipfile.ZipFile(path) as z:
        said = {e.filename: e.CRC for e in z.infolist()}
    equal(run(reshard, "verify", path, "-o", "check=crc").returncode, 0, "as it was saved")
    with open(path, "r+b") as f:
        at = f.read().index(torch.tensor([298.0, 299.0]).numpy().tobytes()) + 5
        f.seek(at)
        byte = f.read(1)[0] ^ 64
        f.seek(at)
        f.write(bytes([byte]))
    name = complain(path)
    check(not torch.equal(hfai.torch_load(path)["w"], torch.arange(300.0)), "torch.load finds it")
    equal(run(reshard, "verify", path).returncode, 0, "without checksums")
    got = run(reshard, "verify", path, "-o", "check=crc")
    equal(got.returncode, 2, got.stdout + got.stderr)
    check(f"parameter '{name}': the archive's entry is damaged: its CRC-32 is {said[name]:08x}" in
          got.stdout + got.stderr, got.stdout + got.stderr)


def test_sums_that_a_source_lacks():
    """A view without zip_crc has none of what it assembles; check=crc says so and reads it."""
    src = written({"w": torch.arange(30.0).reshape(5, 6).t(), "b": torch.zeros(5)})
    with Mount(src, "format=pt") as m:
        path = os.path.join(m.mnt, "rank_0", "checkpoint_0.pt")
        check(unknown(path), "all are known")
        got = run(reshard, "verify", path, "-o", "check=crc")
    equal(got.returncode, 0, got.stdout + got.stderr)
    check("has records without a checksum, so check=crc does not verify these" in got.stderr, got.stderr)


def test_sums_of_tensors_that_share_a_larger_storage():
    """Cutting a view of a larger storage reads it: its checksum is not known."""
    with Mount(saved("views", 1), "nshards=1,large_size=300") as m:
        check(unknown(os.path.join(m.mnt, "PART_000.pt")), "all are known")


def all_computed(src, options):
    with Mount(src, options + ",zip_crc") as m:
        for path in archives(m.mnt):
            equal(unknown(path), set(), f"checksums that are not computed in {path}")
            equal(complain(path), None, path)
            if shutil.which("unzip"):
                got = run("unzip", "-tq", path)
                equal(got.returncode, 0, got.stdout + got.stderr)


def test_sums_that_are_asked_for():
    all_computed(saved("odd", 3, 300), "nshards=5,large_size=300")
    all_computed(saved("views", 2), "nshards=3,large_size=300")
    all_computed(saved("odd", 8, 40), "nshards=16,large_size=10")


def test_sums_that_are_read_alone():
    """A checksum stands in the directory and behind its content: either may be read first, and in any pieces."""
    src = saved("odd", 3, 300)
    with Mount(src, "nshards=2,large_size=100,zip_crc") as m:
        path = os.path.join(m.mnt, "PART_001.pt")
        whole = read_all(path)
    with Mount(src, "nshards=2,large_size=100,zip_crc") as m:
        with open(os.path.join(m.mnt, "PART_001.pt"), "rb", buffering=0) as f:
            for at in range(len(whole) - 1, -1, -3):
                f.seek(at)
                same_bytes(f.read(3), whole[at:at + 3], f"3 bytes at {at}")


def test_sums_that_sources_do_not_have():
    """A 0 in the source is passed on, and never combined into a wrong one."""
    src = saved("odd", 2, 300)
    for name in os.listdir(src):
        path = os.path.join(src, name)
        data = bytearray(read_all(path))
        with zipfile.ZipFile(path) as z:
            at = z.start_dir
        while data[at:at + 4] == b"PK\1\2":
            data[at + 16:at + 20] = bytes(4)
            at += 46 + int.from_bytes(data[at + 28:at + 30], "little") + int.from_bytes(data[at + 30:at + 32], "little")
        with open(path, "wb") as f:
            f.write(data)
    with Mount(src, "nshards=1,large_size=300") as m:
        for path in archives(m.mnt):
            contents = {n for n, (_, true) in Archive(path).checksums().items() if n.startswith("data/") and true}
            equal(unknown(path), contents, path)
    all_computed(src, "nshards=1,large_size=300")
