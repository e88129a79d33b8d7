# SPDX-License-Identifier: Apache-2.0
"""Names, attributes, permissions, and that nothing can be written."""
import ctypes
import errno
import os
import shutil
import stat

from forge import Tree, usual
from harness import *

NOBODY = 65534


def small(src=4, dst=2):
    return Tree(folder("tree"), usual(), src, dst)


def test_attributes():
    tree = small()
    times = [1_600_000_000_123_456_789 + r * 10**10 for r in (0, 3, 1, 2)]
    for rank, when in enumerate(times):
        os.utime(tree.path(rank), ns=(when, when))
        os.chmod(tree.path(rank), 0o754 if rank else 0o640)
    with Mount(tree.src, tree.options()) as m:
        for rank in range(2):
            st = os.stat(m.file(rank))
            size = len(tree.expected(rank))
            equal(stat.filemode(st.st_mode), "-r--r-----", "mode: what all sources grant, & 0444")
            equal((st.st_uid, st.st_gid), (os.geteuid(), os.getegid()), "owner")
            equal((st.st_size, st.st_blocks, st.st_blksize), (size, (size + 511) // 512, 1 << 20), "sizes")
            equal(st.st_nlink, 1, "links")
            check(st.st_mtime_ns in times, f"mtime {st.st_mtime_ns} is no source's")
        # "rows" of rank 0 comes from sources 0 and 1, "turned" of any rank from all.
        equal(os.stat(m.file(0)).st_mtime_ns, max(times), "mtime: the latest of the sources")
        for spot in (m.mnt, os.path.join(m.mnt, "rank_0")):
            check(stat.S_ISDIR(os.stat(spot).st_mode), spot)
            equal(stat.S_IMODE(os.stat(spot).st_mode), 0o755, "mode of a folder")


def test_owner_of_the_sources():
    need(os.geteuid() == 0, "only root may give files away")
    tree = small()
    for rank in range(4):
        os.chown(tree.path(rank), 1234, 4321)
    with Mount(tree.src, tree.options()) as m:
        st = os.stat(m.file(0))
        equal((st.st_uid, st.st_gid), (1234, 4321), "where the sources agree, theirs")
    os.chown(tree.path(2), 99, 4321)
    with Mount(tree.src, tree.options()) as m:
        st = os.stat(m.file(0))
        equal((st.st_uid, st.st_gid), (0, 4321), "where they don't, the server's")


def test_inodes_are_stable():
    tree = small()

    def inodes(m):
        spots = [m.mnt] + [os.path.join(m.mnt, f"rank_{r}") for r in range(2)] + [m.file(r) for r in range(2)]
        return [os.stat(s).st_ino for s in spots]

    with Mount(tree.src, tree.options()) as m:
        first = inodes(m)
        listed = [e.inode() for e in sorted(os.scandir(m.mnt), key=lambda e: e.name)]
        equal(listed, first[1:3], "d_ino of the folders")
        (entry,) = os.scandir(os.path.join(m.mnt, "rank_1"))
        equal((entry.inode(), entry.is_file()), (first[4], True), "d_ino of a file")
    equal(len(set(first)), 5, "all differ")
    with Mount(tree.src, tree.options("io=cached"), "--single-thread") as m:
        equal(list(reversed(inodes(m)))[::-1], first, "after a remount")


def test_names_that_do_not_exist():
    tree = small()
    with Mount(tree.src, tree.options()) as m:
        for name in ("rank_2", "rank_00", "rank_-1", "rank_", "x", "rank_0/x", "rank_0/checkpoint_1.ckpt",
                     "rank_99999999999999999999", "n" * 255):
            for _ in range(2):  # the second is answered by the kernel's memory
                try:
                    os.stat(os.path.join(m.mnt, name))
                except OSError as error:
                    equal(error.errno, errno.ENOENT, name)
                else:
                    raise AssertionError(f"{name} exists")
        try:
            os.stat(os.path.join(m.file(0), "x"))
        except OSError as error:
            equal(error.errno, errno.ENOTDIR, "below a file")


def test_statfs():
    tree = small()
    with Mount(tree.src, tree.options()) as m:
        fs = os.statvfs(m.mnt)
        equal((fs.f_files, fs.f_bfree, fs.f_bavail, fs.f_ffree), (5, 0, 0, 0), "files and free space")
        equal((fs.f_bsize, fs.f_namemax), (1 << 20, 255), "sizes")
        check(fs.f_flag & os.ST_RDONLY, "read-only")
        equal(run("df", m.mnt).returncode, 0, "df")


def writes(m):
    """(name, call) of everything that would change the tree."""
    file, new, sub = m.file(0), os.path.join(m.mnt, "new"), os.path.join(m.mnt, "rank_0")
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name, *arguments):
        def go():
            if getattr(libc, name)(*arguments) != 0:
                raise OSError(ctypes.get_errno(), name)

        return go

    for flags in ("O_WRONLY", "O_RDWR", "O_RDONLY|O_TRUNC", "O_WRONLY|O_APPEND"):
        bits = 0
        for flag in flags.split("|"):
            bits |= getattr(os, flag)
        yield f"open {flags}", lambda bits=bits: os.open(file, bits)
    yield "open O_CREAT", lambda: os.open(new, os.O_CREAT | os.O_WRONLY)
    yield "truncate", lambda: os.truncate(file, 0)
    yield "unlink", lambda: os.unlink(file)
    yield "mkdir", lambda: os.mkdir(new)
    yield "rmdir", lambda: os.rmdir(sub)
    yield "mknod", lambda: os.mknod(new)
    yield "symlink", lambda: os.symlink("x", new)
    yield "link", lambda: os.link(file, new)
    yield "rename", lambda: os.rename(file, new)
    yield "rename a folder", lambda: os.rename(sub, new)
    yield "chmod", lambda: os.chmod(file, 0o777)
    yield "chown", lambda: os.chown(file, 1, 1)
    yield "utime", lambda: os.utime(file)
    yield "setxattr", lambda: os.setxattr(file, "user.a", b"b")
    yield "removexattr", lambda: os.removexattr(file, "user.a")
    yield "mkfifo", lambda: os.mkfifo(new)
    if os.geteuid() == 0:
        yield "mknod of a device", lambda: os.mknod(new, stat.S_IFCHR, os.makedev(1, 3))


def all_refused(m, when):
    for name, go in writes(m):
        try:
            go()
        except OSError as error:
            equal(errno.errorcode[error.errno], "EROFS", f"{name}, {when}")
        else:
            raise AssertionError(f"{name} has worked, {when}")
    check(not os.access(m.file(0), os.W_OK), f"access(W_OK), {when}")


def test_every_write_is_erofs():
    tree = small()
    with Mount(tree.src, tree.options()) as m:
        all_refused(m, "mounted ro")
        same_bytes(m.read(0), tree.expected(0), "afterwards")


def test_every_write_is_erofs_after_remount_rw():
    """The kernel lets the requests through then, and the server refuses them."""
    need(os.geteuid() == 0, "only root may remount")
    tree = small()
    libc = ctypes.CDLL(None, use_errno=True)
    with Mount(tree.src, tree.options()) as m:
        status = libc.mount(b"none", os.fsencode(m.mnt), None, 32, None)  # MS_REMOUNT, no MS_RDONLY
        need(status == 0, "this kernel remounts no FUSE mount read-write")
        check("ro" not in next(x[3] for x in mounts() if x[1] == m.mnt), "still ro")
        all_refused(m, "remounted rw")
        same_bytes(m.read(0), tree.expected(0), "afterwards")


def as_nobody(*command):
    return run("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command)


def test_others_stay_out():
    need(os.geteuid() == 0 and shutil.which("setpriv"), "only root may become somebody else")
    tree = small()
    for rank in range(4):
        os.chmod(tree.path(rank), 0o644)
    with Mount(tree.src, tree.options()) as m:
        got = as_nobody("ls", m.mnt)
        check(got.returncode != 0 and "Permission denied" in got.stderr, f"without allow_other: {got}")
    with Mount(tree.src, tree.options("allow_other")) as m:
        flags = next(x[3] for x in mounts() if x[1] == m.mnt)
        check({"allow_other", "default_permissions"} <= flags, flags)
        got = as_nobody("md5sum", m.file(0))
        equal((got.returncode, got.stderr), (0, ""), "a file that all may read")


def test_allow_other_keeps_the_modes():
    need(os.geteuid() == 0 and shutil.which("setpriv"), "only root may become somebody else")
    tree = small()  # sources are 0600
    with Mount(tree.src, tree.options("allow_other")) as m:
        equal(as_nobody("ls", "-l", os.path.join(m.mnt, "rank_0")).returncode, 0, "names are seen")
        got = as_nobody("cat", m.file(0))
        check(got.returncode != 0 and "Permission denied" in got.stderr, f"a 0400 file of root's: {got}")


def test_a_source_that_nobody_may_read():
    """It is told as that, by a server without root's privileges, and not as a file that has changed."""
    needs_programs_of_all()
    need(os.geteuid() == 0 and shutil.which("setpriv"), "only root may become somebody else")
    tree = small()
    for spot in (place_of(), tree.dir):
        os.chmod(spot, 0o755)
    for rank in range(4):
        os.chown(tree.path(rank), NOBODY, NOBODY)
    os.chmod(tree.path(1), 0)
    got = as_nobody(reshardfs, "--check", tree.src, "-o", tree.options("index_cache=no"))
    line = (
        f"reshardfs: error: {tree.path(1)}: the file cannot be read: Permission denied; try: check the permissions of "
        "the file and of its folders"
    )
    equal((got.returncode, got.stderr.splitlines()[-1:]), (1, [line]), "--check")
    check("changed" not in got.stderr, got.stderr)


def test_an_ordinary_user_mounts():
    """Through fusermount3, with a /dev/fuse that anybody may open, as udev makes it."""
    needs_namespace("set it up")
    need(shutil.which("setpriv"), "setpriv is missing")
    tree, mnt, dev = small(), folder("mnt"), folder("dev")
    for spot in (mnt, tree.src, *(os.path.dirname(tree.path(r)) for r in range(4)), *map(tree.path, range(4))):
        os.chown(spot, NOBODY, NOBODY)
    script = """
        set -e
        mount --make-rprivate /
        mknod -m 666 "$4/fuse" c 10 229 && mount --bind "$4/fuse" /dev/fuse
        user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        if user "$1" "$2" "$3" -o "$5,allow_other"; then echo allow_other works; fi
        user "$1" "$2" "$3" -o "$5"
        user md5sum <"$3/rank_1/checkpoint_1.ckpt" 2>&1 || true
        user cat "$3/rank_1/checkpoint_1.ckpt" >"$4/copy"
        grep " $3 " /proc/self/mounts >"$4/mounts"
        user fusermount3 -u "$3"
    """
    for spot in (place_of(), tree.dir):
        os.chmod(spot, 0o755)
    got = run("unshare", "-m", "sh", "-c", script, "sh", reshardfs, tree.src, mnt, dev, tree.options())
    equal(got.returncode, 0, got.stderr)
    same_bytes(read_all(os.path.join(dev, "copy")), tree.expected(1), "rank 1")
    check(b"user_id=65534" in read_all(os.path.join(dev, "mounts")), "mounted as that user")
    if "allow_other works" not in got.stdout:
        line = (
            f"reshardfs: error: {mnt}: cannot mount: option allow_other only allowed if 'user_allow_other' is "
            "set in /etc/fuse.conf; try: a line user_allow_other in /etc/fuse.conf, or leave allow_other out"
        )
        check(line in got.stderr.splitlines(), got.stderr)
    eventually(lambda: not servers(mnt), "the server ends")


def place_of():
    return os.path.dirname(folder("mnt"))
