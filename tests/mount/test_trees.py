# SPDX-License-Identifier: Apache-2.0
"""Which files a source has, as a mount tells it; more of it in tests/unit/catalog and tests/interop."""
import os
import shutil

from forge import Tree, usual
from harness import *


def two_saves(name="tree"):
    """{folder: what its files must be} of two saves of one tree, and the tree."""
    trees = {save: Tree(folder(f"{name}.{save}"), usual(), 4, 2, version) for version, save in enumerate(("9_5", "10_5"))}
    tree = trees["9_5"]
    for rank in range(4):
        for save, from_tree in trees.items():
            shutil.copy(from_tree.path(rank), os.path.join(tree.src, f"rank_{rank}", f"ckpt-{save}.ckpt"))
        os.unlink(tree.path(rank))
    return {save: [t.expected(r) for r in range(2)] for save, t in trees.items()}, tree


def test_saves_side_by_side():
    """step=all: a folder for each save, each what the mount of that save alone would be."""
    want, tree = two_saves()
    with Mount(tree.src, tree.options("step=all,cache=64M")) as m:
        equal(sorted(os.listdir(m.mnt)), ["10_5", "9_5"], "the folders")
        equal(os.stat(m.mnt).st_nlink, 4, "links of the root")
        seen = {os.stat(m.mnt).st_ino}
        for save, files in want.items():
            where = os.path.join(m.mnt, save)
            equal(sorted(os.listdir(where)), ["rank_0", "rank_1"], save)
            seen.add(os.stat(where).st_ino)
            for rank, data in enumerate(files):
                path = os.path.join(where, f"rank_{rank}", f"checkpoint_{rank}.ckpt")
                same_bytes(read_all(path), data, path)
                seen |= {os.stat(path).st_ino, os.stat(os.path.dirname(path)).st_ino}
        equal(len(seen), 1 + 2 * (1 + 2 + 2), "inode numbers")
        check(not os.path.exists(os.path.join(m.mnt, "rank_0")), "rank folders in the root")
        got = run("find", m.mnt, "-type", "f", "-printf", "x")
        equal((got.stdout, got.stderr), ("xxxx", ""), "find")
    got = run(reshardfs, "--check", tree.src, folder("mnt"), "-o", tree.options("step=all"))
    equal(got.returncode, 0, got.stderr)


def test_an_incomplete_save_is_left_out():
    want, tree = two_saves()
    os.unlink(os.path.join(tree.src, "rank_1", "ckpt-10_5.ckpt"))
    with Foreground(tree.src, tree.options("step=all")) as m:
        equal(os.listdir(m.mnt), ["9_5"], "the folders")
        check("10_5: left out: " in m.log(), m.log())
        path = os.path.join(m.mnt, "9_5", "rank_1", "checkpoint_1.ckpt")
        same_bytes(read_all(path), want["9_5"][1], path)
    got = run(reshardfs, tree.src, folder("mnt"), "-o", tree.options("step=all,strict"))
    equal(got.returncode, 1, got.stderr)


def test_saves_are_not_mixed():
    """The last save is incomplete: refused, with the remedy that then works."""
    want, tree = two_saves()
    os.rename(os.path.join(tree.src, "rank_1", "ckpt-9_5.ckpt"), os.path.join(tree.src, "rank_1", "ckpt-8_5.ckpt"))
    fails(
        1,
        f"{tree.src}: the ranks' last checkpoints are of different saves: rank_0/ckpt-9_5.ckpt and "
        "rank_1/ckpt-8_5.ckpt; try: epoch=10,step=5, the last that all ranks have",
        tree.src, folder("mnt"), "-o", tree.options(),
    )
    with Mount(tree.src, tree.options("epoch=10,step=5")) as m:
        for rank, data in enumerate(want["10_5"]):
            same_bytes(m.read(rank), data, f"rank {rank}")


def test_options_of_the_source():
    """Options that cannot be right."""
    _, tree = two_saves()
    for options, what in (
        ("rank_dir=node", "option rank_dir=node: not the name of rank folders; try: a name with one %d for the "
         "rank, such as rank_dir=node%d"),
        ("file=a/b", "option file=a/b: not the name of a file in a folder; try: a pattern of names such as file=*_1.ckpt"),
    ):
        fails(2, what, tree.src, folder("mnt"), "-o", tree.options(options))
