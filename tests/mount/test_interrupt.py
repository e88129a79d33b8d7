# SPDX-License-Identifier: Apache-2.0
"""
Nothing hangs: readers that are killed, servers that are ended, and sources that do not answer or lead into the mount itself.

What is promised within one or two seconds is given SOON here, as machines are busy; what is not ended would take much longer.
"""
import contextlib
import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

from forge import Param, Tree
from harness import *
from test_life import keeper
from test_sandbox import shim
from test_slow import is_stuck, slowly

SOON = 10  # seconds
SIZE = 16 << 20

# Of 16 MiB in requests of 64 KiB, of which 32 are under way at most: as many times the delay, and more with the headers.
REQUEST = ("-r", "65536")
PARAMS = [Param("big", (4096, 1000), 0, 0), Param("two", (1024, 64), 1, 0, "Float16"), Param("bias", (64,), 0, 0)]


UNCOMPARED = 3  # of 8 ranks: mounting compares the first with those one step away, which are 1, 2 and 4


def let_flushes_pass(source):
    """The kernel asks once whether closing a file matters, which nothing interrupts: the end of a program waits for that."""
    read_all(os.path.join(source, "rank_0", "net-1_0.ckpt"))


def slow_tree():
    return Tree(folder("tree"), PARAMS, 4, 2)


@contextlib.contextmanager
def hung(process):
    """The delay server answers nothing, and takes nothing from the kernel."""
    process.send_signal(signal.SIGSTOP)
    try:
        eventually(lambda: is_stuck(process), "the delay server has stopped")
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def start(*command):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def waits(process):
    """Whether it waits for an answer of a mount, as far as is known: it runs its program, and sleeps."""
    try:
        program = os.readlink(f"/proc/{process.pid}/exe")
        with open(f"/proc/{process.pid}/stat") as file:
            state = file.read().rsplit(") ", 1)[1][0]
    except OSError:
        return False
    return "python" not in os.path.basename(program) and state in "SD"


def start_waiting(*command):
    process = start(*command)
    eventually(lambda: waits(process), f"{command[0]} waits")
    time.sleep(0.5)
    check(process.poll() is None, f"{command} has ended by itself: {process.returncode}")
    return process


def ends_soon(process, what, status=None):
    since = time.monotonic()
    try:
        got = process.wait(SOON)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{what}: not within {SOON} s") from None
    if status is not None:
        equal(got, status, f"{what}, after {time.monotonic() - since:.1f} s: status")


def kill(process, what):
    process.kill()
    ends_soon(process, f"{what} is killed", -signal.SIGKILL)


def source_reads(m):
    return json.loads(read_all(os.path.join(m.mnt, ".reshardfs", "stats.json")))["source_reads"]


def stops_reading(m, what):
    """What nobody waits for any more is not gone on with."""
    last = [None]

    def still():
        before, last[0] = last[0], source_reads(m)
        time.sleep(1.5)
        return before == last[0]

    eventually(still, f"{what}: sources are not read any more")


# ---- readers that are killed ----------------------------------------------------------------------------


def killed_in_a_sum(options, suffix, what):
    tree = slow_tree()
    with slowly(tree.src, "-d", "1000000", *REQUEST) as (source, _):
        with Mount(source, tree.options("io=direct", options)) as m:
            path = m.file(0).replace(".ckpt", suffix)
            os.stat(path)  # the headers alone take some seconds
            reader = start_waiting("tail", "-c", "4000", path)
            kill(reader, what)
            stops_reading(m, what)


def test_killed_while_a_checksum_is_summed():
    killed_in_a_sum("crc", ".ckpt", "a reader of the checksum of a .ckpt file")


def test_killed_while_an_archive_is_summed():
    killed_in_a_sum("format=pt,zip_crc", ".pt", "a reader of the checksums of a .pt file")


def test_killed_while_planning():
    tree = Tree(folder("tree"), PARAMS, 64, 2)
    with slowly(tree.src, "-d", "8000000") as (source, _):
        with Mount(source, tree.options()) as m:
            kill(start_waiting("stat", m.file(0)), "a program that asks for attributes")
            kill(start_waiting("cat", m.file(1)), "a program that opens a file")


def test_killed_while_sources_hang():
    """In what plans, and in reads of contiguous and of gathered bytes; the mount goes on."""
    tree = slow_tree()
    with slowly(tree.src, "-d", "1000") as (source, process):
        with Mount(source, tree.options("io=direct", "index_cache=no")) as m:
            attribute = f"import os; os.getxattr({m.file(0)!r}, 'user.reshardfs.source_ranks')"
            planning = [
                ("stat", m.file(0)),
                ("cat", m.file(1)),
                ("ls", os.path.join(m.mnt, ".reshardfs", "tensors", "rank_1")),
                ("python3", "-c", attribute),
            ]
            for commands in (planning, [("cat", m.file(0)), ("tail", "-c", "60000", m.file(1))]):
                with hung(process):
                    for command in commands:
                        reader = start(*command)
                        time.sleep(1)
                        check(reader.poll() is None, f"{command} does not wait: {reader.returncode}")
                        kill(reader, command[0])
                for rank in range(2):
                    os.stat(m.file(rank))
            for rank in range(2):
                same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")


# Ways to read from an open file. All but pread have the kernel read pages, whatever io= says.
WAYS = {
    "pread": "os.pread(fd, 1 << 22, at)",
    "O_DIRECT": "os.preadv(os.open(path, os.O_RDONLY | os.O_DIRECT), [mmap.mmap(-1, 1 << 22)], at)",
    "mmap": "mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)[at : at + (1 << 22)]",
    "sendfile": "os.sendfile(os.memfd_create('copy'), fd, at, 1 << 22)",
    "splice": "os.splice(fd, os.pipe()[1], 1 << 16, offset_src=at)",
}


class Reader:
    """A program that opens a file, and reads from it in one of WAYS when it is told to."""

    def __init__(self, path, way, at):
        text = f"import mmap, os; path = {path!r}; at = {at}; fd = os.open(path, os.O_RDONLY); print(flush=True); input()"
        command = [sys.executable, "-c", f"{text}; {WAYS[way]}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, text=True, **pipes)
        self.what = f"a reader by {way}"

    def kill(self):
        kill(self.process, self.what)


def hang(*readers):
    """They read, and the server must ask the source, which hangs."""
    for reader in readers:
        reader.process.stdout.readline()
        reader.process.stdin.write("\n")
        reader.process.stdin.flush()
    time.sleep(0.5)
    for reader in readers:
        check(reader.process.poll() is None, f"{reader.what} has ended by itself: {reader.process.returncode}")


def test_one_that_hangs_leaves_the_file_to_others():
    """The others open and look at it, read in any way until the source answers, and can be killed while the first hangs."""
    tree = slow_tree()
    threads = f"max_threads={(len(WAYS) + 1) ** 2}"  # each that is killed leaves one in the source
    opens = "import os, sys; os.open(sys.argv[1], os.O_RDONLY)"
    for how in "io=direct", "io=cached":
        with slowly(tree.src, "-d", "1000") as (source, process):
            let_flushes_pass(source)
            with Mount(source, tree.options(how, threads, "index_cache=no")) as m:
                os.stat(m.file(0))
                with hung(process):
                    for way in WAYS:
                        first = Reader(m.file(0), way, 1 << 20)
                        hang(first)
                        ends_soon(start(sys.executable, "-c", opens, m.file(0)), f"{how}: open beside {first.what}", 0)
                        ends_soon(start("stat", m.file(0)), f"{how}: stat beside {first.what}", 0)
                        others = [Reader(m.file(0), other, at << 20) for at, other in enumerate(WAYS)]
                        hang(*others)
                        for other in others:
                            other.process.kill()
                        for other in others:
                            ends_soon(other.process, f"{how}: {other.what} beside {first.what} is killed", -signal.SIGKILL)
                        first.kill()
                for rank in range(2):
                    same_bytes(m.read(rank), tree.expected(rank), f"{how}, rank {rank}")


def test_who_must_wait_for_one_that_hangs_goes_on_when_it_is_killed():
    """Mapping past the page cache waits for all pages that are being read, which nothing interrupts."""
    tree = slow_tree()
    with slowly(tree.src, "-d", "1000") as (source, process):
        let_flushes_pass(source)
        with Mount(source, tree.options("io=direct", "index_cache=no")) as m:
            os.stat(m.file(0))
            opened_before, first = Reader(m.file(0), "mmap", 0), Reader(m.file(0), "mmap", 1 << 20)
            with hung(process):
                hang(first)
                hang(opened_before)
                opened_before.process.kill()
                first.kill()
                ends_soon(opened_before.process, "one that was killed before", -signal.SIGKILL)


def test_killed_readers_leave_the_others():
    """Those that wait for the same checksum or the same pieces get them, whoever was making them."""
    tree = slow_tree()
    with slowly(tree.src, "-d", "300000", *REQUEST) as (source, _):
        with Mount(source, tree.options("io=direct", "crc")) as m:
            want = []
            os.stat(m.file(0))
            first = start_waiting("cat", m.file(0))
            threads = [threading.Thread(target=lambda: want.append(m.read(0))) for _ in range(2)]
            for thread in threads:
                thread.start()
            time.sleep(0.5)
            kill(first, "the first reader")
            for thread in threads:
                thread.join(80)
                check(not thread.is_alive(), "another reader of the same hangs")
            equal(len(want), 2, "readers that have read all")
            for got in want:
                same_bytes(got[: len(tree.expected(0))], tree.expected(0), "what another reader got")


def test_signals_with_a_handler_do_not_fail_reads():
    """As on any file system: only a signal that ends the program ends its read."""
    tree = slow_tree()
    want = tree.expected(0)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
    libc.pread.restype = ctypes.c_ssize_t
    caught = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: caught.append(number))
    with slowly(tree.src, "-d", "200000") as (source, _):
        with Mount(source, tree.options("io=direct")) as m:
            fd = os.open(m.file(0), os.O_RDONLY)
            buf = ctypes.create_string_buffer(1 << 20)
            done = threading.Event()

            def disturb():
                while not done.wait(0.02):
                    os.kill(os.getpid(), signal.SIGUSR1)

            thread = threading.Thread(target=disturb)
            thread.start()
            try:
                for at in range(0, 4 << 20, 1 << 20):
                    n = libc.pread(fd, buf, 1 << 20, at)
                    code = ctypes.get_errno()
                    check(n >= 0, f"pread at {at}: {errno.errorcode.get(code, code)}")
                    same_bytes(buf.raw[:n], want[at : at + n], f"at {at}")
            finally:
                done.set()
                thread.join()
                signal.signal(signal.SIGUSR1, before)
                os.close(fd)
    check(caught, "no signal was caught")


# ---- all threads wait ------------------------------------------------------------------------------------


def listed_while_all_threads_wait(tree, options, *flags, env=None):
    with slowly(tree.src, "-d", "1000") as (source, process):
        with Mount(source, tree.options("index_cache=no", *filter(None, [options])), *flags, env=env) as m:
            with hung(process):
                readers = [start_waiting("stat", m.file(i % 2)) for i in range(4)]
                listing = start("ls", "-l", m.mnt)
                ends_soon(listing, f"ls with {options or flags}", 0)
                listing = start("ls", m.mnt, os.path.join(m.mnt, "rank_0"), os.path.join(m.mnt, "rank_1"))
                ends_soon(listing, f"ls of ranks with {options or flags}", 0)
                ends_soon(start("cat", os.path.join(m.mnt, ".reshardfs", "log")), "the log", 0)
                for reader in readers:
                    reader.kill()
                for reader in readers:
                    ends_soon(reader, f"one of four readers with {options or flags}", -signal.SIGKILL)
            for rank in range(2):
                same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}, with {options or flags}")


def test_folders_are_listed_while_all_threads_wait():
    tree = slow_tree()
    for options, *flags in (("max_threads=2",), ("max_threads=1",), ("", "--single-thread")):
        listed_while_all_threads_wait(tree, options, *flags)


def test_folders_are_listed_where_pages_are_large():
    """libfuse counts the room for a request in pages, of which kernels of aarch64 have some of 16 and of 64 KiB."""
    if sanitized():
        return  # nothing can be preloaded before a sanitizer
    tree = slow_tree()
    for pages in 16 << 10, 64 << 10:
        listed_while_all_threads_wait(tree, "max_threads=2", env=shim(RFS_PAGE_BYTES=str(pages)))


def seconds_of(process):
    """The processor time that it took so far."""
    return sum(map(int, read_all(f"/proc/{process.pid}/stat").decode().rsplit(") ", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_guard_without_memory_says_so_once():
    """It can take no request while all threads wait, and does not try again and again."""
    if sanitized():
        return  # nothing can be preloaded before a sanitizer
    tree = slow_tree()
    room = (1 << 20) + 4096  # of libfuse, with its header
    with slowly(tree.src, "-d", "1000") as (source, process):
        let_flushes_pass(source)
        with Foreground(source, tree.options("index_cache=no"), "--single-thread", env=shim(RFS_NO_MEMORY=str(room))) as m:
            with hung(process):
                readers = [start("stat", m.file(rank)) for rank in range(2)]
                eventually(lambda: "wait" in m.log(), f"it says so: {m.log()!r}")
                begun, before = time.monotonic(), seconds_of(m.process)
                time.sleep(3)
                took, passed = seconds_of(m.process) - before, time.monotonic() - begun
                check(took < passed / 4, f"{took:.2f} s of processor time in {passed:.2f} s")
            for reader in readers:
                equal(reader.wait(PATIENCE), 0, "stat, once the source answers")
            same_bytes(m.read(0), tree.expected(0), "rank 0")
            said = "reshardfs: warning: requests that find no free thread wait, as no other can take them: Cannot allocate memory"
            equal(m.log().splitlines(), [said], "the log")


def test_what_was_held_is_answered():
    """More readers than threads, for longer than the server waits until it takes their requests aside."""
    tree = slow_tree()
    with slowly(tree.src, "-d", "400000") as (source, _):
        with Mount(source, tree.options("max_threads=1", "io=direct")) as m:
            got = []
            threads = [threading.Thread(target=lambda r=rank: got.append((r, m.read(r)))) for rank in (0, 1, 0, 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(80)
                check(not thread.is_alive(), "a reader hangs")
            equal(len(got), 4, "readers that have read all")
            for rank, data in got:
                same_bytes(data, tree.expected(rank), f"rank {rank}")


# ---- the end of the server -------------------------------------------------------------------------------


def failed_reader(*command):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def test_signals_end_it_while_sources_hang():
    tree = slow_tree()
    for number, options, flags in (
        (signal.SIGTERM, "", ()),
        (signal.SIGINT, "", ()),
        (signal.SIGTERM, "max_threads=1", ()),
        (signal.SIGTERM, "", ("--single-thread",)),
        (signal.SIGINT, "", ("--single-thread",)),
    ):
        what = f"{number.name} with {options or flags}"
        with slowly(tree.src, "-d", "1000") as (source, process):
            let_flushes_pass(source)
            m = Foreground(source, tree.options("io=direct", "index_cache=no", *filter(None, [options])), *flags)
            os.stat(m.file(0))
            with hung(process):
                readers = [failed_reader("cat", m.file(rank)) for rank in range(2)]
                time.sleep(1)
                m.process.send_signal(number)
                ends_soon(m.process, what, 0)
                check(not mounted(m.mnt), f"{what}: still mounted")
                for reader in readers:
                    ends_soon(reader, f"{what}: a reader", 1)
                    check(reader.stderr.read(), f"{what}: no error was told")


@contextlib.contextmanager
def starved(pids):
    """These processes run only when nothing else does, on a processor that always has something else."""
    cpu = min(os.sched_getaffinity(0))
    others = [start("taskset", "-c", str(cpu), sys.executable, "-c", "while True: pass") for _ in range(4)]
    try:
        for pid in pids:
            for thread in map(int, os.listdir(f"/proc/{pid}/task")):
                os.sched_setaffinity(thread, {cpu})
                os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_a_busy_machine_is_no_source_that_hangs():
    """The server waits for a processor, or for its keeper that does: it takes its time, and ends in order."""
    if sanitized():
        return  # its end takes a hundred times as much
    tree = slow_tree()
    for who in "server", "keeper":
        m = Foreground(tree.src, tree.options("index_cache=no"))
        os.stat(m.file(0))
        with starved([m.process.pid if who == "server" else keeper(m.mnt)]):
            equal(m.stop(signal.SIGTERM), 0, f"exit status with a {who} that waits")
        equal((mounted(m.mnt), m.log()), (False, ""), f"with a {who} that waits: mounted, log")


def test_a_keeper_that_stands_still_is_no_source_that_hangs():
    """The server waits for it, also longer than for sources."""
    tree = slow_tree()
    m = Foreground(tree.src, tree.options("index_cache=no"))
    os.stat(m.file(0))
    of_mount = keeper(m.mnt)
    os.kill(of_mount, signal.SIGSTOP)
    m.process.send_signal(signal.SIGTERM)
    time.sleep(14)
    equal(m.process.poll(), None, "exit status while the keeper stands still")
    os.kill(of_mount, signal.SIGCONT)
    equal(m.process.wait(60), 0, "exit status")
    equal((mounted(m.mnt), m.log()), (False, ""), "mounted, log")


@contextlib.contextmanager
def traced(pid):
    """The first thread of a process that this one has started stands still, as one that others keep off the processor."""
    seize, interrupt, detach, all_threads = 0x4206, 0x4207, 17, 0x40000000
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p
    need(ptrace(seize, pid, None, None) == 0, "no process can be traced here")
    equal(ptrace(interrupt, pid, None, None), 0, "stopping a thread")
    os.waitpid(pid, all_threads)
    try:
        yield
    finally:
        ptrace(detach, pid, None, None)


def test_a_thread_that_does_not_run_is_no_source_that_hangs():
    """In the sandbox, too, the server tells a thread that sleeps in a call from one that gets no turn."""
    tree = slow_tree()
    with Foreground(tree.src, tree.options("index_cache=no")) as m:
        os.stat(m.file(0))
        with traced(m.process.pid):
            m.process.send_signal(signal.SIGTERM)  # the signal is another thread's
            time.sleep(3)
            check(m.process.poll() is None, "it has not waited")
        ends_soon(m.process, "the server", 0)
    equal((mounted(m.mnt), m.log()), (False, ""), "mounted, log")


def test_ctrl_c_ends_mounting_while_sources_hang():
    """The headers of one rank are read before reshardfs returns: in the foreground, and by the process behind it."""
    tree, mnt = slow_tree(), folder("mnt")
    for flags in ((), ("-f",)):
        with slowly(tree.src, "-d", "1000") as (source, process):
            with hung(process):
                command = (reshardfs, source, mnt, *flags, "-o", tree.options("index_cache=no"))
                starter = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
                )
                time.sleep(2)
                equal(starter.poll(), None, f"mounting does not wait, with {flags}")
                os.killpg(starter.pid, signal.SIGINT)
                ends_soon(starter, f"mounting, with {flags}")
                eventually(lambda: not servers(mnt), f"its processes end, with {flags}")
            time.sleep(1)
            check(not mounted(mnt), f"something is mounted, with {flags}")


def test_signals_end_it_while_it_works():
    """Summing up, planning, and reading ahead from storage that is slow, in the foreground and behind it."""
    tree = slow_tree()
    for what, options, command in (
        ("a sum", "crc", ("tail", "-c", "5")),
        ("a plan", "index_cache=no", ("stat",)),
        ("reads", "io=direct", ("cat",)),
    ):
        with slowly(tree.src, "-d", "700000", *REQUEST) as (source, _):
            m = Foreground(source, tree.options(options))
            reader = failed_reader(*command, m.file(0))
            time.sleep(2 if what == "a plan" else 5)
            m.process.send_signal(signal.SIGTERM)
            ends_soon(m.process, what, 0)
            check(not mounted(m.mnt), f"{what}: still mounted")
            ends_soon(reader, f"{what}: its reader")
    with slowly(tree.src, "-d", "700000", *REQUEST) as (source, _):
        m = Mount(source, tree.options("io=direct"))
        m.start()
        reader = failed_reader("cat", m.file(0))
        time.sleep(4)
        os.kill(m.pid, signal.SIGTERM)
        eventually(lambda: not mounted(m.mnt) and not servers(m.mnt), "SIGTERM ends a mount in the background")
        ends_soon(reader, "its reader")


def test_unmounting_ends_it_while_sources_hang():
    """Nobody has a file open any more, but its threads still wait."""
    tree = slow_tree()
    for flags in ((), ("--single-thread",)):
        with slowly(tree.src, "-d", "1000") as (source, process):
            let_flushes_pass(source)
            m = Foreground(source, tree.options("io=direct", "index_cache=no"), *flags)
            with hung(process):
                for _ in range(2):
                    reader = start_waiting("stat", m.file(1))
                    kill(reader, "a reader")
                got = run("fusermount3", "-u", m.mnt, timeout=SOON)
                equal((got.returncode, got.stderr), (0, ""), f"fusermount3 -u with {flags}")
                ends_soon(m.process, f"the server, with {flags}", 0)


def test_the_mount_goes_even_if_a_call_cannot_be_ended():
    """A source server that has taken a request and never answers: its client waits for it in the kernel, unkillably."""
    tree = Tree(folder("tree"), PARAMS, 8, 2)
    files = os.path.join(folder("map"), "files.json")
    asked = os.path.join(folder("asked"), "a-read")
    with slowly(tree.src, "-d", "3600000000", "-t", asked) as (source, process):
        with open(files, "w") as file: # mounting reads of all others
            json.dump({rank: tree.path(rank).replace(tree.src, source if rank == UNCOMPARED else tree.src) for rank in range(8)}, file)
        m = Foreground(source, tree.options("index_cache=no", f"files={files}"))
        reader = failed_reader("stat", m.file(0))
        eventually(lambda: os.path.exists(asked), "the server reads")
        check(reader.poll() is None, "the source was not slow")
        m.process.send_signal(signal.SIGTERM)
        ends_soon(reader, "a reader", 1)
        eventually(lambda: not mounted(m.mnt), "it is unmounted")
        os.listdir(m.mnt)
        process.kill()
        ends_soon(m.process, "the server, once its source is gone", 0)
        check("have not returned" in m.log(), f"what it says: {m.log()!r}")


def killed_while_a_call_cannot_be_ended(*flags):
    """One thread of the server waits in the kernel, so the process stays; its readers and its mount do not."""
    need(os.geteuid() == 0 or os.path.ismount("/sys/fs/fuse/connections"),
         "where fusectl is not mounted, only root can end the calls of others")
    tree = Tree(folder("tree"), PARAMS, 8, 2)
    files = os.path.join(folder("map"), "files.json")
    asked = os.path.join(folder("asked"), "a-read")
    with slowly(tree.src, "-d", "3600000000", "-t", asked) as (source, process):
        with open(files, "w") as file: # mounting reads of all others
            json.dump({rank: tree.path(rank).replace(tree.src, source if rank == UNCOMPARED else tree.src) for rank in range(8)}, file)
        m = Foreground(tree.src, tree.options("index_cache=no", f"files={files}"), *flags, mnt=folder("-".join(("mnt", *flags))))
        try:
            opened = os.open(m.mnt, os.O_RDONLY)
            reader = failed_reader("stat", m.file(0))
            eventually(lambda: os.path.exists(asked), "the server reads")
            check(reader.poll() is None, "the source was not slow")
            m.process.kill()
            ends_soon(reader, "a reader", 1)
            check("Software caused connection abort" in reader.stderr.read(), "another error")
            eventually(lambda: not mounted(m.mnt), "it is unmounted")
            check(m.process.poll() is None, "the server was not held up")
            os.close(opened)
        finally:
            process.kill()
        ends_soon(m.process, "the server, once its source is gone", -signal.SIGKILL)


def test_a_killed_server_that_cannot_end_leaves_no_mount():
    killed_while_a_call_cannot_be_ended()


def test_a_killed_server_with_one_thread_that_cannot_end_leaves_no_mount():
    killed_while_a_call_cannot_be_ended("--single-thread")


# ---- sources in the mount ----------------------------------------------------------------------------------


def test_a_source_that_leads_into_its_own_mount():
    for options, flags in (("", ("--single-thread",)), ("max_threads=1", ()), ("", ())):
        tree = Tree(os.path.join(folder(f"tree{len(options)}{len(flags)}"), "t"), PARAMS, 4, 2)
        what = f"with {options or flags}"
        with Mount(tree.src, tree.options("index_cache=no", *filter(None, [options])), *flags) as m:
            os.rename(os.path.join(tree.src, "rank_1"), os.path.join(tree.src, "aside"))
            os.symlink(os.path.join(m.mnt, "rank_0"), os.path.join(tree.src, "rank_1"))
            for _ in range(2):
                reader = failed_reader("stat", m.file(0))
                ends_soon(reader, f"stat {what}", 1)
                check("Too many levels of symbolic links" in reader.stderr.read(), f"{what}: another error")
            log = read_all(os.path.join(m.mnt, ".reshardfs", "log")).decode()
            check("leads in circles" in log, f"{what}: the log: {log}")
            os.listdir(m.mnt)


def test_a_source_that_is_a_file_of_its_own_mount():
    """By a link that was there before: the mount covers what it led to."""
    tree = slow_tree()
    mnt = folder("mnt")
    below = os.path.join(mnt, "rank_0")
    os.makedirs(below)
    os.rename(tree.path(1), os.path.join(below, "checkpoint_0.ckpt"))
    os.symlink(os.path.join(below, "checkpoint_0.ckpt"), tree.path(1))
    m = Foreground(tree.src, tree.options("nonempty", "follow_links", "index_cache=no"), "--single-thread", mnt=mnt)
    with m:
        reader = failed_reader("cat", m.file(0))
        ends_soon(reader, "cat", 1)
        check("Too many levels of symbolic links" in reader.stderr.read(), "another error")


def test_two_mounts_that_are_each_others_sources():
    """Their threads wait for each other, and so do readers; both can be ended, and the readers end with them."""
    first = Tree(os.path.join(folder("a"), "t"), PARAMS, 4, 2)
    second = Tree(os.path.join(folder("b"), "t"), PARAMS, 4, 2)
    one = Foreground(first.src, first.options("index_cache=no"), mnt=folder("mnt1"))
    os.rename(one.path, one.path + "1")
    two = Foreground(second.src, second.options("index_cache=no"), mnt=folder("mnt2"))
    for tree, other in ((first, two), (second, one)):
        os.rename(os.path.join(tree.src, "rank_1"), os.path.join(tree.src, "aside"))
        os.makedirs(os.path.join(tree.src, "rank_1"))
        os.symlink(other.file(0), tree.path(1))
    readers = [start("stat", m.file(0)) for m in (one, two)]
    time.sleep(2)
    for m in (one, two):
        m.process.send_signal(signal.SIGTERM)
    for m in (one, two):
        ends_soon(m.process, "a server", 0)
        check(not mounted(m.mnt), "still mounted")
    for reader in readers:
        ends_soon(reader, "a reader")
