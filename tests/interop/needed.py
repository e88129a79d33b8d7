# SPDX-License-Identifier: Apache-2.0
"""`reshard ranks` against the model, and against rank_list_for_transform.

The model looks at the boxes of all devices. MindSpore's list is what its chain of operators touches on the
way, so it may have more ranks, but none of ours may be missing, unless MindSpore is known to be wrong.
"""
import json
import os
import subprocess
from fractions import Fraction

import oracle
from model import cuts_of, needed_stages

COUNTS = {"same": 0, "fewer": 0, "refused by MindSpore": 0, "not told by the strategies": 0}


def box(layout, rank, ndim):
    """([begin of each axis], [length], free digits), as parts of the axes."""
    begin, length = [Fraction(0)] * ndim, [Fraction(1)] * ndim
    if layout is None:
        return begin, length, None
    cuts, free = cuts_of(layout, rank)
    for axis, extent, piece in cuts:
        length[axis] /= extent
        begin[axis] += length[axis] * piece
    return begin, length, free


def touches(a, b):
    return all(max(x, y) < min(x + m, y + n) for x, m, y, n in zip(a[0], a[1], b[0], b[1]))


def model(src, dst, rank):
    stage, local = divmod(rank, dst.devices if dst else 1)
    like = local % src.devices
    out = {s * src.devices + like for s in needed_stages(src, dst, stage)}
    for name in src.names():
        target = dst.layout(name, stage) if dst else None
        if dst and not target:
            continue
        first = src.stages_of(name)[0]
        layout = src.layout(name, first)
        ndim = len(layout.axes)
        wanted = box(target, local, ndim)
        free = box(layout, like, ndim)[2]
        for holder in range(src.devices):
            held = box(layout, holder, ndim)
            if held[2] == free and touches(held, wanted):
                out.add(first * src.devices + holder)
    return sorted(out)


def real(built, rank):
    """None where MindSpore refuses."""
    import mindspore as ms
    try:
        with oracle.silence():
            return sorted({int(r) for r in ms.rank_list_for_transform(rank, *built.strategies)})
    except Exception:  # noqa: BLE001 - whatever it raises
        return None


def check(program, built):
    """What is wrong, or None."""
    case = built.case
    given = [flag for letter, path in zip("sd", built.given) if path for flag in (f"-{letter}", path)]
    rules = any(key.endswith("_rules") for key in case.options)
    if not given or rules or built.kind == "refuse" or any(s and (s.raw or s.fixture) for s in (case.src, case.dst)):
        return None
    got = subprocess.run([program, "ranks", "--json", *given], capture_output=True, text=True, check=False)
    if got.returncode == 1 and "do not say by themselves" in got.stderr and any(
            s and s.nested_json() for s in (case.src, case.dst)):
        COUNTS["not told by the strategies"] += 1
        return None
    if got.returncode != 0:
        return f"reshard ranks: exit {got.returncode}: {got.stderr}"
    _, wrong = oracle.reasons(case.src, case.dst, case.files, case.source_format)
    for row in json.loads(got.stdout)["rows"]:
        rank, ranks = row["rank"], row["source_ranks"]
        wanted = model(case.src, case.dst, rank) if case.src else [0]
        if ranks != wanted:
            return f"reshard ranks {rank} gives {ranks}, but the model {wanted}"
        theirs = real(built, rank)
        if theirs is None:
            COUNTS["refused by MindSpore"] += 1
        elif built.kind == "transform" and not wrong and not set(ranks) <= set(theirs):
            return f"reshard ranks {rank} gives {ranks}, but rank_list_for_transform {theirs}"
        else:
            COUNTS["same" if ranks == theirs else "fewer"] += 1
    return None


def program_in(build):
    return os.path.abspath(os.path.join(build, "reshard"))
