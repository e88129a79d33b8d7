# SPDX-License-Identifier: Apache-2.0
"""Crowds of readers: processes that read in every way there is, compare each byte, and tell how long they waited."""
import errno
import json
import mmap
import os
import random
import select
import signal
import time

PIECE = 1 << 20
BLOCK = 4096  # of O_DIRECT


class Wrong(Exception):
    """Bytes that are not what they should be."""


def compare(got, want, path, at):
    if got == want:
        return
    first = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    raise Wrong(f"{path}: {len(got)} bytes at {at}, {len(want)} wanted; they differ from offset {at + first}")


class Reader:
    """What one process does. WANT has the bytes of each file by its path below the mount point."""

    def __init__(self, mnt, want, seed):
        self.mnt, self.want = mnt, want
        self.random = random.Random(seed)
        self.paths = sorted(want)
        self.told = {"calls": 0, "bytes": 0, "longest": 0.0, "errors": {}, "wrong": None}

    def timed(self, call, *arguments):
        start = time.monotonic()
        try:
            return call(*arguments)
        finally:
            self.told["longest"] = max(self.told["longest"], time.monotonic() - start)
            self.told["calls"] += 1

    def pread(self, fd, path, at, size):
        """All of it. What the page cache has comes first, where what follows fails: the next call says why."""
        want = self.want[path][at : at + size]
        done = 0
        while True:
            got = self.timed(os.pread, fd, size - done, at + done)
            compare(got, want[done : done + len(got)] if got else want[done:], path, at + done)
            done += len(got)
            self.told["bytes"] += len(got)
            if done == len(want):
                return

    def sequence(self, fd, path, step, most=None):
        end = len(self.want[path])
        at = 0 if most is None else self.random.randrange(end + 1)
        stop = end if most is None else min(end, at + most)
        while at < stop:
            self.pread(fd, path, at, step)
            at += step

    # Each way is given an open file.
    def whole(self, fd, path):
        self.pread(fd, path, 0, len(self.want[path]) + 1)

    def as_cp(self, fd, path):
        self.sequence(fd, path, 128 << 10)

    def large(self, fd, path):
        self.sequence(fd, path, PIECE)

    def tiny(self, fd, path):
        self.sequence(fd, path, self.random.randrange(1, 600), most=20000)

    def anywhere(self, fd, path):
        for _ in range(40):
            size = 1 << self.random.randrange(0, 21)
            self.pread(fd, path, self.random.randrange(len(self.want[path]) + 1), size)

    def backwards(self, fd, path):
        for at in range(len(self.want[path]) - 1, -1, -50021):
            self.pread(fd, path, at, 4096)

    def unbuffered(self, fd, path):
        """With O_DIRECT, past the page cache, whatever io= says."""
        size = len(self.want[path])
        direct = self.timed(os.open, os.path.join(self.mnt, path), os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, 4 * PIECE) as memory:
                for _ in range(8):
                    at = self.random.randrange(size) // BLOCK * BLOCK
                    n = BLOCK << self.random.randrange(11)
                    with memoryview(memory) as room, room[:n] as part:
                        got = self.timed(os.preadv, direct, [part], at)
                    # Less than was wanted comes where the rest fails.
                    compare(memory[:got], self.want[path][at : at + (got or n)], path, at)
                    self.told["bytes"] += got
        finally:
            os.close(direct)

    def mapped(self, fd, path):
        with mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as memory:
            for _ in range(40):
                at = self.random.randrange(len(memory))
                got = self.timed(memory.__getitem__, slice(at, at + 40000))
                compare(got, self.want[path][at : at + 40000], path, at)
                self.told["bytes"] += len(got)

    def loaded(self, fd, path):
        """As torch.load(mmap=True): opened again, mapped privately, the end first, then tensor after tensor."""
        size = len(self.want[path])
        again = self.timed(os.open, os.path.join(self.mnt, path), os.O_RDONLY)
        try:
            with mmap.mmap(again, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as memory:
                for at in (max(size - 70000, 0), *range(0, size, PIECE)):
                    got = self.timed(memory.__getitem__, slice(at, at + PIECE))
                    compare(got, self.want[path][at : at + PIECE], path, at)
                    self.told["bytes"] += len(got)
        finally:
            os.close(again)

    def sent(self, fd, path):
        copy = os.memfd_create("copy")
        try:
            while self.timed(os.sendfile, copy, fd, None, PIECE):
                pass
            compare(os.pread(copy, len(self.want[path]) + 1, 0), self.want[path], path, 0)
            self.told["bytes"] += len(self.want[path])
        finally:
            os.close(copy)

    def looked_at(self, fd, path):
        full = os.path.join(self.mnt, path)
        size = self.timed(os.stat, full).st_size
        if size != len(self.want[path]):
            raise Wrong(f"{path}: {size} bytes long, {len(self.want[path])} wanted")
        self.timed(os.listdir, os.path.dirname(full))
        for name in self.timed(os.listxattr, full):
            self.timed(os.getxattr, full, name)

    WAYS = (whole, as_cp, large, tiny, anywhere, backwards, unbuffered, mapped, loaded, sent, looked_at)

    def once(self, ways):
        path = self.random.choice(self.paths)
        way = self.random.choice(ways)
        try:
            fd = self.timed(os.open, os.path.join(self.mnt, path), os.O_RDONLY)
            try:
                way(self, fd, path)
            finally:
                os.close(fd)
        except OSError as error:
            name = errno.errorcode.get(error.errno, str(error.errno))
            self.told["errors"][name] = self.told["errors"].get(name, 0) + 1

    def until(self, end, ways):
        try:
            while time.monotonic() < end:
                self.once(ways)
        except Wrong as wrong:
            self.told["wrong"] = str(wrong)
        return self.told


# A mapping of a file that fails ends a reader by SIGBUS.
WITHOUT_MAPPING = tuple(way for way in Reader.WAYS if way not in (Reader.mapped, Reader.loaded))


class Crowd:
    """N readers at once, for so many seconds."""

    def __init__(self, mnt, want, n, seconds, seed, ways=Reader.WAYS):
        self.seconds = seconds
        self.running = {}
        for k in range(n):
            out, into = os.pipe()
            pid = os.fork()
            if pid == 0:
                self.read(mnt, want, f"{seed}-{k}", ways, into)
            os.close(into)
            self.running[pid] = out

    def read(self, mnt, want, seed, ways, into):
        status = 1
        try:
            signal.alarm(0)
            told = Reader(mnt, want, seed).until(time.monotonic() + self.seconds, ways)
            os.write(into, json.dumps(told).encode())
            status = 0
        finally:
            os._exit(status)

    def kill_some(self, choose, n):
        """SIGKILL for N of them. Returns how long the slowest took to go, in seconds."""
        slowest = 0.0
        for pid in choose.sample(sorted(self.running), min(n, len(self.running))):
            start = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(self.running.pop(pid))
            slowest = max(slowest, time.monotonic() - start)
        return slowest

    def join(self, patience):
        """
        The sum of what they tell. Those that are not done PATIENCE seconds after their time are killed, and counted. One that a
        page of a mapping ended is an error as others.
        """
        total = {"readers": len(self.running), "calls": 0, "bytes": 0, "longest": 0.0, "errors": {}, "wrong": [], "lost": 0}
        end = time.monotonic() + self.seconds + patience
        for pid, out in self.running.items():
            ready, _, _ = select.select([out], [], [], max(0, end - time.monotonic()))
            told = json.loads(os.read(out, 1 << 16) or b"null") if ready else None
            os.close(out)
            if told is None and not ready:
                os.kill(pid, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if told is None and status == -signal.SIGBUS:
                total["errors"]["SIGBUS"] = total["errors"].get("SIGBUS", 0) + 1
            elif told is None:
                total["lost"] += 1
                print(f"        a reader ended with {status}, {'late' if not ready else 'before its time'}", flush=True)
            if told is None:
                continue
            total["calls"] += told["calls"]
            total["bytes"] += told["bytes"]
            total["longest"] = max(total["longest"], told["longest"])
            for name, n in told["errors"].items():
                total["errors"][name] = total["errors"].get(name, 0) + n
            total["wrong"] += [told["wrong"]] * (told["wrong"] is not None)
        self.running = {}
        return total
