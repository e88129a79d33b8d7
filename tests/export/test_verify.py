# SPDX-License-Identifier: Apache-2.0
"""--verify reads everything: with the manifest alone, and with the source."""
import os

from exporting import *
from forge import Tree, usual


def new():
    tree, target = Tree(folder("tree"), usual(), 4, 2), place()
    export(tree, target)
    return tree, target


def verify(target, status=0):
    got = run(reshard, "export", "--verify", target)
    equal(got.returncode, status, f"status, with {got.stderr!r}")
    return got


def change(path, at, data=None):
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        if data is None:
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1]))
        else:
            file.truncate(at)


def test_all_is_right():
    tree, target = new()
    size = sum(map(len, wanted(tree).values())) / 1024
    equal(verify(target).stdout, f"{target}: 2 files, {size:.1f} KiB: all as the manifest says\n", "stdout")
    got = run(*words(tree.src, target, tree.options(), "--verify"))
    equal((got.returncode, got.stdout), (0, f"{target}: 2 files, {size:.1f} KiB: all as the manifest says\n"), "with the source")


def test_a_flipped_bit():
    """The first byte, the last, and one in between."""
    tree, target = new()
    path = os.path.join(target, "rank_1", "checkpoint_1.ckpt")
    size = os.path.getsize(path)
    for at in (0, size // 2, size - 1):
        change(path, at)
        got = verify(target, 1)
        equal(got.stdout, "rank_1/checkpoint_1.ckpt: its bytes differ from the manifest\n", "stdout")
        equal(got.stderr, f"reshard: error: {target}: 1 of 2 files are missing or wrong; try: the export again, with "
              "--force where a file is there and differs\n", "stderr")
        equal(run(*words(tree.src, target, tree.options(), "--verify")).returncode, 1, "with the source")
        change(path, at)
    verify(target)


def test_other_differences():
    tree, target = new()
    paths = [os.path.join(target, f"rank_{r}", f"checkpoint_{r}.ckpt") for r in (0, 1)]
    change(paths[0], 100, b"")
    os.unlink(paths[1])
    got = verify(target, 1)
    equal(sorted(got.stdout.splitlines()), ["rank_0/checkpoint_0.ckpt: its size differs from the manifest",
                                            "rank_1/checkpoint_1.ckpt: it is missing"], "stdout")
    os.symlink(paths[0], paths[1])
    check("rank_1/checkpoint_1.ckpt: it is a link\n" in verify(target, 1).stdout, "a link")
    lines = events(run(reshard, "export", "--verify", "--json", target).stdout)
    equal(sorted(line["path"] for line in lines if line["event"] == "difference"),
          ["rank_0/checkpoint_0.ckpt", "rank_1/checkpoint_1.ckpt"], "as JSON")
    equal(lines[-1]["ok"], False, "the result")


def test_an_incomplete_export():
    tree, target = Tree(folder("tree"), usual(), 4, 2), place()
    export(tree, target, "--task", "0/2")
    got = verify(target, 1)
    equal(got.stderr, f"reshard: error: {target}: the export is not complete: 1 of 2 files are in the manifest; "
          "try: the export again\n", "stderr")
    got = run(*words(tree.src, target, tree.options(), "--verify"))
    equal((got.returncode, got.stdout), (1, "rank_1/checkpoint_1.ckpt: it is not in the manifest\n"), "with the source")
    export(tree, target, "--task", "1/2")
    verify(target)


def test_of_other_sources_or_options():
    tree, target = new()
    got = run(*words(tree.src, target, tree.options("dtype=float16"), "--verify"))
    equal(got.returncode, 1, got.stderr)
    check("rank_0/checkpoint_0.ckpt: it was made from other sources, or with other options" in got.stdout, got.stdout)
    os.utime(tree.path(0))
    got = run(*words(tree.src, target, tree.options(), "--verify"))
    equal(got.returncode, 1, got.stderr)
    verify(target)


def test_no_manifest():
    target = folder("empty")
    equal(verify(target, 1).stderr,
          f"reshard: error: {target}: there is no manifest to verify it by; try: the folder of an export\n", "stderr")
