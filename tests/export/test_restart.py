# SPDX-License-Identifier: Apache-2.0
"""Stopped, killed, gone on with: what is complete is kept when it proves to be right, and nothing else."""
import os
import signal
import subprocess
import time

from exporting import *
from forge import Param, Tree, usual

RANKS = 48


def many(name="tree"):
    """Many files, so that there is a time at which some are complete."""
    return Tree(folder(name), [Param("w", (RANKS * 64, 512), 0, 0)], RANKS, RANKS)


def complete(target):
    return names(target)[0]


def partial(target):
    return names(target)[1]


def interrupt(tree, target, number, *more):
    """Sends the signal once some files are complete; the exit status."""
    command = [*slowed("renameat2", 100000), *words(tree.src, target, tree.options(), "-j", "1", *more)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=under_strace()) as process:
        end = time.monotonic() + PATIENCE
        while len(complete(target)) < 3 and process.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        process.send_signal(number)
        out, errors = process.communicate()
    done = complete(target)
    check(3 <= len(done) < RANKS, f"{len(done)} of {RANKS} files are complete")
    return process.returncode, out, errors


def goes_on(tree, target, kept):
    """The same command; it keeps what was there."""
    before = {name: os.stat(os.path.join(target, name)).st_ino for name in kept}
    result = events(export(tree, target, "--json").stdout)[-1]
    equal((result["files_written"], result["files_kept"]), (RANKS - len(kept), len(kept)), "written, kept")
    is_right(tree, target)
    equal({name: os.stat(os.path.join(target, name)).st_ino for name in kept}, before, "inodes of what is kept")
    equal(len(manifest(target)["files"]), RANKS, "files in the manifest")
    equal(run(reshard, "export", "--verify", target).returncode, 0, "verified")


def test_killed():
    tree, target = many(), place()
    equal(interrupt(tree, target, signal.SIGKILL)[0], -signal.SIGKILL, "status")
    done = complete(target)
    for name in done:
        same_bytes(contents(target)[name], wanted(tree)[name], name)
    goes_on(tree, target, done)


def test_stopped_by_a_signal():
    for number in (signal.SIGINT, signal.SIGTERM):
        tree, target = many(f"tree{number}"), place(str(number))
        status, out, errors = interrupt(tree, target, number)
        equal((status, out), (-number, ""), "status, stdout")
        done = complete(target)
        equal(errors, f"reshard: error: {target}: stopped by a signal: {len(done)} files are complete; "
              "try: the same command, to go on\n", "stderr")
        equal(partial(target), [], "temporary files")
        equal(sorted(f["path"] for f in manifest(target)["files"]), sorted(done), "the manifest")
        goes_on(tree, target, done)


def test_stopped_at_the_first_manifest():
    """Which is written before any file: its temporary file goes, too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        tree, target = many(f"tree{number}"), place(str(number))
        command = [*slowed("renameat,renameat2", 1000000), *words(tree.src, target, tree.options())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=under_strace()) as process:
            end = time.monotonic() + PATIENCE
            while not os.path.exists(os.path.join(target, f".{MANIFEST}.part")) and time.monotonic() < end:
                check(process.poll() is None, "it writes no manifest")
                time.sleep(0.001)
            process.send_signal(number)
            out, errors = process.communicate()
        equal((process.returncode, out), (-number, ""), "status, stdout")
        equal(errors, f"reshard: error: {target}: stopped by a signal: 0 files are complete; "
              "try: the same command, to go on\n", "stderr")
        equal(os.listdir(target), [MANIFEST], "what is there")
        goes_on(tree, target, [])


def test_a_partial_file_is_written_anew():
    tree, target = Tree(folder("tree"), usual(), 4, 2), place()
    export(tree, target)
    for rank, left in ((0, b""), (1, b"x" * 100000)):
        where = os.path.join(target, f"rank_{rank}")
        with open(os.path.join(where, f".checkpoint_{rank}.ckpt.part"), "wb") as file:
            file.write(left)
    os.unlink(os.path.join(target, "rank_1", "checkpoint_1.ckpt"))
    export(tree, target)
    is_right(tree, target)


def test_what_is_damaged_is_told_and_not_kept():
    tree, target = Tree(folder("tree"), usual(), 4, 2), place()
    export(tree, target)
    path = os.path.join(target, "rank_0", "checkpoint_0.ckpt")
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(50)
        file.write(b"?")
    refused(tree, target, f"rank_0/checkpoint_0.ckpt: it is in {target} already, and has other bytes than its manifest says; "
            "try: --force to replace it, or another DST")
    export(tree, target, "--trust")  # who says so is believed
    same_bytes(read_all(path)[50:51], b"?", "trusted")
    export(tree, target, "--force")
    is_right(tree, target)


def test_another_export_is_not_mixed_with_it():
    """Other options, or a source that has changed: nothing is taken for what it is not."""
    tree, target = Tree(folder("tree"), usual(), 4, 2), place()
    export(tree, target)
    error = ("it is in {} already, and {}; try: --force to replace it, or another DST")
    got = export(tree, target, options=["dtype=float16"], status=1)
    check(error.format(target, "has another size than the new content") in got.stderr, got.stderr)
    newer = Tree(folder("newer"), usual(), 4, 2, version=1)
    for rank in range(4):
        tree.write(rank, newer.source(rank))
    got = export(tree, target, "--trust", status=1)
    check(error.format(target, "differs from the new content") in got.stderr, got.stderr)
    export(tree, target, "--force")
    is_right(newer, target)


def test_a_source_that_was_only_touched():
    """Its time says that it changed, its bytes that it did not."""
    tree, target = Tree(folder("tree"), usual(), 4, 2), place()
    export(tree, target)
    for rank in range(4):
        os.utime(tree.path(rank))
    result = events(export(tree, target, "--json").stdout)[-1]
    equal((result["files_written"], result["files_kept"]), (0, 2), "written, kept")
    equal(run(*words(tree.src, target, tree.options(), "--verify")).returncode, 0, "verified with the source")


def test_a_lost_manifest():
    tree, target = Tree(folder("tree"), usual(), 4, 2), place()
    export(tree, target)
    os.unlink(os.path.join(target, MANIFEST))
    refused(tree, target, f"{target}: the folder to write to is not empty, and no export is in it; "
            "try: an empty folder, or --force to write into this one")
    export(tree, target, "--force")
    is_right(tree, target)
    equal(len(manifest(target)["files"]), 2, "files in the manifest")


def test_a_damaged_manifest():
    tree, target = Tree(folder("tree"), usual(), 4, 2), place()
    export(tree, target)
    path = os.path.join(target, MANIFEST)
    data = read_all(path)
    with open(path, "wb") as file:
        file.write(data[: len(data) // 2])
    got = export(tree, target, status=1)
    check(f"{path}: offset " in got.stderr and ": not a manifest that can be read: " in got.stderr, got.stderr)
    got = run(*words(tree.src, target, tree.options(), "--force"))
    equal((got.returncode, got.stderr), (0, "reshard: warning: files of an earlier export are not removed, as its manifest "
                                            "is damaged\n"), "status, stderr")
    equal(len(manifest(target)["files"]), 2, "files in the manifest")


def test_two_at_once():
    """The second one fails at the first file that the other is at; what the first writes is right."""
    tree, target = many(), place()
    command = words(tree.src, target, tree.options(), "-j", "1")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as first, \
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as second:
        ends = [(p, p.communicate()[1]) for p in (first, second)]
    for process, errors in ends:
        known = (" is writing it" in errors or "cannot rename: File exists" in errors)
        check(process.returncode == 0 or (process.returncode == 1 and known), errors)
    export(tree, target)
    is_right(tree, target)
