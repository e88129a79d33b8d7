# SPDX-License-Identifier: Apache-2.0
"""The folder that is written to: what it may be, what is left alone in it, and who may read it."""
import json
import os
import pty
import shutil
import stat
import subprocess

from exporting import *
from forge import Tree, usual


def new(name="tree", **how):
    return Tree(folder(name), usual(), 4, 2, **how)


def test_summary():
    tree, target = new(), place()
    got = export(tree, target)
    size = sum(map(len, wanted(tree).values()))
    check(got.stdout.startswith(f"{target}: 2 files written, {size / 1024:.1f} KiB in "), got.stdout)
    check(got.stdout.endswith(" s; 0 were there, 0 bytes\n"), got.stdout)
    got = export(tree, target)
    check(" 0 files written, 0 bytes in " in got.stdout and f"; 2 were there, {size / 1024:.1f} KiB" in got.stdout,
          got.stdout)


def test_overlapping_folders():
    tree = new()
    remedy = "try: a folder elsewhere"
    refused(tree, tree.src, f"{tree.src}: the folder to write to is the source; {remedy}")
    inside = os.path.join(tree.src, "new")
    refused(tree, inside, f"{inside}: the folder to write to is inside the source {tree.src}; {remedy}")
    refused(tree, tree.dir, f"{tree.dir}: the source {tree.src} is inside the folder to write to; {remedy}", "--force")
    os.symlink(tree.src, os.path.join(tree.dir, "link"))
    refused(tree, os.path.join(tree.dir, "link", "new"),
            f"{inside}: the folder to write to is inside the source {tree.src}; {remedy}")
    check(not os.path.exists(inside), "made all the same")


def test_sources_elsewhere():
    """A map of files may lead into the folder that is written to."""
    tree, target = new(), folder("out")
    paths = {}
    for rank in range(4):
        paths[str(rank)] = os.path.join(target, f"{rank}.ckpt")
        os.rename(tree.path(rank), paths[str(rank)])
    files = os.path.join(tree.dir, "files.json")
    with open(files, "w", encoding="utf-8") as file:
        json.dump(paths, file)
    refused(tree, target, f"{paths['0']}: this source is inside the folder to write to, {target}; "
            "try: a folder elsewhere", "--force", options=[f"files={files}"])


def test_folders_of_others():
    tree, target = new(), folder("mine")
    error = "the folder to write to is not empty, and no export is in it; try: an empty folder, or --force to write into this one"
    with open(os.path.join(target, "notes"), "w", encoding="utf-8") as file:
        file.write("mine")
    refused(tree, target, f"{target}: {error}")
    equal(os.listdir(target), ["notes"], "what is in it")
    export(tree, target, "--force")
    same_files(contents(target), {**wanted(tree), "notes": b"mine"}, "exported")
    export(tree, target)  # our manifest is there now


def test_no_folder():
    tree = new()
    missing = os.path.join(tree.dir, "no", "where")
    refused(tree, missing, f"{missing}: cannot be written to: No such file or directory; try: a folder in one that is there")
    file = os.path.join(tree.dir, "src_strategy.ckpt")
    refused(tree, file, f"{file}: the folder cannot be opened: Not a directory")


def test_what_differs_is_not_overwritten():
    tree, target = new(), folder("out")
    path = os.path.join(target, "rank_1", "checkpoint_1.ckpt")
    os.makedirs(os.path.dirname(path))
    want = tree.expected(1)
    for found, why in ((want[:-1], "is of another size than what is to be written"),
                       (want[:-1] + b"?", "differs from what is to be written")):
        with open(path, "wb") as file:
            file.write(found)
        os.rename(path, path)
        shutil.rmtree(os.path.join(target, "rank_0"), ignore_errors=True)
        with open(os.path.join(target, MANIFEST), "w", encoding="utf-8") as file:
            file.write('{"format":"reshard-manifest"}')
        refused(tree, target, f"rank_1/checkpoint_1.ckpt: it is in {target} already, and {why}; "
                "try: --force to replace it, or another DST")
        same_bytes(read_all(path), found, "what was there")
        check(not os.path.exists(os.path.join(target, "rank_0")), "something was written all the same")
    export(tree, target, "--force")
    is_right(tree, target)


def test_what_is_the_same_is_kept():
    """Also what no manifest knows, as it came about by cp."""
    tree, target = new(), folder("out")
    path = os.path.join(target, "rank_1", "checkpoint_1.ckpt")
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as file:
        file.write(tree.expected(1))
    with open(os.path.join(target, MANIFEST), "w", encoding="utf-8") as file:
        file.write('{"format":"reshard-manifest"}')
    before = os.stat(path)
    result = events(export(tree, target, "--json").stdout)[-1]
    equal((result["files_written"], result["files_kept"]), (1, 1), "written, kept")
    equal((os.stat(path).st_ino, os.stat(path).st_mtime_ns), (before.st_ino, before.st_mtime_ns), "the file")
    is_right(tree, target)
    equal(len(manifest(target)["files"]), 2, "files in the manifest")


def test_links_are_not_followed():
    tree, target, other = new(), folder("out"), folder("other")
    os.symlink(other, os.path.join(target, "rank_0"))
    got = export(tree, target, "--force", status=1)
    check("rank_0/checkpoint_0.ckpt: cannot be looked at: " in got.stderr, got.stderr)
    equal(os.listdir(other), [], "what the link leads to")


def test_modes():
    """As the view's, which are those of the sources, but readable by their owner in any case; and the umask."""
    tree = new()
    for mode, umask, want in ((0o644, 0o022, 0o444), (0o600, 0o022, 0o400), (0o444, 0o077, 0o400), (0o640, 0, 0o440)):
        for rank in range(4):
            os.chmod(tree.path(rank), mode)
        target = place(f"{mode:o}.{umask:o}")
        os.umask(umask)
        try:
            export(tree, target)
        finally:
            os.umask(0o022)
        st = os.stat(os.path.join(target, "rank_0", "checkpoint_0.ckpt"))
        equal(stat.S_IMODE(st.st_mode), want, f"mode of the file, from {mode:o} with {umask:o}")
        equal(stat.S_IMODE(os.stat(os.path.join(target, "rank_0")).st_mode), 0o777 & ~umask, "mode of the folder")


def test_ranks():
    tree, target = new(), place()
    export(tree, target, "--ranks", "1")
    same_files(contents(target), {"rank_1/checkpoint_1.ckpt": tree.expected(1)}, "one rank")
    equal((manifest(target)["total_files"], len(manifest(target)["files"])), (1, 1), "files in the manifest")
    export(tree, target, "--ranks", "0,1-1")
    is_right(tree, target)
    equal((manifest(target)["total_files"], len(manifest(target)["files"])), (2, 2), "files in the manifest")
    refused(tree, target, "--ranks: there is no rank 2 of 2; try: ranks from 0 on", "--ranks", "0-2", status=2)
    got = run(*words(tree.src, place("flat"), tree.options().split(",")[0] + ",view=huggingface", "--ranks", "0"))
    equal(got.returncode, 2, got.stderr)


def test_progress():
    """On a terminal a line that goes away; as JSON lines and a result; else nothing."""
    tree = new()
    for line in events(export(tree, place("json"), "--json").stdout):
        check(line["event"] in ("progress", "result"), f"{line}")
    equal((line["event"], line["ok"], line["files_written"], line["error"]), ("result", True, 2, None), "the result")
    got = export(tree, place("json"), "--json", options=["prefix=other_"])
    equal(events(got.stdout)[-1]["ok"], True, "the result")
    got = run(*words(tree.src, tree.src, tree.options(), "--json"))
    equal((got.returncode, events(got.stdout)[-1]["ok"]), (1, False), "the result of a failure")
    check("is the source" in events(got.stdout)[-1]["error"] and "is the source" in got.stderr, got.stderr)

    big = os.path.join(folder("big"), "ex")
    equal(run(reshard, "example", big, "--size", "256M", "--cut", "rows").returncode, 0, "example")
    ours, theirs = pty.openpty()
    command = [reshard, "export", big + "/src", place("tty"), "-s", big + "/src_strategy.ckpt", "-d",
               big + "/dst_strategy.ckpt", "-j", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:
                break
            if not more:
                break
            shown += more
    os.close(ours)
    equal(process.returncode, 0, shown)
    if shown:  # a fast disk leaves no time to draw
        check(shown.startswith(b"\r"), f"{shown[:100]}")
        check(all(len(line) <= 80 for line in shown.split(b"\r")), f"{shown[:400]}")
        equal(shown.split(b"\r")[-2].strip(), b"", "what is left of the line")
