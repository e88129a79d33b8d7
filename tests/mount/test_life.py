# SPDX-License-Identifier: Apache-2.0
"""From mount to unmount: lazily opened sources, signals, crashes, and the machine's refusals."""
import concurrent.futures
import contextlib
import errno
import os
import re
import shutil
import signal
import socket
import threading
import time

from forge import Param, Tree, usual
from harness import *


def small(src=4, dst=2, scale=1):
    return Tree(folder("tree"), usual(scale), src, dst)


def opened(trace):
    """Source files that the trace has an open of."""
    with open(trace, errors="replace") as file:
        lines = [line for line in file if "open" in line and re.search(r'/tree/src(/|>, ")rank_', line)]
    return [line for line in lines if ".ckpt" in line and not re.search("O_DIRECTORY|O_PATH", line)]


def ranks_of(lines):
    return [re.search(r"\brank_(\d+)/", line)[1] for line in lines]


def test_listing_opens_no_source():
    needs_strace_of_a_mount()
    tree = small(8)
    trace = os.path.join(folder("out"), "trace")
    before = ["strace", "-f", "-y", "-qq", "-e", "trace=open,openat,openat2", "-o", trace]
    with Foreground(tree.src, tree.options(), before=before) as m:
        first = opened(trace)
        equal(sorted(set(ranks_of(first))), ["0", "1", "2", "4", "7"], "opened to mount: the first, and those it is compared with")
        equal(sorted(os.listdir(m.mnt)), ["rank_0", "rank_1"], "ls")
        run("ls", "-l", m.mnt)
        equal(run("ls", os.path.join(m.mnt, "rank_1")).stdout, "checkpoint_1.ckpt\n", "ls of a rank")
        os.statvfs(m.mnt)
        run("find", m.mnt)
        equal(opened(trace), first, "opens after mounting and listing")
        os.stat(m.file(1))
        eventually(lambda: len(opened(trace)) > len(first), "stat of one file opens sources")
        m.stop()
        m.process.wait(PATIENCE)


def test_stat_opens_what_the_file_needs():
    """And those that are compared to mount: the first, and those one step away on the axis of 8 devices, and its factors."""
    needs_strace_of_a_mount()
    tree = Tree(folder("tree"), [Param("w", (64, 8), 0, 0), Param("b", (64,), 0, 0)], 8, 8)
    trace = os.path.join(folder("out"), "trace")
    before = ["strace", "-f", "-y", "-qq", "-e", "trace=open,openat,openat2", "-o", trace]
    with Foreground(tree.src, tree.options(), before=before) as m:
        first = set(ranks_of(opened(trace)))
        equal(first, {"0", "1", "2", "4"}, "opened to mount")
        os.stat(m.file(5))
        equal(set(ranks_of(opened(trace))) - first, {"5"}, "opened by stat of rank 5")
        m.stop()
        m.process.wait(PATIENCE)


def test_guard_waits_for_the_first_thread():
    """On a loaded machine the guard ticks before the first thread waits for requests: it takes none then, without a word."""
    needs_strace_of_a_mount()
    tree = small()
    slowly = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=clone,clone3", "-e",
              "inject=clone,clone3:delay_exit=400000"]
    with Foreground(tree.src, tree.options(), before=slowly) as m:
        for rank in range(2):
            same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
        equal([line for line in m.log().splitlines() if "warning" in line], [], "warnings")


def test_memory_is_the_cache_and_64_mib():
    """Whatever the size of the tensors: here one of 192 MiB, gathered from runs of 64 bytes."""
    if sanitized():
        return  # theirs would be counted; the ordinary build answers this
    where, mnt = os.path.join(os.path.dirname(folder("mnt")), "example"), folder("mnt")
    how = ("--cut", "cols", "--run-bytes", "64", "--layers", "1", "--size", "192M")
    got = run(reshard, "example", where, "--src", "4", "--dst", "2", *how)
    equal(got.returncode, 0, got.stderr)
    options = f"src_strategy={where}/src_strategy.ckpt,dst_strategy={where}/dst_strategy.ckpt,cache=32M"
    with Mount(os.path.join(where, "src"), options, mnt=mnt) as m:
        equal(os.stat(m.file(0)).st_size >> 20, 96, "MiB of a file")
        readers = [threading.Thread(target=m.read, args=(i % 2,)) for i in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        peak = re.search(r"VmHWM:\s+(\d+) kB", read_all(f"/proc/{m.pid}/status").decode())[1]
        check(32 << 10 < int(peak) <= (32 + 64) << 10, f"{int(peak) >> 10} MiB at most, with 32 MiB of cache")


def test_no_thread_or_descriptor_is_left_in_the_parent():
    """The parent is gone once the mount answers: one process, in a session of its own, in /."""
    tree = small()
    with Mount(tree.src, to_look_into(tree.options())) as m:
        equal(os.readlink(f"/proc/{m.pid}/cwd"), "/", "working folder")
        equal(os.getsid(m.pid), m.pid, "session")
        for fd in range(3):
            equal(os.readlink(f"/proc/{m.pid}/fd/{fd}"), "/dev/null", f"descriptor {fd}")


def test_at_most_256_sources_are_open():
    n = 320
    tree = Tree(folder("tree"), [Param("w", (n * 16, 64), 0, 1), Param("b", (n,), 0, 0)], n, 2)
    with Mount(tree.src, to_look_into(tree.options("cache=1M"))) as m:
        counts, done = [], threading.Event()

        def watch():
            while not done.is_set():
                links = []
                for fd in os.listdir(f"/proc/{m.pid}/fd"):
                    try:
                        links.append(os.readlink(f"/proc/{m.pid}/fd/{fd}"))
                    except OSError:
                        pass
                counts.append(sum(link.startswith(tree.src + "/") for link in links))
                done.wait(0.002)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for rank in range(2):
                same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
        finally:
            done.set()
            watcher.join()
        check(0 < max(counts) <= 256, f"{max(counts)} sources were open at once")


def test_busy_and_lazy_unmount():
    tree = small(scale=12)
    want = tree.expected(0)
    m = Mount(tree.src, tree.options())
    m.start()
    fd = os.open(m.file(0), os.O_RDONLY)
    same_bytes(os.pread(fd, 1000, 5), want[5:1005], "before")
    got = run("fusermount3", "-u", m.mnt)
    check(got.returncode != 0 and "busy" in got.stderr, f"unmounting while a file is open: {got}")
    same_bytes(os.pread(fd, 2000, 9), want[9:2009], "after the refusal")
    equal(run("fusermount3", "-uz", m.mnt).returncode, 0, "fusermount3 -uz")
    check(not mounted(m.mnt), "it is not seen any more")
    got = b""
    while len(got) < len(want):
        part = os.pread(fd, 1 << 20, len(got))
        check(part, "the end comes early")
        got += part
    same_bytes(got, want, "reading on after the lazy unmount")
    equal(servers(m.mnt), [m.pid], "it serves as long as a file is open")
    os.close(fd)
    eventually(lambda: not servers(m.mnt), "the server ends with the last file")


def test_a_namespace_keeps_the_mount():
    """One that was made while it was mounted has it, too: an unmount leaves it there, and SIGTERM ends the server."""
    needs_namespace("make one")
    tree = small()
    for number in None, signal.SIGTERM:
        m = Mount(tree.src, tree.options())
        m.start()
        other = subprocess.Popen(["unshare", "-m", "sleep", "1000"], stdin=subprocess.DEVNULL)
        try:
            mine = os.readlink("/proc/self/ns/mnt")
            eventually(lambda: os.readlink(f"/proc/{other.pid}/ns/mnt") != mine, "there is another namespace")
            if number is None:
                unmount(m.mnt)
                path = f"/proc/{other.pid}/root{m.file(0)}"
                same_bytes(read_all(path), tree.expected(0), "in the other namespace")
                equal(servers(m.mnt), [m.pid], "it serves the other namespace")
            else:
                os.kill(m.pid, number)
                eventually(lambda: not servers(m.mnt) and not mounted(m.mnt), "SIGTERM ends it")
        finally:
            other.kill()
            other.wait()
        eventually(lambda: not servers(m.mnt), "the server ends with the namespace")


def test_signals_unmount():
    tree = small()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with Foreground(tree.src, tree.options()) as m:
            same_bytes(m.read(0), tree.expected(0), "before")
            equal(m.stop(number), 0, f"status after {number.name}")
            check(not mounted(m.mnt), f"still mounted after {number.name}")
            equal(m.log(), "reshardfs: 1 parameter in no strategy, copied unsliced: moment [40]\n", "what it says")
    m = Mount(tree.src, tree.options())
    m.start()
    os.kill(m.pid, signal.SIGTERM)
    eventually(lambda: not mounted(m.mnt) and not servers(m.mnt), "SIGTERM ends a mount in the background")
    with Mount(tree.src, tree.options()) as m:
        os.kill(m.pid, signal.SIGPIPE)
        same_bytes(m.read(1), tree.expected(1), "after SIGPIPE")


def test_signal_while_reading():
    tree = small(scale=12)
    want = tree.expected(0)
    for _ in range(3):
        with Foreground(tree.src, tree.options()) as m:
            wrong, started = [], threading.Event()

            def reader():
                try:
                    fd = os.open(m.file(0), os.O_RDONLY)
                    at = 0
                    while True:
                        got = os.pread(fd, 100_000, at)
                        if got != want[at : at + 100_000]:
                            wrong.append(at)
                        at = (at + len(got)) % len(want) if got else 0
                        started.set()
                except OSError as error:
                    if error.errno not in (errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.EIO):
                        wrong.append(error)
                finally:
                    started.set()

            threads = [threading.Thread(target=reader, daemon=True) for _ in range(4)]
            for thread in threads:
                thread.start()
            started.wait(PATIENCE)
            equal(m.stop(signal.SIGTERM), 0, "status")
            check(not mounted(m.mnt), "still mounted")
            for thread in threads:
                thread.join(PATIENCE)
                check(not thread.is_alive(), "a reader hangs")
            equal(wrong, [], "what readers saw")


def test_idle_threads():
    """Of threads that have nothing to do only a few wait for requests; as many as are needed wake."""
    tree = small(scale=12)
    want = tree.expected(0)
    most = 0
    with Foreground(tree.src, tree.options("max_threads=24")) as m:
        for turn in range(40):  # how many are busy at once is chance
            if turn >= 3 and most > 8:
                break
            with concurrent.futures.ThreadPoolExecutor(40) as pool:
                for got in pool.map(lambda _: m.read(0), range(80)):
                    same_bytes(got, want, "one of many readers")
                    most = max(most, len(os.listdir(f"/proc/{m.process.pid}/task")))
            for _ in range(20):
                same_bytes(m.read(0), want, "one reader after many")
        check(most > 8, f"many readers started {most} threads")
        equal(m.stop(signal.SIGTERM), 0, "status")


def test_unmounts_as_soon_as_it_is_mounted():
    """The server itself never holds the mount, not even to see whether it answers."""
    tree, mnt = small(), folder("mnt")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        end = time.monotonic() + 20  # on a busy machine it keeps others waiting
        for _ in range(60):
            if time.monotonic() > end:
                break
            with subprocess.Popen([reshardfs, tree.src, mnt, "-f", "-o", tree.options()], stdin=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE) as server:
                while not mounted(mnt):
                    check(server.poll() is None, "it has ended before it was mounted")
                unmount(mnt)
                said = server.stderr.read()
                equal(server.wait(PATIENCE), 0, f"exit status, with {said!r}")
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_an_unmount_that_meets_a_request():
    """The kernel fails the read of that request with ECONNABORTED, here that of the first one, and others with ENODEV."""
    needs_strace_of_a_mount()
    tree, mnt = small(), folder("mnt")
    inject = ("-P", "/dev/fuse", "-e", "trace=read", "-e", "inject=read:error=ECONNABORTED")
    env = {**os.environ, "ASAN_OPTIONS": os.environ["ASAN_OPTIONS"] + ":detect_leaks=0"}
    server = (reshardfs, tree.src, mnt, "-f", "-o", tree.options("sandbox=off"))  # as in Foreground
    got = run("strace", "-f", "-qq", "-o", "/dev/null", *inject, *server, env=env)
    equal((got.returncode, got.stderr), (0, ""), "exit status, stderr")
    check(not mounted(mnt), "it is still mounted")


def test_an_unmount_before_the_mount_was_found():
    """Whoever mounts by fusermount3, which goes by the path, looks where the mount is: it may be gone by then."""
    needs_strace_of_a_mount()
    tree, mnt = small(), folder("mnt")
    inject = ("-P", "/proc/self/mountinfo", "-e", "trace=openat", "-e", "inject=openat:delay_enter=500000")
    env = {**os.environ, "ASAN_OPTIONS": os.environ["ASAN_OPTIONS"] + ":detect_leaks=0"}
    server = (reshardfs, tree.src, mnt, "-f", "-o", tree.options("sandbox=off", "auto_unmount"))
    with subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", *inject, *server], stderr=subprocess.PIPE, env=env) as process:
        eventually(lambda: mounted(mnt), "it is mounted")
        unmount(mnt)
        said = process.stderr.read()
        equal(process.wait(PATIENCE), 0, f"exit status, with {said!r}")
    check(not mounted(mnt), "it is still mounted")


def keeper(mnt):
    """The process that unmounts MNT when its server has ended."""
    title = f"reshardfs-keeper of {mnt}".encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if read_all(f"/proc/{pid}/cmdline").startswith(title):
                found.append(int(pid))
        except OSError:
            pass
    (pid,) = found
    return pid


def test_a_killed_server_leaves_no_mount():
    tree = small()
    m = Mount(tree.src, tree.options())
    m.start()
    before = m.read(1)
    fd = os.open(m.file(0), os.O_RDONLY)
    os.kill(m.pid, signal.SIGKILL)
    eventually(lambda: not mounted(m.mnt), "it is unmounted, though a file is open")
    try:
        os.pread(fd, 10, 0)
        check(False, "a file is read that nobody serves")
    except OSError as error:
        check(error.errno in (errno.ENOTCONN, errno.ECONNABORTED), error)
    os.close(fd)
    with Mount(tree.src, tree.options(), mnt=m.mnt) as again:
        same_bytes(again.read(1), before, "after mounting again")


def test_killed_with_its_keeper_then_mounted_again():
    tree = small()
    m = Mount(tree.src, tree.options())
    m.start()
    before = m.read(1)
    os.kill(keeper(m.mnt), signal.SIGKILL)
    same_bytes(m.read(1), before, "without a keeper")
    os.kill(m.pid, signal.SIGKILL)
    eventually(lambda: not servers(m.mnt), "it is gone")

    def dead():
        try:
            return os.listdir(m.mnt) is None
        except OSError as error:
            return error.errno == errno.ENOTCONN

    eventually(dead, "the mount says that it is dead")
    fails(
        1,
        f"{m.mnt}: a dead mount is there (Transport endpoint is not connected): its server has ended; "
        f"try: fusermount3 -u {m.mnt}",
        tree.src,
        m.mnt,
        "-o",
        tree.options(),
    )
    unmount(m.mnt)
    with Mount(tree.src, tree.options(), mnt=m.mnt) as again:
        same_bytes(again.read(1), before, "after mounting again")


def test_a_keeper_hears_no_signal_and_ends_with_its_server():
    tree = small()
    with Foreground(tree.src, tree.options()) as m:
        pid = keeper(m.mnt)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            os.kill(pid, number)
        for fd in range(3):
            equal(os.readlink(f"/proc/{pid}/fd/{fd}"), "/dev/null", f"descriptor {fd}")
        same_bytes(m.read(0), tree.expected(0), "after signals to the keeper")
        check(mounted(m.mnt), "the keeper has unmounted")
        os.kill(pid, signal.SIGKILL)
        same_bytes(m.read(0), tree.expected(0), "after its end")
        equal(m.stop(signal.SIGTERM), 0, "status")
        check("the process that unmounts has ended before: the mount may be left" in m.log(), m.log())
        unmount(m.mnt)
    with Mount(tree.src, tree.options()) as m:
        pid = keeper(m.mnt)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the keeper ends")


def numbers(mnt):
    """What the kernel calls a mount; the next one may be given the same."""
    fd = os.open(mnt, os.O_RDONLY)
    try:
        return os.fstat(fd).st_dev, re.search(r"mnt_id:\s*(\d+)", read_all(f"/proc/self/fdinfo/{fd}").decode())[1]
    finally:
        os.close(fd)


@alone
def test_a_late_keeper_leaves_the_next_mount_alone():
    tree, met = small(), 0
    for _ in range(20):  # what else is mounted on this machine may take the numbers
        with Mount(tree.src, tree.options()) as m:
            late, before = keeper(m.mnt), numbers(m.mnt)
            os.kill(late, signal.SIGSTOP)
            unmount(m.mnt)
            equal(run(reshardfs, tree.src, m.mnt, "-o", tree.options()).returncode, 0, "status of the second mount")
            met += numbers(m.mnt) == before
            os.kill(late, signal.SIGCONT)
            eventually(lambda: len(servers(m.mnt)) == 1, "the first keeper and its server end")
            same_bytes(m.read(0), tree.expected(0), "the second mount")
        if met >= 3:
            return
    check(False, f"the second mount had the numbers of the first {met} times")


def gets_the_number_of(tree, first, turn):
    """Whether the next mount has the number of a FIRST one, whose server is killed. Calls of the next one are answered, though
    its keeper was not done by then, but waited for the file TURN."""
    number, pid = os.stat(first.mnt).st_dev, keeper(first.mnt)
    first.process.kill()
    eventually(lambda: os.path.exists(turn + ".begun"), "it is unmounted")
    with Mount(tree.src, tree.options(), mnt=folder("next")) as m:
        same = os.stat(m.mnt).st_dev == number
        open(turn, "w").close()
        eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the keeper ends")
        same_bytes(m.read(0), tree.expected(0), "the next mount")
    return same


def test_a_keeper_ends_no_calls_of_the_next_mount():
    """The kernel gives the number of a mount that has ended to the next one, unless another mount of this machine gets it."""
    if os.geteuid() == 0 or sanitized():
        return  # root's keeper needs no fusermount3
    need(os.path.ismount("/sys/fs/fuse/connections"), "fusectl is not mounted")
    tree = small()
    for attempt in range(50):
        turn = os.path.join(folder(f"turn{attempt}"), "now")
        env = preloaded("mount", "misbehave.c", RFS_UNMOUNT_WAITS=turn)
        if gets_the_number_of(tree, Foreground(tree.src, tree.options(), mnt=folder(f"mnt{attempt}"), env=env), turn):
            return
    check(False, "no mount got the number of one that has ended")


def test_what_others_have_mounted_there_stays():
    """After a lazy unmount, the mount point is anybody's, though the first server still serves."""
    tree = small(scale=12)
    want = tree.expected(0)
    first = Mount(tree.src, tree.options())
    first.start()
    fd = os.open(first.file(0), os.O_RDONLY)
    equal(run("fusermount3", "-uz", first.mnt).returncode, 0, "fusermount3 -uz")
    second = Foreground(tree.src, tree.options("fsname=second"), mnt=first.mnt)
    same_bytes(os.pread(fd, 1000, 5), want[5:1005], "the first, which is not seen any more")
    with contextlib.suppress(ProcessLookupError):  # the first signal may have been enough
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.kill(first.pid, number)
    os.close(fd)
    eventually(lambda: not os.path.exists(f"/proc/{first.pid}"), "the first server has ended")
    same_bytes(second.read(0), want, "the second")
    check(("second", second.mnt) in [m[:2] for m in mounts()], "the second is not mounted any more")
    equal(second.stop(), 0, "status")


def test_two_mounts_of_one_source():
    tree = small()
    with Mount(tree.src, tree.options(), mnt=folder("one")) as one:
        with Mount(tree.src, tree.options("io=cached"), mnt=folder("two")) as two:
            for rank in range(2):
                same_bytes(one.read(rank), tree.expected(rank), "one")
                same_bytes(two.read(rank), tree.expected(rank), "two")
        same_bytes(one.read(0), tree.expected(0), "one, after the other has gone")


def in_namespace(script, *arguments):
    """Runs the script with /dev replaced by a folder that has null and what SCRIPT adds to $dev."""
    needs_namespace("replace /dev")
    set_up = """
        set -e
        mount --make-rprivate /
        dev=$1; shift
        mknod -m 666 "$dev/null" c 1 3
        replace() { mount --bind "$dev" /dev; }
    """
    return run("unshare", "-m", "sh", "-c", set_up + script, "sh", folder("dev"), *arguments)


def test_no_fuse_device():
    tree, mnt = small(), folder("mnt")
    script = 'replace; status=0; "$1" "$2" "$3" -o "$4" || status=$?; exit $status'
    got = in_namespace(script, reshardfs, tree.src, mnt, tree.options())
    line = (
        "reshardfs: error: /dev/fuse: FUSE cannot be used: No such file or directory; "
        "try: modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN\n"
    )
    equal((got.returncode, got.stdout, got.stderr), (1, "", line), "without /dev/fuse")


def test_mounting_is_not_permitted():
    """The child's only error reaches the parent: one line, status 1, nothing left running."""
    tree, mnt = small(), folder("mnt")
    script = """
        mknod -m 666 "$dev/fuse" c 10 229; replace
        status=0
        setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \
            "$1" "$2" "$3" -o "$4" || status=$?
        exit $status
    """
    need(shutil.which("setpriv"), "setpriv is missing")
    got = in_namespace(script, reshardfs, tree.src, mnt, tree.options())
    equal((got.returncode, got.stdout), (1, ""), "status, stdout")
    equal(len(got.stderr.splitlines()), 1, got.stderr)
    check(got.stderr.startswith(f"reshardfs: error: {mnt}: cannot mount: "), got.stderr)
    check("; try: " in got.stderr and "--cap-add SYS_ADMIN" in got.stderr, got.stderr)
    eventually(lambda: not servers(mnt), "nothing is left running")


def test_background_logs_to_syslog():
    tree, mnt, dev = small(), folder("mnt"), folder("dev")
    tree.write(3, tree.source(3)[:-8])
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind(os.path.join(dev, "log"))
    log.settimeout(PATIENCE)
    script = """
        mknod -m 666 "$dev/fuse" c 10 229; replace
        "$1" "$2" "$3" -o "$4"
        stat "$3/rank_1/checkpoint_1.ckpt" && exit 9
        fusermount3 -u "$3"
    """
    got = in_namespace(script, reshardfs, tree.src, mnt, tree.options())
    equal(got.returncode, 0, got.stderr)
    line = ""
    while "error: " not in line:
        line = log.recv(4096).decode()
    check(re.search(r"reshardfs\[\d+\]: error: " + re.escape(tree.path(3)) + ": offset ", line), line)
    log.close()
    eventually(lambda: not servers(mnt), "the server ends")
