# SPDX-License-Identifier: Apache-2.0
"""`reshard explain` of hfai's parts: the bytes at the places it names, against what the parts shown hold."""
import itertools
import json
import os

import hfai
from harness import *
from test_compared import under
from test_parts import saved


def parts_held(dst, n):
    """name -> {part: bytes}, of the parts of a folder as torch reads them; names are those of the whole state."""
    held = {}

    def add(part, path, value):
        for name, tensor in under(path, value):
            held.setdefault(name, {})[part] = hfai.raw(tensor)

    for p in range(n):
        part = hfai.torch_load(os.path.join(dst, "PART_%03d.pt" % p))
        stems = [[""] if len(part["model"]) == 1 else [f"model.{i}" for i in range(len(part["model"]))],
                 ["optimizer"] if len(part["optimizer"]) == 1 else [f"optimizer.{i}" for i in range(len(part["optimizer"]))]]
        for stem, (whole, pieces) in zip(stems[0], part["model"]):
            add(p, stem, whole)
            for name, (_, piece) in pieces.items():
                add(p, f"{stem}.{name}" if stem else name, piece)
        for stem, (whole, pieces) in zip(stems[1], part["optimizer"]):
            add(p, stem, whole)
            for (outer, inner), (_, piece) in pieces.items():
                add(p, f"{stem}.state.{outer}.{inner}", piece)
        for key, value in part.items():
            if key not in ("model", "optimizer"):
                add(p, key, value)
    return held


def places(ranges):
    """(offset, bytes) of each run, in the order of the tensor."""
    for each in ranges:
        for steps in itertools.product(*(range(loop["count"]) for loop in each["loops"])):
            yield each["offset"] + sum(i * loop["stride"] for i, loop in zip(steps, each["loops"])), each["run"]


def read_at(path, ranges):
    with open(path, "rb") as file:
        return b"".join(os.pread(file.fileno(), size, offset) for offset, size in places(ranges))


def explained(src, options, *more):
    got = run(reshard, "explain", src, "-o", options, "--json", *more)
    equal((got.returncode, got.stderr), (0, ""), f"explain {src} {options} {more}")
    return json.loads(got.stdout)


def look_at_slice(src, dst, slice, want, where):
    equal(slice["bytes"], len(want), f"the bytes of {where}")
    at = 0
    for piece in slice["pieces"]:
        content = read_at(os.path.join(src, piece["file"]), piece["ranges"])
        equal(piece["file"], "PART_%03d.pt" % piece["rank"], where)
        same_bytes(content, want[at:at + len(content)], f"{where}: what {piece['file']} gives")
        at += len(content)
    equal(at, len(want), f"what the pieces of {where} have together")
    if "offset" in slice:
        shown = [{"offset": slice["offset"], "run": len(want), "loops": []}]
        same_bytes(read_at(os.path.join(dst, slice["file"]), shown), want, f"{where} in {slice['file']}")


def look_at_all(name, n, large, m, shown_large):
    src, options = saved(name, n, large), f"nshards={m},large_size={shown_large}"
    dst = os.path.join(folder("exported"), f"{name}-{n}-{m}")
    equal(run(reshard, "export", src, dst, "-o", options).returncode, 0, "export")
    held = parts_held(dst, m)
    for tensor, want in held.items():
        got = explained(src, options, "--param", tensor)
        equal([s["rank"] for s in got["slices"]], sorted(want), f"the parts that have {tensor}")
        for slice in got["slices"]:
            look_at_slice(src, dst, slice, want[slice["rank"]], f"{tensor} of part {slice['rank']}, {n} to {m}")
    for part in explained(src, options)["ranks"]:
        mine = [want[part["rank"]] for want in held.values() if part["rank"] in want]
        equal((part["parameters"], part["bytes"]), (len(mine), sum(map(len, mine))), f"all of part {part['rank']}")


def test_explained_parts():
    """Cut, joined, cut anew where it does not divide, and whole; of one part and of several, to fewer and to more."""
    for name, n, large, m, shown_large in [
            ("adam", 3, 500, 5, 100), ("adam", 1, hfai.LARGE, 7, 300), ("adam", 4, 100, 1, hfai.LARGE),
            ("two", 2, 300, 3, 200), ("odd", 3, 100, 16, 0), ("bare", 5, 0, 2, 0), ("views", 2, hfai.LARGE, 3, 100),
            ("sgd", 3, 500, 3, 500)]:
        look_at_all(name, n, large, m, shown_large)
