# SPDX-License-Identifier: Apache-2.0
"""Sources on slow storage: the same bytes as ever, by way of bench/delay_server, which answers each read late."""
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import threading

from forge import Param, Tree
from harness import *

# Contiguous, in 1 KiB and in 2-byte runs; many small ones; more than the read-ahead begins with.
PARAMS = [
    Param("rows", (2048, 1400), 0, 0),
    Param("kib", (1024, 1024), 1, 0, "Float32"),
    Param("two", (4096, 8), 1, 0, "Float16"),
    *(Param(f"small{i}", (8, 16), 0, i % 2) for i in range(200)),
]


def delay_server():
    program = os.path.abspath(os.path.join(build, "bench", "delay_server"))
    if os.access(program, os.X_OK):
        return program
    with open(os.path.join(build, "delay_server.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other tests want it at the same time
        need(shutil.which("make"), "make is missing")
        got = run("make", "-C", build, "bench/delay_server")
        equal(got.returncode, 0, f"make bench/delay_server: {got.stderr}")
    return program


@contextlib.contextmanager
def slowly(path, *options):
    """PATH, seen through the delay server, and its process."""
    spot = folder("slow")
    with subprocess.Popen([delay_server(), *options, path, spot], stdin=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: mounted(spot) or process.poll() is not None, "the delay server mounts")
            check(mounted(spot), "the delay server did not mount")
            yield spot, process
        finally:
            run("fusermount3", "-uz", spot)
            process.terminate()


def is_stuck(process):
    """Whether all that it was asked for waits, as behind a server that is gone."""
    with open(f"/proc/{process.pid}/status") as file:
        return "State:\tT" in file.read()


def test_every_byte():
    tree = Tree(folder("tree"), PARAMS, 4, 2)
    want = [tree.expected(rank) for rank in range(2)]
    for request, how in (("131072", "io=direct"), ("1048576", "io=cached"), ("1048576", "cache=9M"), ("1048576", "cache=0")):
        with slowly(tree.src, "-r", request, "-d", "1000") as (source, _):
            with Mount(source, tree.options(how)) as m:
                for rank in range(2):
                    same_bytes(m.read(rank), want[rank], f"requests of {request}, {how}, rank {rank}")


def test_tensors_in_the_hidden_folder():
    """Each read through in sequence, before any file of the view was looked at."""
    tree = Tree(folder("tree"), PARAMS, 4, 2)
    with slowly(tree.src, "-d", "1500") as (source, _):
        with Mount(source, tree.options("io=direct")) as m:
            tensors = os.path.join(m.mnt, ".reshardfs", "tensors")
            for param in PARAMS[:3]:
                with open(os.path.join(tensors, "full", param.name + ".npy"), "rb", buffering=0) as file:
                    got = b"".join(iter(lambda: file.read(200000), b""))
                want = tree.full[param.name]
                same_bytes(got[len(got) - len(want) :], want, param.name)
            same_bytes(m.read(1), tree.expected(1), "rank 1")


def test_two_readers_and_pieces():
    tree = Tree(folder("tree"), PARAMS, 4, 2)
    wrong = []

    def read_in_pieces(path, want, size):
        with open(path, "rb", buffering=0) as file:
            got = b"".join(iter(lambda: file.read(size), b""))
        if got != want:
            wrong.append((path, size))

    with slowly(tree.src, "-d", "1500") as (source, _):
        with Mount(source, tree.options()) as m:
            threads = [
                threading.Thread(target=read_in_pieces, args=(m.file(rank), tree.expected(rank), size))
                for rank in range(2)
                for size in (1 << 20, 300000)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    equal(wrong, [], "files that were read wrong")


def test_a_reader_is_killed_while_the_sources_hang():
    """It ends, and so do the others when the sources answer again; the mount goes on."""
    tree = Tree(folder("tree"), PARAMS, 4, 2)
    with slowly(tree.src, "-d", "5000") as (source, process):
        with Mount(source, tree.options("io=direct")) as m:
            with open(m.file(0), "rb", buffering=0) as file:
                file.read(1 << 20)
                process.send_signal(signal.SIGSTOP)
                eventually(lambda: is_stuck(process), "the delay server has stopped")
                with subprocess.Popen(["cat", m.file(0)], stdout=subprocess.DEVNULL) as reader:
                    time.sleep(0.2)
                    reader.kill()
                    process.send_signal(signal.SIGCONT)
                    reader.wait(PATIENCE)
            for rank in range(2):
                same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
