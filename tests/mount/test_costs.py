# SPDX-License-Identifier: Apache-2.0
"""
What reading through a mount costs, counted by the kernel and not timed: bytes that the server reads of its sources
and bytes that it replies, for the bytes that a program asks for, with each way of opening and each read-ahead.

/proc/PID/io counts the server's reads, with requests of about 100 bytes, and its writes, with headers of 16.
"""
import json
import mmap
import os
import random
import struct
import time

from harness import *

SEED = int(os.environ.get("RFS_SEED", "1"))
PAGE, KIB, MIB = 4096, 1 << 10, 1 << 20
SIZE = 64 * MIB  # of all tensors: four, of which each of the two files has the half
PARAMETER = SIZE // 8


def contiguous():
    where = folder("tree")
    got = run(reshard, "example", where, "--src", "4", "--dst", "2", "--cut", "rows", "--size", str(SIZE))
    equal(got.returncode, 0, got.stderr)
    strategies = ",".join(f"{side}_strategy={where}/{side}_strategy.ckpt" for side in ("src", "dst"))
    return os.path.join(where, "src"), strategies


class Counted:
    """A mount, with the bytes that its server has read and written since the last reset()."""

    # How files are opened, and the read-ahead in KiB; None: not through the page cache.
    SETTINGS = (("direct", None), ("cached", 128), ("cached", 1024))

    def __init__(self, tree, setting, *options):
        io, self.ahead = setting
        source, strategies = tree
        self.what = f"io={io}" + (f", read_ahead_kb={self.ahead}" if self.ahead else "")
        told = to_look_into(",".join([strategies, f"io={io}", *options]))
        self.mount = Mount(source, told, mnt=folder(f"mnt-{io}-{self.ahead}"))

    def __enter__(self):
        need(not self.ahead or os.geteuid() == 0, "the read-ahead of a mount is root's to set")
        self.mount.start()
        if self.ahead:
            device = os.stat(self.mount.mnt).st_dev
            knob = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
            with open(knob, "w") as file:
                file.write(str(self.ahead))
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.mount.stop()

    def now(self):
        lines = read_all(f"/proc/{self.mount.pid}/io").decode().splitlines()
        counters = dict(line.split(": ") for line in lines)
        return int(counters["rchar"]), int(counters["wchar"])

    def statistics(self):
        return json.loads(read_all(os.path.join(self.mount.mnt, ".reshardfs", "stats.json")))

    def cost(self, path, read, *arguments):
        """(bytes read, bytes replied) for each byte that READ says it asked for, of a file that is not cached."""
        os.stat(path)  # its headers are known then
        earlier = self.statistics()
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            before = self.now()
            asked = read(fd, *arguments)
            # What is read ahead in vain is counted, too.
            last = None
            while last != (last := self.now()):
                time.sleep(0.05)
            source, replied = (b - a for a, b in zip(before, last))
        finally:
            os.close(fd)
        what = f"{self.what}, {read.__name__}: {source} read, {replied} replied, {asked} asked"
        check(replied >= asked, what)
        check(source * 10 <= replied * 11 + 1000, what)
        now = self.statistics()
        counted = {key: now[key] - earlier[key] for key in ("source_bytes", "bytes_replied", "bytes_asked", "reads")}
        what += f", {counted}"
        # The kernel asks for whole pages, of which the last of a file is not full.
        check(counted["bytes_replied"] <= counted["bytes_asked"] <= counted["bytes_replied"] + PAGE, what)
        # Replies to other requests, as to closing what was read before, are few.
        check(0 <= replied - counted["bytes_replied"] - 16 * counted["reads"] <= 1000, what)
        check(0 <= source - counted["source_bytes"] <= 150 * counted["reads"] + 4000, what)
        return replied / asked, what


def each_setting(tree, measure, *options):
    """
    MEASURE with a mount of each setting. Sources are in the page cache; where the machine was too busy to read them at
    once all the same, they count as slow, and are read further ahead: then it is tried again, with another mount.
    """
    for setting in Counted.SETTINGS:
        for attempt in range(3):
            for base, _, names in os.walk(tree[0]):
                for name in names:
                    read_all(os.path.join(base, name))
            try:
                with Counted(tree, setting, *options) as counted:
                    measure(counted)
                break
            except AssertionError:
                if attempt == 2:
                    raise
                if mounted(counted.mount.mnt):  # it is not, if only its end took too long
                    unmount(counted.mount.mnt)
                eventually(lambda: not servers(counted.mount.mnt), "the server ends")


def random_preads(fd):
    rng = random.Random(SEED)
    pages = os.fstat(fd).st_size // PAGE
    for page in rng.sample(range(pages), 500):
        equal(len(os.pread(fd, PAGE, page * PAGE)), PAGE, "pread")
    return 500 * PAGE


def random_pages(fd):
    rng = random.Random(SEED)
    pages = os.fstat(fd).st_size // PAGE
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as view:
        for page in rng.sample(range(pages), 20):
            view[page * PAGE]
    return 20 * PAGE


def advised_pages(fd):
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as view:
        view.madvise(mmap.MADV_RANDOM)
        for page in random.Random(SEED).sample(range(len(view) // PAGE), 20):
            view[page * PAGE]
    return 20 * PAGE


def head(fd, size):
    at = 0
    while at < size:
        at += len(os.read(fd, min(8 * KIB, size - at)))
    return size


def one_tensor(fd, mapped):
    length = struct.unpack("<Q", os.pread(fd, 8, 0))[0]
    header = json.loads(os.pread(fd, length, 8))
    begin, end = sorted(value["data_offsets"] for key, value in header.items() if key != "__metadata__")[1]
    begin, end = begin + 8 + length, end + 8 + length
    if mapped:
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as view:
            equal(len(view[begin:end]), end - begin, "mapped")
    else:
        for at in range(begin, end, MIB):
            os.pread(fd, min(MIB, end - at), at)
    return 8 + length + end - begin


def test_random_reads():
    def measure(counted):
        replied, what = counted.cost(counted.mount.file(0), random_preads)
        check(replied <= 1.1, what)
        if counted.ahead:
            # A fault brings as much as the read-ahead says, unless the program says that it jumps.
            replied, what = counted.cost(counted.mount.file(1), random_pages)
            check(replied <= 1.1 * counted.ahead * KIB / PAGE, what)
            replied, what = counted.cost(counted.mount.file(1), advised_pages)
            check(replied <= 1.1, what)

    each_setting(contiguous(), measure)


def test_the_beginning():
    def measure(counted):
        for rank, size in ((0, 4 * KIB), (1, 3 * MIB), (0, 12 * MIB)):
            replied, what = counted.cost(counted.mount.file(rank), head, size)
            check(replied <= 1.1 + 2 * (counted.ahead or 0) * KIB / size, what)

    each_setting(contiguous(), measure)


def test_a_header_and_one_tensor():
    def measure(counted):
        for rank, mapped in ((0, False), (1, True)):
            if mapped and not counted.ahead:
                continue
            path = os.path.join(counted.mount.mnt, f"rank_{rank}", f"checkpoint_{rank}.safetensors")
            replied, what = counted.cost(path, one_tensor, mapped)
            check(replied <= 1.1 + 2 * (counted.ahead or 0) * KIB / PARAMETER, what)

    each_setting(contiguous(), measure, "format=safetensors")
