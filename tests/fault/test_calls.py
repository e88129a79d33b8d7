# SPDX-License-Identifier: Apache-2.0
"""
What sources' system calls may do to a reader: short reads and EINTR nothing; EIO an errno that stays, for the
files that depend on the source; what the process lacks for the moment an errno that goes away.

    w   cut by rows over four ranks on both sides: file R is made from rank R alone
    x   by rows, then by columns: each file from every rank
"""
import collections
import errno
import os
import re
import shutil

from forge import Param, Tree, usual
from harness import *
from seal import key_file, seal_tree

ALONE = [Param("w", (256, 1024), 0, 0)]
MIXED = [Param("x", (256, 1024), 0, 1)]
READS = "pread64,preadv"
STATS = "/^(new)?fstat(at)?(64)?$,stat"  # statx asks no source
VICTIM = 3  # of four ranks, the one that is not compared to mount


def new(params=None):
    return Tree(folder("tree"), params or ALONE, 4, 4)


def injected(tree, calls, what, *flags, options=()):
    """A mount that sees WHAT, strace's words, happen to these calls on the victim's file; it keeps nothing for the next,
    so that all of them are for reading. Sources are opened by their paths, which is how strace knows them."""
    needs_strace_of_a_mount()
    inject = ["-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
    before = ["strace", "-f", "-qq", "-o", os.path.join(tree.dir, "trace"), "-P", tree.path(VICTIM), *inject]
    return Foreground(tree.src, tree.options("index_cache=no", "follow_links", *options), *flags, before=before, env=under_strace())


def under_strace():
    """No search for leaks, which cannot be made then."""
    return {**os.environ, "ASAN_OPTIONS": os.environ["ASAN_OPTIONS"] + ":detect_leaks=0"}


def was_injected(tree):
    check("(INJECTED)" in read_all(os.path.join(tree.dir, "trace")).decode(), "nothing was injected")


def outcome(call, path):
    try:
        return call(path)
    except OSError as error:
        return errno.errorcode[error.errno]


def all_right(m, tree, ranks=range(4)):
    for rank in ranks:
        equal(os.stat(m.file(rank)).st_size, len(tree.expected(rank)), f"size of rank {rank}")
        same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")


# ---- what nobody sees ------------------------------------------------------------------------------------


def short_reads():
    """The environment in which reads are short and interrupted."""
    return preloaded("fault", "short_reads.c")


def test_short_reads():
    env = short_reads()
    for number, (params, how) in enumerate(((ALONE, "io=direct"), (MIXED, "io=direct"), (MIXED, "io=cached"))):
        tree = Tree(folder(f"tree{number}"), params, 4, 4)
        with Foreground(tree.src, to_look_into(tree.options(how)), env=env) as m:
            all_right(m, tree)
            maps = read_all(f"/proc/{m.process.pid}/maps").decode()
            check("short_reads.so" in maps, "it is not loaded")


def encrypted(params, mode, name="tree"):
    tree = Tree(folder(name), params, 4, 4)
    seal_tree(tree, mode=mode, key=b"a key for tests.")
    return tree, f"key_file={key_file(tree, b'a key for tests.')}"


MODES = ("AES-GCM", "AES-CBC", "SM4-CBC")


def test_short_reads_of_encrypted_sources():
    env = short_reads()
    for mode in MODES:
        tree, key = encrypted(MIXED, mode, mode)
        with Foreground(tree.src, tree.options(key), env=env) as m:
            all_right(m, tree)


def test_interrupted_reads_of_encrypted_sources():
    for mode in MODES:
        tree, key = encrypted(MIXED, mode, mode)
        with injected(tree, READS, "error=EINTR:when=1+2", options=(key,)) as m:
            all_right(m, tree)
        was_injected(tree)


def test_interrupted_reads():
    for number, params in enumerate((ALONE, MIXED)):
        tree = Tree(folder(f"tree{number}"), params, 4, 4)
        with injected(tree, READS, "error=EINTR:when=1+2") as m:
            all_right(m, tree)
        was_injected(tree)


def test_interrupted_opens():
    tree = new()
    with injected(tree, "openat", "error=EINTR:when=1+2") as m:
        all_right(m, tree)
    was_injected(tree)


def test_interrupted_opens_beneath_the_source():
    needs_strace_of_a_mount()
    tree = new()
    trace = os.path.join(tree.dir, "trace")
    inject = ["-e", "trace=openat2", "-e", "inject=openat2:error=EINTR:when=1+2"]
    before = ["strace", "-f", "-qq", "-o", trace, *inject]
    with Foreground(tree.src, tree.options("index_cache=no", "allow_other"), before=before, env=under_strace()) as m:
        all_right(m, tree)
    was_injected(tree)


def test_interrupted_stats():
    tree = new()
    with injected(tree, STATS, "error=EINTR:when=1+2") as m:
        all_right(m, tree)
    was_injected(tree)


# ---- what stays ------------------------------------------------------------------------------------------


def stays(calls, code, what, when="1", warm=False):
    """It happens once, and the file fails with WHAT from then on; the others are as ever."""
    tree = new()
    with injected(tree, calls, f"error={code}:when={when}", "--single-thread") as m:
        if warm:
            all_right(m, tree, [VICTIM])
        got = [outcome(call, m.file(VICTIM)) for call in (read_all, read_all, os.stat, read_all)]
        wanted = [what] * 4
        if warm:
            got, wanted = got[:2] + got[3:], wanted[:3]  # a size that was told is told again
        equal(got, wanted, "read, read, stat, read")
        all_right(m, tree, [r for r in range(4) if r != VICTIM])
        lines = [x for x in m.log().splitlines() if tree.path(VICTIM) + ":" in x]
        check(lines, f"the log does not name the file: {m.log()!r}")
    was_injected(tree)
    with Mount(tree.src, tree.options(), mnt=folder("again")) as m:
        all_right(m, tree)


def calls_so_far(calls):
    """[name of a call] that the headers and one reading of the file take."""
    tree = Tree(folder("count"), ALONE, 4, 4)
    with injected(tree, calls, "delay_enter=0", "--single-thread") as m:
        all_right(m, tree, [VICTIM])
    trace = read_all(os.path.join(tree.dir, "trace")).decode()
    shutil.rmtree(folder("count"))
    return [found[1] for x in trace.splitlines() if "resumed>" not in x and (found := re.search(r"(\w+)\(", x))]


def stat_call():
    """The one that this libc makes most of, and how often: strace counts calls of different names by themselves."""
    return collections.Counter(calls_so_far(STATS)).most_common(1)[0]


def test_a_read_error_in_a_header():
    stays(READS, "EIO", "EIO")


def test_a_read_error_in_a_tensor():
    stays(READS, "EIO", "EIO", when=len(calls_so_far(READS)) + 1, warm=True)


def test_an_error_in_opening():
    stays("openat", "EIO", "EIO")


def test_an_error_in_stat():
    name, n = stat_call()
    stays(name, "EIO", "EIO")
    shutil.rmtree(folder("tree"))
    stays(name, "EIO", "EIO", when=n + 1, warm=True)


def test_a_source_that_goes_stale():
    """As a network file system says it."""
    stays(READS, "ESTALE", "ESTALE")


def test_every_file_that_depends_on_it():
    tree = new(MIXED)
    with injected(tree, READS, "error=EIO:when=1", "--single-thread") as m:
        equal([outcome(read_all, m.file(rank)) for rank in range(4)], ["EIO"] * 4, "each file")
    was_injected(tree)


def test_a_read_error_in_an_encrypted_source():
    """In its headers, and in a block."""
    for mode, when in (("AES-GCM", 1), ("AES-GCM", 3), ("AES-CBC", 1), ("AES-CBC", 2)):
        tree, key = encrypted(ALONE, mode, f"{mode}-{when}")
        with injected(tree, READS, f"error=EIO:when={when}", "--single-thread", options=(key,)) as m:
            equal([outcome(read_all, m.file(VICTIM)) for _ in range(3)], ["EIO"] * 3, f"{mode}, read {when}")
            all_right(m, tree, [r for r in range(4) if r != VICTIM])
        was_injected(tree)


# ---- what passes -----------------------------------------------------------------------------------------


def passes(calls, code, when=1):
    """The call fails for one try; the errno is its own, and the next try is as if nothing had been."""
    tree = new()
    with injected(tree, calls, f"error={code}:when={when}", "--single-thread") as m:
        equal(outcome(read_all, m.file(VICTIM)), code, "the first try")
        all_right(m, tree)
    was_injected(tree)


def test_no_descriptor_for_the_moment():
    for code in ("EMFILE", "ENFILE"):
        passes("openat", code, "1..4")  # after each of three, the descriptor of a source that was compared is closed for it
        shutil.rmtree(folder("tree"))
    passes("openat", "ENOMEM")
    for code in ("EMFILE", "ENFILE"):
        shutil.rmtree(folder("tree"))
        tree = new()
        with injected(tree, "openat", f"error={code}:when=1", "--single-thread") as m:
            all_right(m, tree)
        was_injected(tree)


def test_try_again():
    passes(READS, "EAGAIN")


def test_no_memory_while_ranks_are_compared():
    """Before the mount answers, and with the first plan."""
    for when in range(1, 7):
        tree = Tree(folder(f"tree-{when}"), usual(4), 4, 2)
        with injected(tree, READS, f"error=ENOMEM:when={when}", "--single-thread") as m:
            for _ in range(8):  # strace counts the reads of each thread by themselves
                for rank in range(2):
                    check(outcome(read_all, m.file(rank)) in (tree.expected(rank), "ENOMEM"), f"{when}: rank {rank}")
            all_right(m, tree, range(2))
        if when < 4:  # a thread that shares its reads with others may not come to more
            was_injected(tree)


def test_a_source_that_may_not_be_read():
    """It is not said to have changed, wherever that is met: nobody has seen that."""
    for calls, code in (("openat", "EACCES"), ("openat", "EPERM"), (stat_call()[0], "EACCES"), (READS, "EACCES")):
        passes(calls, code)
        shutil.rmtree(folder("tree"))
    tree = new()
    with injected(tree, "openat", "error=EACCES", "--single-thread") as m:
        equal([outcome(read_all, m.file(VICTIM)) for _ in range(2)], ["EACCES"] * 2, "reading")
        all_right(m, tree, [r for r in range(4) if r != VICTIM])
        lines = [x for x in m.log().splitlines() if tree.path(VICTIM) + ":" in x]
    was_injected(tree)
    check(any("the file cannot be read: Permission denied" in x for x in lines), f"the log: {lines}")
    check(not any("changed" in x for x in lines), f"the log: {lines}")


def test_a_link_that_cannot_be_looked_at():
    """It is not passed over: a file of an earlier step would be taken instead."""
    need(shutil.which("strace"), "strace is missing")
    tree = new()
    kept = os.path.join(tree.dir, "kept")
    os.rename(tree.path(VICTIM), kept)
    os.symlink(kept, tree.path(VICTIM))
    with open(os.path.join(os.path.dirname(tree.path(VICTIM)), "a.ckpt"), "wb") as file:
        file.write(tree.source(0))
    options = tree.options("follow_links")
    with Mount(tree.src, options) as m:
        all_right(m, tree)
    for code, status in (("EINTR", 0), ("EIO", 1)):
        trace = os.path.join(tree.dir, "trace." + code)
        # Only links are looked at here, and the first of these calls is what lists them.
        inject = ["-e", "trace=newfstatat", "-e", f"inject=newfstatat:error={code}:when=1"]
        before = ["strace", "-f", "--quiet=all", "-o", trace, "-P", tree.path(VICTIM), *inject]
        got = run(*before, reshardfs, "--check", tree.src, "-o", options + ",sandbox=off", env=under_strace())
        check("(INJECTED)" in read_all(trace).decode(), f"nothing was injected: {got.stderr}")
        equal(got.returncode, status, f"{code}: status, with {got.stderr!r}")
        line = f"reshardfs: error: {tree.path(VICTIM)}: cannot be looked at: Input/output error\n"
        equal(got.stderr, line if status else "", "stderr")
