# SPDX-License-Identifier: Apache-2.0
"""What a mount takes of the machine, and what it does with less of it: memory, threads, descriptors, lines of a log."""
import errno
import json
import os
import random
import re
import resource
import signal
import threading
import time

from forge import Param, Tree, number, text, usual
from harness import *

LOADED = 6  # seconds; the most memory is taken within the first 2

# All gathered, in runs of 512 bytes: pieces of 256 bytes to 1 MiB, few of which are of one size. 87 MiB.
MIXED = [Param(f"p{i}", (4 + i * i * 37 // 10, 256), 1, 1) for i in range(32)] + [
    Param(f"q{i}", (4 + i * 97, 256), 1, 1) for i in range(32)
]


def status_of(pid, name):
    return int(re.search(rf"{name}:\s+(\d+)", read_all(f"/proc/{pid}/status").decode())[1])


def read_mixed(m, want, seed, done):
    """Whole files in reads of one size, or places all over in reads of several, in turns. Compares all of it."""
    dice = random.Random(seed)
    while not done.is_set():
        rank = dice.randrange(len(want))
        sequential = dice.random() < 0.5
        size = dice.choice((4 << 10, 100_000, 128 << 10, 700_000, 1 << 20, 3 << 20))
        with open(m.file(rank), "rb", buffering=0) as file:
            for n in range(64):
                at = n * size if sequential else dice.randrange(len(want[rank]))
                got = os.pread(file.fileno(), size, at)
                if got != want[rank][at : at + size]:
                    raise AssertionError(f"rank {rank}: {size} bytes at {at} differ")
                if done.is_set():
                    return


def load(m, want, readers, least):
    """The most that the server took, in KiB: of LOADED seconds, and until it is LEAST, as a busy machine takes longer."""
    done = threading.Event()
    failures = []

    def one(seed):
        try:
            read_mixed(m, want, seed, done)
        except Exception as error:
            failures.append(error)
            done.set()

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(readers)]
    for thread in threads:
        thread.start()
    try:
        done.wait(LOADED)
        eventually(lambda: done.is_set() or status_of(m.pid, "VmHWM") > least, f"it takes more than {least} KiB")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    equal(failures, [], "what readers met")
    return status_of(m.pid, "VmHWM")


def test_memory_under_a_mixed_load():
    """Pieces of all sizes, wanted in any order by more readers than there are threads."""
    if sanitized():
        return
    tree = Tree(folder("tree"), MIXED, 4, 2)
    want = [tree.expected(rank) for rank in range(2)]
    # The promise is 64 MiB and 1.5 for each thread above 16. A third of it is for headers, of which there are few here.
    for cache, threads, most in (32, 16, 32 + 43), (64, 64, 64 + 43 + 48 * 1.2):
        with Mount(tree.src, tree.options(f"cache={cache}M,max_threads={threads}")) as m:
            peak = load(m, want, 64, cache << 10) / 1024
            check(peak <= most, f"{peak:.1f} MiB at most, with {cache} MiB of cache and {threads} threads; expected {most:.1f}")


def test_memory_of_strategies_and_maps():
    """Their files are in memory while they are read, one at a time, a strategy's message beside it, and given back."""
    if sanitized():
        return
    tree, grown = Tree(folder("tree"), [Param("w", (64, 64), 0, 1)], 4, 2), 32
    files = {str(rank): tree.path(rank) for rank in range(4)}
    sides = [f"{side}_strategy.ckpt" for side in ("src", "dst")]
    small, peaks = [read_all(os.path.join(tree.dir, name)) for name in sides], []
    for size in 0, grown << 20:
        for name, data in zip(sides, small):  # with an operator whose name is long
            operator = text(1, "x" * size) + text(2, number(1, 0) + text(2, number(1, 1)))
            tree.put_strategy(name, data + (text(2, operator) if size else b""))
        tree.put_strategy("map.json", json.dumps(files).encode() + b" " * size)
        with Mount(tree.src, tree.options(f"files={tree.dir}/map.json,cache=32M")) as m:
            same_bytes(m.read(0), tree.expected(0), "rank 0")
            peaks.append((status_of(m.pid, "VmHWM"), status_of(m.pid, "VmRSS")))
    (least, idle), (most, after) = ((high >> 10, now >> 10) for high, now in peaks)
    check(grown - 6 <= most - least <= 2 * grown + 4, f"{most} MiB at most for files of {grown}, {least} for small ones")
    check(after - idle <= 4, f"{after} MiB when they were read, {idle} after small ones")


def limited(what):
    """What goes before a command to run it under a limit of the shell's."""
    return ["sh", "-c", f'ulimit {what} && exec "$0" "$@"']


def test_few_descriptors():
    """With more sources than there may be descriptors: every byte, and an orderly end, however it is asked for."""
    n = 300
    tree = Tree(folder("tree"), [Param("w", (n * 4, 64), 0, 1), Param("b", (n,), 0, 0)], n, 2)
    want = [tree.expected(rank) for rank in range(2)]
    for limit in 16, 20, 40, 262:
        for how in signal.SIGTERM, None:
            with Foreground(tree.src, tree.options("cache=8M"), before=limited(f"-n {limit}")) as m:
                for rank in range(2):
                    same_bytes(m.read(rank), want[rank], f"{limit} descriptors, rank {rank}")
                equal(m.stop(how), 0, f"exit status with {limit} descriptors, {how}: {m.log()}")
                # Indexes are kept once the tree is two seconds old, which takes a descriptor more.
                said = [x for x in m.log().splitlines() if "no index is kept here: Too many open files" not in x]
                equal(said, [], f"the log with {limit} descriptors")


def test_the_soft_limit_is_raised():
    n = 100
    tree = Tree(folder("tree"), [Param("w", (n * 4, 64), 0, 1)], n, 2)
    with Foreground(tree.src, to_look_into(tree.options("cache=8M")), before=limited("-S -n 32")) as m:
        same_bytes(m.read(0), tree.expected(0), "rank 0")
        check(len(os.listdir(f"/proc/{m.process.pid}/fd")) > n, "sources are closed as if the limit were 32")


def real(program):
    """The program itself, and its environment: a shell, as libtool puts it before, may need more of a stack."""
    folder_of, name = os.path.split(program)
    below = os.path.join(folder_of, ".libs")
    if not os.path.exists(os.path.join(below, name)):
        return program, os.environ
    return os.path.join(below, name), {**os.environ, "LD_LIBRARY_PATH": below}


def test_small_stacks():
    """A limit that can be raised is; with another one each program says one line, and nothing crashes."""
    if sanitized():
        return  # they take more of a stack before a program begins
    tree = Tree(folder("tree"), usual(), 4, 2)
    said = lambda kib: f"error: the stack may have {kib} KiB, and 1024 are needed; try: a higher limit (ulimit -s)\n"
    options = ["-s", f"{tree.dir}/src_strategy.ckpt", "-d", f"{tree.dir}/dst_strategy.ckpt"]
    for kib, most in ((64, 64), (48, 48), (32, 32), (32, 8192), (1024, 1024)):
        good = most >= 1024
        for program, *words in (
            (reshardfs, "--version"),
            (reshardfs, "--check", tree.src, "-o", tree.options()),
            (reshardfs, tree.src, folder("mnt"), "-o", tree.options("index_cache=no")),
            (reshard, "info", tree.src, "-o", tree.options()),
            (reshard, "stats", tree.src, *options[:2]),
            (reshard, "export", tree.src, os.path.join(folder("out"), f"{kib}-{most}"), *options),
        ):
            command, env = real(program)
            got = run("prlimit", f"--stack={kib << 10}:{most << 10}", command, *words, env=env)
            what = f"{os.path.basename(program)} {words[0]} with {kib} KiB of {most}"
            equal(got.returncode, 0 if good else 1, f"{what}: status, with {got.stderr!r}")
            if not good:
                equal((got.stdout, got.stderr), ("", f"{os.path.basename(program)}: {said(kib)}"), what)
        if good:
            for rank in range(2):
                name = f"rank_{rank}/checkpoint_{rank}.ckpt"
                same_bytes(read_all(os.path.join(folder("mnt"), name)), tree.expected(rank), f"rank {rank} with {kib} KiB")
            unmount(folder("mnt"))
            eventually(lambda: not servers(folder("mnt")), "the server ends")


def cramp(m, slack):
    """Leaves the server so many bytes of addresses, or what is left if it may have less: a thread that it starts meanwhile
    takes some, and only root can raise a hard limit."""
    size = (status_of(m.process.pid, "VmSize") << 10) + slack
    now = resource.prlimit(m.process.pid, resource.RLIMIT_AS)[1]
    size = size if now == resource.RLIM_INFINITY else min(size, now)
    resource.prlimit(m.process.pid, resource.RLIMIT_AS, (size, size))


def test_few_addresses():
    """libfuse says for each request that it can have no thread; the server answers, and ends in order."""
    if sanitized():
        return
    tree = Tree(folder("tree"), [Param("w", (512, 512), 1, 0)], 4, 2)
    want = tree.expected(0)
    said = 0
    for how in signal.SIGTERM, None:
        with Foreground(tree.src, tree.options("cache=8M"), before=limited("-c 0")) as m:
            with open(m.file(0), "rb", buffering=0) as file:  # so little that hardly a thread is started for it
                same_bytes(file.read(4096), want[:4096], "the beginning of rank 0")
            cramp(m, 6 << 20)  # replies have buffers, but no thread has a stack
            failures = []

            def read():
                try:
                    for _ in range(300):
                        same_bytes(m.read(0), want, "rank 0")
                except Exception as error:
                    failures.append(error)

            begun = time.monotonic()
            readers = [threading.Thread(target=read) for _ in range(8)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            # As documented: where even a buffer finds no room, which is rare.
            other = [e for e in failures if not (isinstance(e, OSError) and e.errno == errno.ENOMEM)]
            equal(other, [], "what readers met")
            log = m.log()
            said += log.count("error creating thread")
            most = 11 * (time.monotonic() - begun + 2)
            check(log.count("\n") <= most, f"{log.count(chr(10))} lines, more than {most:.0f}: {log[:300]}")
            cramp(m, 0)
            equal(m.stop(how), 0, f"exit status: {m.log()[-300:]}")
    check(said > 0, "libfuse could start threads")


def test_a_cache_of_more_than_there_are_addresses():
    """It is as large as there is room for."""
    if sanitized():
        return
    tree = Tree(folder("tree"), [Param("w", (512, 2048), 1, 0)], 4, 2)
    with Foreground(tree.src, tree.options("cache=64G"), before=limited("-v 1000000")) as m:
        for _ in range(2):
            same_bytes(m.read(0), tree.expected(0), "rank 0")
