# SPDX-License-Identifier: Apache-2.0
"""A state saved by N ranks, shown in M parts and merged, against what hfai would write and load."""
import os
from collections import OrderedDict

import hfai
import safetensors.torch
import states
import torch
from archive import Archive, repickled
from harness import *

SOURCES, SHOWN = (1, 2, 3, 8), (1, 2, 3, 5, 16)
ALL = [(n, m) for n in SOURCES for m in SHOWN]
BUFFERLESS = ("views", "plain", "odd")
SOME = [(1, 1), (1, 3), (3, 1), (3, 3), (3, 5), (8, 2)]


def cut_off(value, large):
    """Of a state: the pieces' keys, and what stays; what does not lie row by row stays whole."""
    return {k for k, v in value.items() if hfai.is_large(v, large) and v.is_contiguous()}


def expected_state(whole, rank, n, large):
    keys = cut_off(whole, large)
    rest = {k: v for k, v in whole.items() if k not in keys}
    return hfai.split_dict(rest, rank, n, 1), {k: hfai.piece(v, rank, n) for k, v in whole.items() if k in keys}


def expected_optimizer(whole, rank, n, large):
    rest, pieces = OrderedDict(), {}
    for k1, value in whole["state"].items():
        keys = cut_off(value, large)
        rest[k1] = {k: v for k, v in value.items() if k not in keys}
        pieces.update({(k1, k): hfai.piece(v, rank, n) for k, v in value.items() if k in keys})
    return {k: hfai.split_dict(rest, rank, n, 1) if k == "state" else v for k, v in whole.items()}, pieces


def listed(value):
    return value if isinstance(value, list) else [value]


def expected_part(whole, rank, n, large):
    """What hfai would write of what load() has given, if nothing were a buffer."""
    out = {"__nshards__": n, "__version__": "2.0.0",
           "model": [expected_state(m, rank, n, large) for m in listed(whole["model"])],
           "optimizer": [expected_optimizer(o, rank, n, large) for o in listed(whole["optimizer"])]}
    if rank == 0:
        out.update({k: v for k, v in whole.items() if k not in out})
    return out


def without_count(whole):
    return {k: v for k, v in whole.items() if k != "__nshards__"}


def look_at_parts(mnt, n, whole, large):
    names = ["PART_%03d.pt" % rank for rank in range(n)]
    equal(sorted(os.listdir(mnt)), sorted(names) + ["merged"], "names")
    same_state(hfai.load(mnt), whole)
    for rank, name in enumerate(names):
        path = os.path.join(mnt, name)
        got = hfai.torch_load(path)
        hfai.same(got, expected_part(whole, rank, n, large), name)
        look_at_archive(path)


def look_at_archive(path):
    """The pickle is torch's own, and a checksum is right or 0."""
    archive = Archive(path)
    same_bytes(archive.read("data.pkl"), repickled(path), f"the pickle of {path}")
    for name, (said, true) in archive.checksums().items():
        check(said in (0, true), f"{path}: {name} has the checksum {said:x}, not {true:x}")


def same_state(got, want):
    hfai.same(without_count(got), without_count(want), order=False)


def several(whole, key, stem):
    """Names of the merged files of models or optimizers."""
    if not isinstance(whole[key], list):
        return {f"{stem}.pt": whole[key]}
    return {f"{stem}_{i}.pt": value for i, value in enumerate(whole[key])}


def look_at_merged(mnt, whole):
    folder = os.path.join(mnt, "merged")
    files = {"checkpoint.pt": whole, **several(whole, "model", "model"), **several(whole, "optimizer", "optimizer")}
    tensors = {n.replace(".pt", ".safetensors"): m for n, m in several(whole, "model", "model").items()
               if not any(v.is_complex() for v in m.values())}
    equal(sorted(os.listdir(folder)), sorted([*files, *tensors]), "merged")
    for name, want in files.items():
        path = os.path.join(folder, name)
        hfai.same(hfai.torch_load(path), want, name)
        look_at_archive(path)
    for name, model in tensors.items():
        if any(v.dtype in states.LATER for v in model.values()):
            continue  # the library does not save all of them; test_current.py loads them
        want = safetensors.torch.save({k: v.contiguous().clone() for k, v in model.items()}, {"format": "pt"})
        same_bytes(read_all(os.path.join(folder, name)), want, name)


def saved(name, n, large=hfai.LARGE):
    """The folder of a state saved by N ranks; made once in a test."""
    src = os.path.join(folder("saved"), f"{name}-{n}-{large}")
    if not os.path.exists(src):
        hfai.save(src, *states.make(name), n, large)
    return src


def look_at_hfais_own(mnt, folder, same_order):
    """Without buffers, what one rank saved is divided exactly as hfai would have saved it; but pieces have another order."""
    for path in os.listdir(folder):
        shown, own = (os.path.join(where, path) for where in (mnt, folder))
        hfai.same(hfai.torch_load(shown), hfai.torch_load(own), path, order=same_order)
        if path == "PART_000.pt" and len(os.listdir(folder)) == 1 and same_order:
            same_bytes(Archive(shown).read("data.pkl"), Archive(own).read("data.pkl"), "the pickle as it was")


def look_at_pairs(name, pairs, large, shown_large):
    """Saves by N ranks and looks at M parts."""
    for n, m in pairs:
        src = saved(name, n, large)
        whole = hfai.load(src)
        with Mount(src, f"nshards={m},large_size={shown_large}") as mount:
            try:
                look_at_parts(mount.mnt, m, whole, shown_large)
                if m == 1:
                    look_at_merged(mount.mnt, whole)
                if n == 1 and large == shown_large and name in BUFFERLESS:
                    look_at_hfais_own(mount.mnt, saved(name, m, large), large == hfai.LARGE)
            except AssertionError as error:
                raise AssertionError(f"{n} -> {m}: {error}") from error


def test_parts_of_other_dicts():
    """A state's dict keeps its class and its attributes when a tensor goes out of it, or back into it."""
    src = os.path.join(folder("dicts"), "src")
    hfai.save(src, *states.make("odd"), 2, 300)
    for name in os.listdir(src):
        part = hfai.torch_load(os.path.join(src, name))
        for optimizer, _ in part["optimizer"]:
            for key, value in optimizer["state"].items():
                optimizer["state"][key] = OrderedDict(value)
                optimizer["state"][key].note = "on it"
        torch.save(part, os.path.join(src, name))
    whole = hfai.load(src)
    with Mount(src, "nshards=3,large_size=100") as mount:
        same_state(hfai.load(mount.mnt), whole)
        hfai.same(hfai.torch_load(os.path.join(mount.mnt, "merged", "optimizer.pt")), whole["optimizer"])


def make_tests():
    """One for each state as it is, and some with tensors that are large by the option."""
    cases = [(name, hfai.LARGE, hfai.LARGE) for name in states.STATES]
    cases += [("odd", 300, 300), ("odd", hfai.LARGE, 100), ("odd", 40, hfai.LARGE), ("adam", 300, 100),
              ("two", 50, 200), ("nested", 100, 300), ("views", hfai.LARGE, 300), ("plain", 20, 30)]
    for name, large, shown in cases:
        label = "" if large == shown == hfai.LARGE else f"_over_{large}_as_over_{shown}".replace(str(hfai.LARGE), "all")
        pairs = ALL if (name, large, shown) in (("adam", hfai.LARGE, hfai.LARGE), ("odd", 300, 300)) else SOME
        globals()[f"test_parts_{name}{label}"] = lambda case=(name, pairs, large, shown): look_at_pairs(*case)


make_tests()
