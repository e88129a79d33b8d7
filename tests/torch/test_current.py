# SPDX-License-Identifier: Apache-2.0
"""What torch since 2.1 can do: map archives, and load no code by default."""
import os

import hfai
import safetensors.torch
import states
import torch
from archive import Archive
from harness import *
from test_parts import saved

PLAIN = ("adam", "sgd", "momentum", "two", "bare", "real", "views", "odd", "later")
HOW = [{"mmap": m, "weights_only": w} for m in (False, True) for w in (False, True)]


def archives(mnt):
    folder = os.path.join(mnt, "merged")
    return [os.path.join(folder, n) for n in sorted(os.listdir(folder)) if n.endswith(".pt")]


def look_at(name, large, options):
    src = saved(name, 3, large)
    with Mount(src, f"nshards=2,large_size={large}" + options) as m:
        whole = hfai.load(src)
        for how in HOW:
            hfai.same(torch.load(os.path.join(m.mnt, "merged", "checkpoint.pt"), **how), whole, str(how))
        for path in archives(m.mnt):
            want = torch.load(path, mmap=False, weights_only=False)
            for how in HOW:
                hfai.same(torch.load(path, **how), want, f"{path} {how}")
        for rank in range(2):
            path = os.path.join(m.mnt, "PART_%03d.pt" % rank)
            hfai.same(torch.load(path, mmap=True, weights_only=True), torch.load(path, weights_only=False), path)


def test_mapped_and_without_code():
    for name in PLAIN:
        look_at(name, hfai.LARGE, "")
    look_at("odd", 300, "")
    look_at("odd", 300, ",io=cached")


def test_code_is_asked_for_where_it_was():
    """What holds more than tensors and plain values needs weights_only=False, as its parts do."""
    with Mount(saved("nested", 2), "nshards=2") as m:
        for path in (os.path.join(m.mnt, "PART_000.pt"), os.path.join(m.mnt, "merged", "checkpoint.pt")):
            try:
                torch.load(path)
                raise AssertionError(f"{path} loads without code")
            except Exception as error:  # noqa: BLE001
                check("weights_only" in str(error).lower(), str(error))
        for path in (os.path.join(m.mnt, "PART_001.pt"), os.path.join(m.mnt, "merged", "model.pt")):
            torch.load(path, mmap=True, weights_only=True)


def test_mapped_by_many():
    """Processes that map one archive at once, and one that maps it again and again."""
    src = saved("odd", 3, 300)
    with Mount(src, "nshards=2") as m:
        path = os.path.join(m.mnt, "merged", "checkpoint.pt")
        want = torch.load(path, weights_only=True)
        children = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                try:
                    for _ in range(10):
                        hfai.same(torch.load(path, mmap=True, weights_only=True), want)
                    os._exit(0)
                except BaseException:  # noqa: BLE001 - the parent tells
                    os._exit(1)
            children.append(pid)
        for pid in children:
            equal(os.waitpid(pid, 0)[1], 0, "a process that maps")


def test_later_dtypes():
    """They are in an untyped storage, and the tensor says what they are."""
    src = saved("later", 2)
    want = hfai.load(src)["model"]
    with Mount(src, "nshards=3,large_size=20") as m:
        hfai.same(hfai.load(m.mnt)["model"], want, order=False)
        got = safetensors.torch.load_file(os.path.join(m.mnt, "merged", "model.safetensors"))
        hfai.same(got, {k: want[k] for k in got})
        equal(len(got), len(want), "tensors")
        del got


def test_sources_without_checksums():
    """torch.serialization.set_crc32_options(False) writes zeros."""
    torch.serialization.set_crc32_options(False)
    try:
        src = saved("odd", 2, 300)
    finally:
        torch.serialization.set_crc32_options(True)
    check(all(said == 0 for said, _ in Archive(os.path.join(src, "PART_000.pt")).checksums().values()), "checksums")
    with Mount(src, "nshards=1,large_size=300") as m:
        hfai.same(hfai.load(m.mnt)["model"], hfai.load(src)["model"], order=False)
    with Mount(src, "nshards=1,large_size=300,zip_crc") as m:
        for path in [*archives(m.mnt), os.path.join(m.mnt, "PART_000.pt")]:
            check(all(said == true for said, true in Archive(path).checksums().values()), path)


def test_lazy_conjugates():
    src = folder("lazy")
    tensor = torch.randn(3, dtype=torch.complex64).conj()
    torch.save({"__nshards__": 1, "__version__": "2.0.0", "model": [({"w": tensor}, {})], "optimizer": []},
               os.path.join(src, "PART_000.pt"))
    fails(1, f"{src}/PART_000.pt: parameter 'w': the tensor is a lazy conjugate or negative; try: save the tensor "
          "after resolve_conj() and resolve_neg()", "--check", src)
