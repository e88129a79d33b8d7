# SPDX-License-Identifier: Apache-2.0
"""Pipelines: the strategy files of stages in a folder or a list, and sub-networks put together again."""
import json
import os
import struct

from forge import Param, Tree, content_of, cut, escape, layout, strategy, strategy_of, value
from test_control import of_npy, tensor
from harness import Mount, check, equal, fails, folder, read_all, reshardfs, run, same_bytes

PARAMS = [
    Param("embedding", (8, 4), 0, 1), Param("layer0.w", (8, 8), 1, 0), Param("layer1.w", (8, 8), 1, 0),
    Param("head", (4, 8), 0, 1),
]


def of_stage(stage):
    return PARAMS[2 * stage : 2 * stage + 2]


def stage_strategy(stage):
    """Two ranks a stage, as the compiler writes one."""
    return strategy(
        [layout(p.name, [2], [0 if axis == p.src else -1 for axis in range(2)]) for p in of_stage(stage)], stage
    )


def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def write_stages(where, stages=(0, 1)):
    """src/rank_N of two ranks a stage, and a strategy file of each in parts/."""
    for stage in stages:
        for local in (0, 1):
            held = b"".join(
                value(p.name, *cut_value(p, p.src, 2, local)) for p in of_stage(stage)
            )
            put(os.path.join(where, "src", f"rank_{2 * stage + local}", "net.ckpt"), held)
        put(os.path.join(where, "parts", f"s_{stage}.ckpt"), stage_strategy(stage))
    put(os.path.join(where, "dst.ckpt"), strategy_of(PARAMS, 4, "dst"))


def cut_value(p, axis, ranks, rank):
    shape, data = cut(p, axis, ranks, rank, content_of(p))
    return shape, p.dtype, data


def target(rank, params):
    return b"".join(value(p.name, *cut_value(p, p.dst, 4, rank)) for p in params)


def options(**given):
    return ",".join(k if v is None else f"{k}={escape(v)}" for k, v in given.items())


def test_folder_of_stage_files():
    where = folder("t")
    write_stages(where)
    src, dst = os.path.join(where, "src"), os.path.join(where, "dst.ckpt")
    with Mount(src, options(src_strategy=os.path.join(where, "parts"), dst_strategy=dst)) as m:
        for rank in range(4):  # the last stage's parameters come first
            same_bytes(m.read(rank), target(rank, of_stage(1) + of_stage(0)), f"rank {rank}")


def test_list_of_stage_files():
    """Relative paths, one of them with a ':' in it."""
    where = folder("t")
    write_stages(where)
    os.rename(os.path.join(where, "parts", "s_1.ckpt"), os.path.join(where, "parts", "a:b.ckpt"))
    given = options(src_strategy="parts/a:b.ckpt:parts/s_0.ckpt", dst_strategy="dst.ckpt")
    got = run(reshardfs, "--check", "src", "-o", given, cwd=where)
    equal((got.returncode, got.stderr), (0, ""), "status, stderr")
    check("4 files" in got.stdout or "4 ranks" in got.stdout, f"the check tells of 4 ranks: {got.stdout}")
    missing = os.path.join(os.path.realpath(where), "parts", "gone")
    fails(1, f"{missing}: cannot be read: No such file or directory; try: check the path", "--check", "src", "-o",
          options(src_strategy="parts/s_0.ckpt:parts/gone", dst_strategy="dst.ckpt"), cwd=where)


def test_stage_files_that_do_not_go_together():
    where = folder("t")
    write_stages(where)
    src, parts = os.path.join(where, "src"), os.path.join(where, "parts")
    again = os.path.join(parts, "s_1_again.ckpt")
    put(again, strategy([layout(p.name, [2], [-1, -1]) for p in of_stage(1)], 1))
    fails(1, f"{again}: parameter 'layer1.w': stage 1 is given twice: {parts}/s_1.ckpt is of the same stage and cuts it differently; try: the strategy files of one run only", "--check", src, "-o", f"src_strategy={parts}")
    os.remove(again)
    os.remove(os.path.join(parts, "s_0.ckpt"))
    fails(1, f"{parts}: it has a stage 1 but no stage 0; try: the files of all stages, or a strategy merged from "
          "them", "--check", src, "-o", f"src_strategy={parts}")


def part(where, stage, mnt, **more):
    return Mount(os.path.join(where, "src"), options(
        src_strategy=os.path.join(where, "parts", f"s_{stage}.ckpt"), dst_strategy=os.path.join(where, "dst.ckpt"),
        **more), mnt=folder(mnt))


def test_sub_networks():
    """Each stage by itself, two mounts, their files copied into one tree, and that mounted as one."""
    where = folder("t")
    write_stages(where)
    tree = folder("tree")
    with part(where, 0, "mnt0") as first, part(where, 1, "mnt1") as second:
        for stage, m in enumerate((first, second)):
            for rank in range(4):
                name = f"checkpoint_{rank}_part{stage}.ckpt"
                at = os.path.join(m.mnt, f"rank_{rank}")
                equal(os.listdir(at), [name], "a part")
                same_bytes(read_all(os.path.join(at, name)), target(rank, of_stage(stage)), f"{name} of rank {rank}")
            got = run("cp", "-r", m.mnt + "/.", tree)
            equal((got.returncode, got.stderr), (0, ""), "cp")
            for p in of_stage(stage):
                same_bytes(of_npy(tensor(m, "full", p.name))[2], content_of(p), f"all of {p.name}")
    dst = os.path.join(where, "dst.ckpt")
    with Mount(tree, options(src_strategy=dst, dst_strategy=dst, segmented=None)) as m:
        for rank in range(4):
            same_bytes(m.read(rank), target(rank, PARAMS), f"rank {rank}")
    with Mount(tree, options(src_strategy=dst, dst_strategy=dst, segmented=None, segmented_skip="layer:em")) as m:
        same_bytes(m.read(2), target(2, PARAMS[3:]), "what is left of rank 2")
    with Mount(tree, options(src_strategy=dst, segmented=None)) as m:  # the whole at once
        whole = b"".join(value(p.name, p.shape, p.dtype, content_of(p)) for p in PARAMS)
        same_bytes(m.read(0), whole, "one whole checkpoint")


def test_sub_networks_as_safetensors():
    """MindSpore has no such output; the files are parts by name all the same, as they do not have everything."""
    where = folder("t")
    write_stages(where)
    with part(where, 1, "mnt1", format="safetensors") as m:
        for rank in range(4):
            (name,) = os.listdir(os.path.join(m.mnt, f"rank_{rank}"))
            equal(name, f"checkpoint_{rank}_part1.safetensors", "the name")
            data = read_all(os.path.join(m.mnt, f"rank_{rank}", name))
            (n,) = struct.unpack("<Q", data[:8])
            header = json.loads(data[8 : 8 + n])
            for p in of_stage(1):
                shape, _, want = cut_value(p, p.dst, 4, rank)
                begin, end = header[p.name]["data_offsets"]
                equal(header[p.name]["shape"], shape, "the shape")
                same_bytes(data[8 + n + begin : 8 + n + end], want, p.name)
    with part(where, 0, "mnt0") as m:  # a part is for the rank's folder: no other name is taken from it
        check(not os.path.exists(os.path.join(m.mnt, "rank_0", "checkpoint_0.ckpt")), "no whole file")
