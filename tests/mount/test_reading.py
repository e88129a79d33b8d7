# SPDX-License-Identifier: Apache-2.0
"""Bytes: whole files, any block, any order, many readers, through each kind of I/O."""
import concurrent.futures
import errno
import hashlib
import mmap
import os
import random
import re
import subprocess
import sys

from forge import Param, Tree, WHOLE, usual
from harness import *

SEED = int(os.environ.get("RFS_SEED", "1"))
MODES = ("auto", "direct", "cached")


def big(src=4, dst=2):
    """Files of several MiB, so that they take several requests."""
    return Tree(folder("tree"), usual(12), src, dst)


def test_tutorial():
    """8 ranks to 4, as README has it, and a transformer, against the independent check of the contents."""
    mnt = folder("mnt")
    for name, more in (("tutorial", ()), ("transformer", ("--layers", "3"))):
        where = os.path.join(place_of(), name)
        got = run(reshard, "example", where, "--src", "8", "--dst", "4", "--seed", "7", *more)
        equal(got.returncode, 0, got.stderr)
        options = f"src_strategy={where}/src_strategy.ckpt,dst_strategy={where}/dst_strategy.ckpt"
        with Mount(os.path.join(where, "src"), options, mnt=mnt):
            got = run(sys.executable, os.path.join(top, "scripts", "check-example"), where, mnt, "--seed", "7")
            equal((got.returncode, got.stderr), (0, ""), got.stdout)
            check(got.stdout.endswith("4 files equal\n"), got.stdout)


def test_copies_of_large_files():
    """Every rank copied at once, out of tensors of several pieces, gathered and contiguous, with little cache."""
    cuts = (("tp", "float32", "--layers", "1"), ("opt", "bfloat16", "--layers", "1"), ("cols", "float16"), ("rows", "int8"))
    for cut, dtype, *more in cuts:
        where, mnt, out = folder(f"large.{cut}"), folder(f"mnt.{cut}"), folder(f"copies.{cut}")
        got = run(reshard, "example", where, "--src", "6", "--dst", "4", "--cut", cut, "--dtype", dtype, "--size", "24M",
                  "--seed", "9", "--force", *more)
        equal(got.returncode, 0, got.stderr)
        options = f"src_strategy={where}/src_strategy.ckpt,dst_strategy={where}/dst_strategy.ckpt,cache=12M"
        with Mount(os.path.join(where, "src"), options, mnt=mnt):
            copying = [subprocess.Popen(["cp", "-r", os.path.join(mnt, rank), out]) for rank in sorted(os.listdir(mnt))]
            equal([copy.wait() for copy in copying], [0] * 4, "cp -r")
        got = run(sys.executable, os.path.join(top, "scripts", "check-example"), where, out, "--seed", "9")
        equal((got.returncode, got.stderr), (0, ""), got.stdout)
        check(got.stdout.endswith("4 files equal\n"), got.stdout)


def place_of():
    return os.path.dirname(folder("mnt"))


def test_whole_files():
    tree = big()
    for mode in MODES:
        with Mount(tree.src, tree.options("io=" + mode)) as m:
            for rank in range(2):
                want = tree.expected(rank)
                equal(os.stat(m.file(rank)).st_size, len(want), "st_size")
                same_bytes(m.read(rank), want, f"rank {rank}, io={mode}")


def test_one_rank_to_many_and_back():
    params = [Param("w", (60, 40), 0, 1), Param("b", (60,), 0, 0), Param("s", (), WHOLE, WHOLE)]
    for src, dst in ((1, 4), (4, 1), (3, 2), (2, 5), (4, 4)):
        tree = Tree(folder(f"tree{src}{dst}"), params, src, dst)
        with Mount(tree.src, tree.options(), mnt=folder(f"mnt{src}{dst}")) as m:
            for rank in range(dst):
                same_bytes(m.read(rank), tree.expected(rank), f"{src} to {dst}, rank {rank}")


def test_one_strategy_only():
    params = [Param("w", (8, 6), 0, 1)]
    tree = Tree(folder("in"), params, 4, 1)
    with Mount(tree.src, f"src_strategy={tree.dir}/src_strategy.ckpt") as m:
        equal(os.listdir(m.mnt), ["rank_0"], "what is shown")
        same_bytes(m.read(0), tree.expected(0), "one whole checkpoint out")
    tree = Tree(folder("out"), params, 1, 3)
    with Mount(tree.src, f"dst_strategy={tree.dir}/dst_strategy.ckpt") as m:
        for rank in range(3):
            same_bytes(m.read(rank), tree.expected(rank), "one whole checkpoint in")


def random_reads(path, want, seed, count):
    rng = random.Random(seed)
    fd = os.open(path, os.O_RDONLY)
    try:
        for _ in range(count):
            size = int(2 ** rng.uniform(0, 21))
            at = rng.randrange(len(want) + 1)
            if rng.random() < 0.2:
                at = at // 4096 * 4096
            got = os.pread(fd, size, at)
            same_bytes(got, want[at : at + size], f"seed {seed}: pread({size}, {at})")
    finally:
        os.close(fd)


def test_random_preads():
    tree = big()
    for mode in MODES:
        with Mount(tree.src, tree.options("io=" + mode)) as m:
            for rank in range(2):
                random_reads(m.file(rank), tree.expected(rank), SEED + rank, 150)


def test_random_preads_with_a_tiny_cache():
    tree = big()
    with Mount(tree.src, tree.options("cache=2M")) as m:
        random_reads(m.file(1), tree.expected(1), SEED, 300)


def test_parallel_readers():
    tree = big()
    want = [tree.expected(rank) for rank in range(2)]
    for mode in ("direct", "cached"):
        with Mount(tree.src, tree.options("io=" + mode)) as m:
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                jobs = [
                    pool.submit(random_reads, m.file(i % 2), want[i % 2], SEED * 100 + i, 60)
                    for i in range(12)
                ]
                jobs += [pool.submit(lambda r: same_bytes(m.read(r), want[r], "whole"), i % 2) for i in range(6)]
                for job in jobs:
                    job.result()


def test_first_readers_at_once():
    """Nothing is indexed yet when many ask for it."""
    tree = Tree(folder("tree"), usual(), 8, 4)
    for _ in range(5):
        with Mount(tree.src, tree.options()) as m:
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                for i, got in enumerate(pool.map(lambda i: m.read(i % 4), range(16))):
                    same_bytes(got, tree.expected(i % 4), f"rank {i % 4}")


def test_one_thread():
    tree = big()
    with Mount(tree.src, tree.options(), "--single-thread") as m:
        same_bytes(m.read(0), tree.expected(0), "--single-thread")
    with Mount(tree.src, tree.options("max_threads=1")) as m:
        same_bytes(m.read(1), tree.expected(1), "max_threads=1")


def test_reads_at_the_end():
    tree = Tree(folder("tree"), usual(), 4, 2)
    with Mount(tree.src, tree.options()) as m:
        want = tree.expected(0)
        fd = os.open(m.file(0), os.O_RDONLY)
        size = len(want)
        equal(os.pread(fd, 10, size), b"", "at the end")
        equal(os.pread(fd, 10, size + 5), b"", "past the end")
        equal(os.pread(fd, 10, 2**62), b"", "far past the end")
        equal(os.pread(fd, 10, size - 3), want[-3:], "over the end")
        equal(os.read(fd, size + 1), want, "read(size + 1), as load_checkpoint does")
        equal(os.lseek(fd, 0, os.SEEK_END), size, "SEEK_END")
        equal(os.lseek(fd, 0, os.SEEK_HOLE), size, "SEEK_HOLE")
        equal(os.lseek(fd, 5, os.SEEK_DATA), 5, "SEEK_DATA")
        os.close(fd)


def test_dd_block_sizes():
    tree = big()
    want = tree.expected(1)
    digest = hashlib.md5(want).hexdigest()
    for mode in ("direct", "cached"):
        with Mount(tree.src, tree.options("io=" + mode)) as m:
            for size in ("1", "7", "512"):
                for skip in (0, 1500):
                    out = os.path.join(place_of(), "out")
                    got = run("dd", f"if={m.file(1)}", f"of={out}", f"bs={size}", "count=2000", f"skip={skip}")
                    equal(got.returncode, 0, got.stderr)
                    at = skip * int(size)
                    same_bytes(read_all(out), want[at : at + 2000 * int(size)], f"dd bs={size} skip={skip}")
            for size in ("4K", "4097", "64K", "1M", "3M", "64M"):
                got = run("sh", "-c", f"dd if='{m.file(1)}' bs={size} status=none | md5sum")
                equal(got.stdout.split()[0], digest, f"dd bs={size}, io={mode}")


def test_o_direct():
    tree = big()
    want = tree.expected(0)
    for mode in ("direct", "cached"):
        with Mount(tree.src, tree.options("io=" + mode)) as m:
            fd = os.open(m.file(0), os.O_RDONLY | os.O_DIRECT)
            page = mmap.mmap(-1, 1 << 20)
            n = os.preadv(fd, [page], 1 << 20)
            same_bytes(page[:n], want[1 << 20 : (1 << 20) + n], f"O_DIRECT, io={mode}")
            os.close(fd)


def test_cp_r():
    tree = big()
    with Mount(tree.src, tree.options()) as m:
        copy = os.path.join(place_of(), "copy")
        for how in ("-r", "-a"):
            got = run("cp", how, m.mnt, copy)
            equal((got.returncode, got.stderr), (0, ""), f"cp {how}")
            for rank in range(2):
                path = os.path.join(copy, f"rank_{rank}", f"checkpoint_{rank}.ckpt")
                same_bytes(read_all(path), tree.expected(rank), f"cp {how}, rank {rank}")
            got = run("diff", "-r", m.mnt, copy)
            equal((got.returncode, got.stdout), (0, ""), "diff -r")
            run("chmod", "-R", "u+w", copy)
            run("rm", "-r", copy)


def test_private_mmap():
    tree = big()
    want = tree.expected(0)
    for mode in MODES:
        with Mount(tree.src, tree.options("io=" + mode)) as m:
            with open(m.file(0), "rb") as file:
                pages = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
                same_bytes(pages[:], want, f"private mapping, io={mode}")
                pages.close()


def test_shared_mmap():
    """Refused past the page cache; through it, it works."""
    tree = big()
    want = tree.expected(0)
    for mode in MODES:
        with Mount(tree.src, tree.options("io=" + mode)) as m:
            with open(m.file(0), "rb") as file:
                try:
                    pages = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
                except OSError as error:
                    equal((mode != "cached", error.errno), (True, errno.ENODEV), f"mmap, io={mode}")
                    continue
                equal(mode, "cached", "a shared mapping is possible")
                same_bytes(pages[:], want, "shared mapping")
                pages.close()


def test_many_ranks_are_listed():
    """More names than one answer holds, both ways of listing."""
    n = 3000
    tree = Tree(folder("tree"), [Param("w", (n,), 0, 0, "Int8")], 1, n)
    with Mount(tree.src, tree.options()) as m:
        names = os.listdir(m.mnt)
        equal(len(names), n, "names")
        equal(sorted(names), sorted(f"rank_{r}" for r in range(n)), "the names")
        got = run("ls", "-lU", m.mnt)
        equal(len(got.stdout.splitlines()), n + 1, "ls -lU")
        equal(os.listdir(os.path.join(m.mnt, "rank_2999")), ["checkpoint_2999.ckpt"], "the last one")
        same_bytes(m.read(2999), tree.expected(2999), "the last one")


def test_requests_of_one_mebibyte():
    """A reader of a whole file is answered a MiB at a time, whatever the I/O."""
    tree = big()
    size = len(tree.expected(0))
    with Foreground(tree.src, tree.options("io=direct"), "--debug") as m:
        fd = os.open(m.file(0), os.O_RDONLY)
        buffer = mmap.mmap(-1, (size // 4096 + 1) * 4096)  # starts at a page
        equal(os.readv(fd, [buffer]), size, "bytes read at once")
        os.close(fd)
        asked = re.findall(r"opcode: READ \(15\).*\n.*success, outsize: (\d+)", m.log())
        asked = [int(n) - 16 for n in asked]  # less the header of the reply
        equal(asked, [1 << 20] * (size >> 20) + [size & 0xFFFFF], "sizes of the replies")


def test_read_ahead_is_raised():
    """Where only root can, nobody else hears of it."""
    tree = big()
    for mode, want in (("cached", "1024"), ("direct", "128")):
        with Foreground(tree.src, tree.options("io=" + mode)) as m:
            dev = os.stat(m.mnt).st_dev
            knob = f"/sys/class/bdi/{os.major(dev)}:{os.minor(dev)}/read_ahead_kb"
            # It is raised when the mount answers, beside the first requests.
            if os.access(knob, os.W_OK):
                eventually(lambda: read_all(knob).decode().strip() == want, f"read_ahead_kb is {want}, io={mode}")
            equal(m.read(0), tree.expected(0), "the file")
            if os.access(knob, os.W_OK):
                equal(read_all(knob).decode().strip(), want, f"read_ahead_kb, io={mode}")
            check("read-ahead" not in m.log(), f"io={mode}: {m.log()}")
