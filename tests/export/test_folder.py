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
    for end in ("safetensors", "pt", "ckpt"):
        file = os.path.join(tree.dir, f"one.{end}")
        refused(tree, file, f"an export writes a folder, and '{file}' is the name of a file; "
                "try: a name without that ending; the files will be in it", status=2)
        check(not os.path.exists(file), file)
    os.mkdir(file)  # a folder that is there is taken as it is called
    export(tree, file)
    missing = os.path.join(tree.dir, "no", "where")
    refused(tree, missing, f"{missing}: cannot be written to: No such file or directory; try: mkdir -p {missing}")
    file = os.path.join(tree.dir, "src_strategy.ckpt")
    refused(tree, file, f"{file}: the folder cannot be opened: Not a directory")


def test_what_differs_is_not_overwritten():
    tree, target = new(), folder("out")
    path = os.path.join(target, "rank_1", "checkpoint_1.ckpt")
    os.makedirs(os.path.dirname(path))
    want = tree.expected(1)
    for found, why in ((want[:-1], "has another size than the new content"),
                       (want[:-1] + b"?", "differs from the new content")):
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
    refused(tree, target, "--ranks: there is no rank 2 of 2; try: ranks 0 to 1", "--ranks", "0-2", status=2)
    source = tree.options().split(",")[0]
    got = run(*words(tree.src, place("whole"), source, "--ranks", "1"))
    says = "--ranks: without a destination there is one rank, 0, with all; try: -o 'dst_rules=like source'"
    check(got.returncode == 2 and says in got.stderr, got.stderr)
    target = place("like")
    got = run(*words(tree.src, target, source + ",dst_rules=like source", "--ranks", "1"))
    equal((got.returncode, sorted(contents(target))), (0, ["rank_1/checkpoint_1.ckpt"]), got.stderr)
    got = run(*words(tree.src, place("flat"), tree.options().split(",")[0] + ",view=huggingface", "--ranks", "0"))
    equal(got.returncode, 2, got.stderr)


def test_progress():
    """On a terminal a line that goes away; as JSON lines and a result; else nothing."""
    tree = new()
    for line in events(export(tree, place("json"), "--json").stdout):
        check(line["event"] in ("progress", "result"), f"{line}")
    equal((line["event"], line["ok"], line["files_written"], line["error"]), ("result", True, 2, None), "the result")
    got = export(tree, place("other"), "--json", options=["prefix=other_"])
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


def two_exports(name=""):
    """A tree of 4 ranks for 4, exported, and the same for 2."""
    tree, target = Tree(folder("tree" + name), usual(), 4, 4), place("out" + name)
    export(tree, target)
    fewer = Tree(folder("fewer" + name), usual(), 4, 2)
    for rank in range(4):
        fewer.write(rank, tree.source(rank))
    return tree, fewer, target


def test_other_ranks_of_another_export():
    """Their files are refused by name, and removed only if they are what the manifest lists."""
    tree, fewer, target = two_exports()
    before = contents(target)
    refused(fewer, target, f"{target}: 2 files of another export are in it, which this one does not have: "
            "rank_2/checkpoint_2.ckpt, rank_3/checkpoint_3.ckpt; try: another DST, or --force to remove them")
    equal(contents(target), before, "what was there")
    got = run(*words(fewer.src, target, fewer.options(), "--verify"))
    equal(got.returncode, 1, "verified with the source")
    check("rank_2/checkpoint_2.ckpt: it is of another export\n" in got.stdout, got.stdout)
    with open(os.path.join(target, "rank_3", "mine"), "w", encoding="utf-8") as file:
        file.write("not listed")
    result = events(export(fewer, target, "--force", "--json").stdout)[-1]
    equal((result["files_written"], result["files_removed"]), (2, 2), "written, removed")
    same_files(contents(target), wanted(fewer) | {"rank_3/mine": b"not listed"}, "exported")
    equal(sorted(e["path"] for e in manifest(target)["files"]), sorted(wanted(fewer)), "the manifest")
    equal(manifest(target)["total_files"], 2, "files of the whole export")
    equal(run(reshard, "export", "--verify", target).returncode, 0, "verified")
    equal(run(*words(fewer.src, target, fewer.options(), "--verify")).returncode, 0, "verified with the source")


def test_another_format_of_an_earlier_export():
    tree, target = new(), place()
    export(tree, target)
    got = export(tree, target, options=["format=safetensors"], status=1)
    check("2 files of another export are in it, which this one does not have: rank_0/checkpoint_0.ckpt, "
          "rank_1/checkpoint_1.ckpt; try: " in got.stderr, got.stderr)
    is_right(tree, target)
    got = export(tree, target, "--force", options=["format=safetensors"])
    check(got.stdout.endswith("; 2 of another export removed\n"), got.stdout)
    equal(sorted(contents(target)), [f"rank_{r}/checkpoint_{r}.safetensors" for r in range(2)], "files")
    result = events(export(tree, target, "--json", options=["format=safetensors"]).stdout)[-1]
    equal((result["files_kept"], result["files_removed"]), (2, 0), "kept, removed")


def test_what_is_a_link_by_now_is_not_removed():
    """Nor what lies behind one, nor what a damaged manifest may have listed."""
    tree, fewer, target = two_exports()
    aside = folder("aside")
    os.rename(os.path.join(target, "rank_3"), os.path.join(aside, "rank_3"))
    os.symlink(os.path.join(aside, "rank_3"), os.path.join(target, "rank_3"))
    path = os.path.join(target, "rank_2", "checkpoint_2.ckpt")
    os.rename(path, os.path.join(aside, "kept.ckpt"))
    os.symlink(os.path.join(aside, "kept.ckpt"), path)
    export(fewer, target, "--force")
    check(os.path.islink(path) and os.path.islink(os.path.join(target, "rank_3")), "the links are gone")
    same_bytes(read_all(os.path.join(aside, "rank_3", "checkpoint_3.ckpt")), tree.expected(3), "behind a link")
    same_bytes(read_all(os.path.join(aside, "kept.ckpt")), tree.expected(2), "what a link leads to")
    tree, fewer, target = two_exports("-again")
    os.truncate(os.path.join(target, MANIFEST), os.path.getsize(os.path.join(target, MANIFEST)) - 20)
    got = run(*words(fewer.src, target, fewer.options(), "--force"))
    equal((got.returncode, got.stderr), (0, "reshard: warning: files of an earlier export are not removed, as its "
                                            "manifest is damaged\n"), "status, stderr")
    same_files(contents(target), wanted(tree) | wanted(fewer), "nothing removed")


def test_tasks_and_another_export():
    """The manifests of more tasks than there are now go with the files; each task may be the first."""
    tree, fewer, target = two_exports()
    shutil.rmtree(target)
    for task in range(4):
        export(tree, target, "--task", f"{task}/4")
    got = export(fewer, target, "--task", "1/2", status=1)
    check("2 files of another export are in it" in got.stderr, got.stderr)
    for task in (1, 0):
        export(fewer, target, "--task", f"{task}/2", "--force")
    is_right(fewer, target)
    equal(sorted(n for n in os.listdir(target) if n.startswith("reshard")),
          ["reshard-manifest.0.json", "reshard-manifest.1.json"], "manifests")
    equal(run(reshard, "export", "--verify", target).returncode, 0, "verified")
    is_right(fewer, target)
