# SPDX-License-Identifier: Apache-2.0
"""What keeps figures steady: an own share of the processors, idle processors, and nothing left to write."""
import mmap
import os
import signal
import subprocess
import sys
import time

AUTOGROUP = "/proc/self/autogroup"


def in_own_session():
    """
    Runs this program once more in a session of its own, and ends with it. The scheduler divides the processors among
    sessions first, so that a program of another one cannot take more than its share.
    """
    if os.getsid(0) == os.getpid() or not os.path.exists(AUTOGROUP):
        return
    with subprocess.Popen([sys.executable, *sys.argv], start_new_session=True) as child:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: child.send_signal(number))
        status = child.wait()
    sys.exit(status if status >= 0 else 128 - status)


def take_share():
    """Raises the share of this session; false where that is not allowed or sessions have none."""
    try:
        with open(AUTOGROUP, "w", encoding="ascii") as group:
            group.write("-20")
    except OSError:
        return False
    return True


def times():
    """Idle and all ticks of each processor."""
    rows = []
    with open("/proc/stat", encoding="ascii") as stat:
        for line in stat:
            if line.startswith("cpu") and line[3].isdigit():
                numbers = [int(n) for n in line.split()[1:]]
                rows.append((numbers[3], sum(numbers)))
    return rows


def idle_share():
    """The idle part of a second of the processor that has most to do."""
    before = times()
    time.sleep(1)
    return min((b[0] - a[0]) / max(1, b[1] - a[1]) for a, b in zip(before, times()))


def write_out(path):
    """Waits until the file system of PATH has nothing to write; others are left alone, unlike by os.sync."""
    subprocess.run(["sync", "-f", path], check=True)


def fetch_memory(size):
    """
    Has so many bytes of free memory that the host of a virtual machine has given, not only promised. Some hosts take free
    blocks back after two seconds, and need 2 ms a MiB to give one again: more than a network needs to fill it.
    """
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1


def forget(*paths):
    """Takes files out of the page cache."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def remember(*paths):
    """Brings files into the page cache."""
    buffer = bytearray(4 << 20)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
