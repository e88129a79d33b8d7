# SPDX-License-Identifier: Apache-2.0
"""Disks that are full or fail, and sources that cannot be read: told, and gone on with when they can."""
import os
import shutil
import subprocess

from exporting import *
from forge import Param, Tree, usual

WRITES = "pwrite64,pwritev,pwritev2"


def new():
    return Tree(folder("tree"), [Param("w", (1024, 1024), 0, 0)], 4, 4)


def injected(tree, target, calls, what, *more, path=None, always=True):
    """An export whose calls have WHAT, strace's words, happen to them."""
    need(shutil.which("strace"), "strace is missing")
    trace = os.path.join(tree.dir, "trace")
    which = ["-P", path] if path else []
    strace = ["strace", "-f", "-qq", "-o", trace, *which, "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
    got = run(*strace, *words(tree.src, target, tree.options(), *more), env=under_strace())
    check(not always or "(INJECTED)" in read_all(trace).decode(), "nothing was injected")
    return got


def fails_and_goes_on(tree, target, got, *parts):
    equal((got.returncode, got.stdout), (1, ""), f"status, stdout, with {got.stderr!r}")
    lines = got.stderr.splitlines()
    for part in parts:
        check(part in lines[-1], f"no {part!r} in {got.stderr!r}")
    equal(names(target)[1], [], "temporary files")
    export(tree, target)
    is_right(tree, target)


def test_a_disk_that_fills_up():
    tree, target = new(), place()
    got = injected(tree, target, WRITES, "error=ENOSPC:when=3", "-j", "1")
    fails_and_goes_on(tree, target, got, ".ckpt: cannot write: No space left on device; try: free some room")


def test_a_quota():
    tree, target = new(), place()
    got = injected(tree, target, WRITES, "error=EDQUOT:when=2", "-j", "1")
    fails_and_goes_on(tree, target, got, "cannot write: Disk quota exceeded; try: free some room")


def test_a_disk_that_fails():
    # One thread waits for the manifest and its folder, the first file, its folder and those above, and then for the
    # second file.
    for number, (calls, when) in enumerate(((WRITES, 2), ("fsync", 7))):
        tree, target = new(), place(str(number))
        got = injected(tree, target, calls, f"error=EIO:when={when}", "-j", "1")
        fails_and_goes_on(tree, target, got, ".ckpt: cannot write: Input/output error; try: check the disk")
        shutil.rmtree(tree.dir)


def test_a_file_that_cannot_begin():
    """The other threads take nothing of files that begin together with one that cannot."""
    for number in range(5):
        tree, target = new(), place(str(number))
        got = injected(tree, target, "flock", "error=EAGAIN:when=2", "-j", "4")
        equal((got.returncode, got.stdout), (1, ""), f"status, stdout, with {got.stderr!r}")
        check("is writing it; try: once that has ended" in got.stderr.splitlines()[-1], got.stderr)
        export(tree, target)
        is_right(tree, target)
        shutil.rmtree(tree.dir)


def test_a_rename_that_fails():
    tree, target = new(), place()
    got = injected(tree, target, "renameat2", "error=EACCES:when=1", "-j", "1")
    fails_and_goes_on(tree, target, got, "cannot rename: Permission denied")


def test_a_file_system_without_exclusive_renames():
    tree, target = new(), place()
    got = injected(tree, target, "renameat2", "error=EINVAL")
    equal((got.returncode, got.stderr), (0, ""), "status, stderr")
    is_right(tree, target)


def test_a_file_system_without_locks():
    tree, target = new(), place()
    got = injected(tree, target, "flock", "error=ENOSYS")
    equal((got.returncode, got.stderr), (0, ""), "status, stderr")
    is_right(tree, target)


def test_short_and_interrupted_writes():
    tree, target = new(), place()
    got = injected(tree, target, WRITES, "error=EINTR:when=1+2")
    equal((got.returncode, got.stderr), (0, ""), "status, stderr")
    is_right(tree, target)


def test_a_source_that_cannot_be_read():
    """Its first header, and a tensor of it; the other ranks' files are complete or are not there."""
    tree, target = Tree(folder("tree"), [Param("w", (4096, 2048), 0, 0)], 2, 2), place("header")
    victim = tree.path(1)
    # Headers that an earlier export has left would not be read.
    got = injected(tree, target, "pread64,preadv", "error=EIO:when=1", "-o", "index_cache=no", path=victim)
    equal(got.returncode, 1, got.stderr)
    check(victim in got.stderr and "Input/output error" in got.stderr, got.stderr)
    check(not os.path.exists(target), "something was written, though not all can be planned")

    # strace counts for each thread by itself, and which one reads is chance: with two headers, three samples and 16
    # pieces, one of them comes to its fifth call in most runs, and mostly in a piece.
    line = f"{victim}: the source cannot be read for rank_1/checkpoint_1.ckpt: Input/output error; try: check the disk"
    for attempt in range(20):
        target = place(f"tensor{attempt}")
        got = injected(tree, target, "pread64,preadv", "error=EIO:when=5+", "-o", "index_cache=no", path=victim,
                       always=False)
        if got.returncode and line in got.stderr.splitlines()[-1]:
            break
    equal(got.returncode, 1, got.stderr)
    check(line in got.stderr.splitlines()[-1], got.stderr)
    for name, data in contents(target).items():
        same_bytes(data, wanted(tree)[name], name)
    check("rank_1/checkpoint_1.ckpt" not in contents(target), "the file is there")
    export(tree, target)
    is_right(tree, target)


def test_a_source_that_changes():
    tree, target = new(), place()
    # Slow enough for the source to change while it is written.
    command = [*slowed(WRITES, 300000), *words(tree.src, target, tree.options(), "-j", "1")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=under_strace()) as process:
        eventually(lambda: os.path.isdir(os.path.join(target, "rank_0")), "it writes")
        with open(tree.path(3), "ab") as file:
            file.write(b"x")
        _, errors = process.communicate()
    equal(process.returncode, 1, errors)
    check(f"{tree.path(3)}: the source cannot be read for rank_3/checkpoint_3.ckpt: Stale file handle; "
          "try: the same command again" in errors, errors)
    check("rank_3/checkpoint_3.ckpt" not in contents(target), "the file is there")


# ---- room ------------------------------------------------------------------------------------------------------


def small_disk(size):
    need(os.geteuid() == 0, "only root can mount a tmpfs")
    where = folder("disk")
    got = run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", where)
    need(got.returncode == 0, f"no tmpfs: {got.stderr}")
    return where


def test_too_little_room():
    tree = new()
    disk = small_disk("2M")
    target = os.path.join(disk, "out")
    got = export(tree, target, status=1)
    check(f"{target}: 4.0 MiB are to be written, and 2.0 MiB are free there; try: free some room, another DST, or a part of "
          "the ranks by --ranks\n" in got.stderr, got.stderr)
    equal(os.listdir(disk), [], "what was written")
    export(tree, target, "--ranks", "0")
    # What is there need not be written: 3 MiB are left to be, and 1 MiB is free.
    got = export(tree, target, status=1)
    check(": 3.0 MiB are to be written, and " in got.stderr, got.stderr)
    run("umount", disk)


def test_a_disk_that_another_one_fills():
    """There is room when it is looked for, and none when it is wanted."""
    tree = Tree(folder("tree"), [Param("w", (8192, 1024), 0, 0)], 4, 4)
    disk = small_disk("40M")
    target = os.path.join(disk, "out")
    command = [*slowed(WRITES, 300000), *words(tree.src, target, tree.options(), "-j", "1")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=under_strace()) as process:
        eventually(lambda: os.path.isdir(os.path.join(target, "rank_0")), "it writes")
        ballast = os.path.join(disk, "ballast")
        run("dd", "if=/dev/zero", f"of={ballast}", "bs=1M", "count=36")
        _, errors = process.communicate()
    equal(process.returncode, 1, errors)
    check("No space left on device; try: free some room, then the same command again" in errors, errors)
    equal(names(target)[1], [], "temporary files")
    os.unlink(ballast)
    export(tree, target)
    is_right(tree, target)
    run("umount", disk)
