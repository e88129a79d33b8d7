# SPDX-License-Identifier: Apache-2.0
"""Sources that change under a mount: ESTALE from then on, and never bytes of two versions."""
import errno
import json
import os
import shutil
import sys

from forge import Param, Tree, usual
from harness import *

ROWS = [Param("first", (512, 700), 0, 0), Param("second", (64, 700), 0, 0)]
LONG = [Param("first", (4096, 1400), 0, 0), Param("second", (64, 700), 0, 0)]
WIDE = [Param("wide", (512, 2048), 1, 1)]  # gathered, so that it goes through the cache


def change(tree, rank):
    """Other bytes in the same file, of the same size."""
    data = bytearray(tree.source(rank))
    data[-5000:] = bytes(b ^ 255 for b in data[-5000:])
    with open(tree.path(rank), "r+b") as file:
        file.write(data)


def truncate(tree, rank):
    os.truncate(tree.path(rank), os.path.getsize(tree.path(rank)) - 100)


def replace(tree, rank):
    """The same bytes and times, in another file."""
    st = os.stat(tree.path(rank))
    other = tree.path(rank) + ".new"
    with open(other, "wb") as file:
        file.write(tree.source(rank))
    os.utime(other, ns=(st.st_atime_ns, st.st_mtime_ns))
    os.rename(other, tree.path(rank))


def remove(tree, rank):
    os.unlink(tree.path(rank))


def touch(tree, rank):
    st = os.stat(tree.path(rank))
    os.utime(tree.path(rank), ns=(st.st_atime_ns, st.st_mtime_ns + 1))


def append(tree, rank):
    with open(tree.path(rank), "ab") as file:
        file.write(b"more")


EVENTS = (change, truncate, replace, remove, touch, append)


def read_errno(fd, size, at):
    try:
        return os.pread(fd, size, at)
    except OSError as error:
        return errno.errorcode[error.errno]


def stale_after(event, params, read_before):
    where = f"{event.__name__}{int(read_before)}"
    tree = Tree(folder("tree-" + where), params, 4, 2)
    want = tree.expected(0)
    with Mount(tree.src, tree.options(), mnt=folder("mnt-" + where)) as m:
        fd = os.open(m.file(0), os.O_RDONLY)
        if read_before:
            same_bytes(m.read(0), want, "before")
        event(tree, 1)
        size = len(want)
        got = read_errno(fd, 1 << 20, size // 3)  # reaches over the bytes of source 1
        equal(got, "ESTALE", f"{event.__name__}, read before: {read_before}")
        for at in (size - 10, 0, size // 2):
            equal(read_errno(fd, 4096, at), "ESTALE", f"later, at {at}")
        os.close(fd)
        equal(os.stat(m.file(0)).st_size, size, "stat tells what was indexed")
        try:
            fd = os.open(m.file(0), os.O_RDONLY)
        except OSError as error:
            equal(error.errno, errno.ESTALE, "open")
        else:
            equal(read_errno(fd, 100, size // 3), "ESTALE", "opened again")
            os.close(fd)


def test_contiguous_sources():
    for event in EVENTS:
        for read_before in (False, True):
            stale_after(event, ROWS, read_before)


def test_cached_pieces():
    for event in EVENTS:
        stale_after(event, WIDE, True)


def test_a_disk_that_cannot_be_read():
    """EIO, for good, for the files that depend on it; the headers were read before."""
    needs_strace_of_a_mount()
    tree = Tree(folder("tree"), ROWS, 4, 4)
    inject = ("-P", tree.path(1), "-e", "trace=pread64,preadv", "-e", "inject=pread64,preadv:error=EIO:when=20+")
    before = ["strace", "-f", "-qq", "-o", "/dev/null", *inject]
    with Foreground(tree.src, tree.options(), "--single-thread", before=before) as m:
        want = tree.expected(1)
        fd = os.open(m.file(1), os.O_RDONLY)
        for turn in range(200):
            at = turn * 1024
            got = read_errno(fd, 1024, at)
            if isinstance(got, str):
                break
            same_bytes(got, want[at : at + 1024], f"offset {at}")
        for at in (at, 0, len(want) - 10):
            equal(read_errno(fd, 4096, at), "EIO", f"offset {at}")
        os.close(fd)
        same_bytes(m.read(2), tree.expected(2), "what does not depend on it")
        check(f"{tree.path(1)}: " in m.log() and "; try: check the disk, then mount again" in m.log(), m.log())
        m.stop()
        m.process.wait(PATIENCE)


def test_files_that_do_not_depend_on_it():
    tree = Tree(folder("tree"), ROWS, 4, 4)
    with Mount(tree.src, tree.options()) as m:
        for rank in range(4):
            same_bytes(m.read(rank), tree.expected(rank), "before")
        change(tree, 2)
        for rank in (0, 1, 3):
            same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
        with open(m.file(2), "rb") as file:
            equal(read_errno(file.fileno(), 1 << 20, 0), "ESTALE", "rank 2")


def test_before_the_first_stat():
    """What is changed before it is indexed is simply read as it is."""
    tree = Tree(folder("tree"), ROWS, 4, 2)
    with Mount(tree.src, tree.options()) as m:
        same_bytes(m.read(0), tree.expected(0), "rank 0")
        change(tree, 3)
        got = m.read(1)
        check(got != tree.expected(1) and len(got) == len(tree.expected(1)), "the new bytes")


def test_metadata_that_changes():
    """It is compared at every open; what is open goes on until then, from files that are compared at every read."""
    tree = Tree(folder("tree"), ROWS, 4, 2)
    for view, name in (("dcp", ".metadata"), ("mindformers", "metadata.json")):
        source = os.path.join(folder("exports"), view)
        options = f"src_strategy={tree.dir}/src_strategy.ckpt,dst_strategy={tree.dir}/dst_strategy.ckpt,view={view}"
        got = run(reshard, "export", tree.src, source, "--no-fsync", "-o", options)
        equal(got.returncode, 0, f"exporting {view}: {got.stderr}")
        with Mount(source, f"dst_strategy={tree.dir}/dst_strategy.ckpt,format=ckpt", mnt=folder("mnt-" + view)) as m:
            same_bytes(m.read(0), tree.expected(0), view)
            fd = os.open(m.file(0), os.O_RDONLY)
            os.chmod(os.path.join(source, name), 0o600)
            metadata = os.path.join(source, name)
            os.utime(metadata, ns=(0, os.stat(metadata).st_mtime_ns + 1))
            same_bytes(os.pread(fd, 1 << 24, 0), tree.expected(0), f"{view}, while it is open")
            try:
                os.close(os.open(m.file(0), os.O_RDONLY))
            except OSError as error:
                equal(error.errno, errno.ESTALE, f"{view}, open")
            else:
                check(False, f"{view}: opened after {name} was changed")
            equal(read_errno(fd, 4096, 0), "ESTALE", f"{view}, what was open")
            os.close(fd)


def test_copy_that_is_read_instead():
    """A file of the mount depends on the copy that is read, and no longer on the damaged file."""
    tree = Tree(folder("tree"), ROWS, 4, 2)
    source = folder("copies") + "/view"
    options = f"src_strategy={tree.dir}/src_strategy.ckpt,dst_strategy={tree.dir}/dst_strategy.ckpt,view=mindformers"
    got = run(reshard, "export", tree.src, source, "--no-fsync", "-o", options)
    equal(got.returncode, 0, f"exporting: {got.stderr}")
    metadata = os.path.join(source, "metadata.json")
    with open(metadata, encoding="utf-8") as file:
        described = json.load(file)
    names = {one["file_name"] for files in described["storage_data"].values() for one in files}
    for files in described["storage_data"].values():
        files.append({**files[0], "file_name": "copy-of-" + files[0]["file_name"], "storage_rank": 1})
    os.chmod(metadata, 0o600)
    with open(metadata, "w", encoding="utf-8") as file:
        json.dump(described, file)
    for name in names:
        path = os.path.join(source, name)
        shutil.copy2(path, os.path.join(source, "copy-of-" + name))
        os.chmod(path, 0o600)
        os.truncate(path, os.path.getsize(path) - 1)
    with Mount(source, f"dst_strategy={tree.dir}/dst_strategy.ckpt") as m:
        same_bytes(m.read(0), tree.expected(0), "from the copies")
        for name in names:
            os.utime(os.path.join(source, name), ns=(0, 0))
        same_bytes(m.read(0), tree.expected(0), "after the damaged files changed")
        fd = os.open(m.file(0), os.O_RDONLY)
        for name in names:
            os.utime(os.path.join(source, "copy-of-" + name), ns=(0, 0))
        equal(read_errno(fd, 4096, os.fstat(fd).st_size - 4096), "ESTALE", "after the copies changed")
        os.close(fd)


def test_mounting_again_shows_the_new_bytes():
    tree = Tree(folder("tree"), ROWS, 4, 2)
    with Mount(tree.src, tree.options()) as m:
        old = m.read(0)
        change(tree, 1)
        fd = os.open(m.file(0), os.O_RDONLY)
        equal(read_errno(fd, 1 << 20, len(old) - 4000), "ESTALE", "the old mount")
        os.close(fd)
    with Mount(tree.src, tree.options()) as m:
        new = m.read(0)
        equal(len(new), len(old), "size")
        check(new != old, "the new mount shows the old bytes")


def test_page_cache_never_mixes_versions():
    """Kept pages may still be served; once a read has failed they are gone, and new bytes never come."""
    tree = Tree(folder("tree"), LONG, 4, 2)
    want = tree.expected(0)
    with Mount(tree.src, tree.options("io=cached")) as m:
        fd = os.open(m.file(0), os.O_RDONLY)
        half = len(want) // 2
        same_bytes(os.pread(fd, half, 0), want[:half], "before")
        for rank in (0, 1):
            change(tree, rank)
        failed = False
        for at in list(range(0, len(want), 65536)) * 2:
            got = read_errno(fd, 65536, at)
            if isinstance(got, bytes):
                same_bytes(got, want[at : at + len(got)], f"offset {at}")
            else:
                check(got in ("ESTALE", "EIO"), got)
                failed = True
        check(failed, "no read has failed")
        os.close(fd)

        def refused():
            with open(m.file(0), "rb", buffering=0) as file:
                return all(isinstance(read_errno(file.fileno(), 4096, at), str) for at in (0, half, half - 8192))

        eventually(refused, "the kept pages are dropped")


READ_IN_PIECES = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.pread(fd, 4096, 0)
os.utime(sys.argv[2], (1, 1))
size = os.fstat(fd).st_size
os.posix_fadvise(fd, size // 8, size, os.POSIX_FADV_WILLNEED)
failed = 0
for at in range(size // 8, size, 1 << 20):
    try:
        os.pread(fd, 4096, at)
    except OSError:
        failed += 1
print(failed > 0)
"""


def test_one_thread_outlives_a_change():
    """It can't wait for the kernel to drop pages: the kernel waits for reads that it must answer."""
    for flags in (["--single-thread"], ["-omax_threads=1"]):
        tree = Tree(folder("tree" + flags[0]), [Param("w", (4096, 2048), 1, 1)], 4, 2)
        with Mount(tree.src, tree.options("io=cached"), *flags, mnt=folder("mnt" + flags[0])) as m:
            got = run(sys.executable, "-c", READ_IN_PIECES, m.file(0), tree.path(0))
            equal((got.stdout, got.stderr), ("True\n", ""), "whether reads have failed")


def test_a_mapped_file_does_not_crash_the_server():
    """Truncating a source hurts whoever maps sources; nobody does."""
    tree = Tree(folder("tree"), usual(12), 4, 2)
    with Mount(tree.src, tree.options("io=cached")) as m:
        os.stat(m.file(0))
        for rank in range(4):
            os.truncate(tree.path(rank), 0)
        fd = os.open(m.file(0), os.O_RDONLY)
        check(read_errno(fd, 1 << 20, 1 << 20) in ("ESTALE", "EIO"), "read")
        os.close(fd)
        equal(sorted(os.listdir(m.mnt)), ["rank_0", "rank_1"], "it lives on")
