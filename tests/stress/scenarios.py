# SPDX-License-Identifier: Apache-2.0
"""
Scenarios. After each: every byte was right, no error that was not caused, memory within its promise, no thread or
descriptor left, and no call that waited longer than LONGEST.
"""
import os
import random
import re
import shutil
import signal
import subprocess
import time

from forge import Param, Tree, usual
from harness import *
from readers import WITHOUT_MAPPING, Crowd
from test_calls import READS, under_strace
from test_content import publish
from test_converted import model, transposed
from test_limits import MIXED
import stores
import test_follow

SECONDS, SEED = 30, 0  # set by run
LONGEST = 20  # seconds for one call of a reader, on a loaded machine; set by run
BESIDE_THE_CACHE = 64 << 20  # bytes that the server may take
READERS = 128


def choices(name):
    return random.Random(f"{SEED}-{name}")


def want_of(tree, prefix="checkpoint_"):
    return {f"rank_{r}/{prefix}{r}.ckpt": tree.expected(r) for r in range(tree.dst_n)}


def status_of(pid, field):
    return int(re.search(rf"{field}:\s+(\d+)", read_all(f"/proc/{pid}/status").decode())[1])


def tell(name, total, **more):
    """Prints what was done, for people and for doc/RELIABILITY.md."""
    errors = ", ".join(f"{n} {e}" for e, n in sorted(total["errors"].items())) or "no errors"
    extra = "".join(f", {k} {v}" for k, v in more.items())
    print(
        f"    {name}: {total['calls']} calls, {total['bytes'] >> 20} MiB, {errors}, "
        f"longest {total['longest']:.2f} s{extra}",
        flush=True,
    )


def sound(total, allowed=(), longest=0):
    """What every crowd must hold to. longest: seconds that a call may take beside those of a loaded machine."""
    equal(total["wrong"], [], "wrong bytes")
    equal(total["lost"], 0, "readers that did not end")
    equal(sorted(set(total["errors"]) - set(allowed)), [], "errors that were not caused")
    check(total["longest"] < LONGEST + longest, f"a call took {total['longest']:.1f} s")


def within_limits(pid, cache, tree, threads=96, descriptors=24):
    """
    Memory, threads and descriptors, beside those of sources, of a server whose readers are gone. The threads are those that
    answer, and those of the pool with 64 for reads that wait: on a loaded machine each storage is slow.
    """
    peak, running = status_of(pid, "VmHWM") << 10, status_of(pid, "Threads")
    opened = len(os.listdir(f"/proc/{pid}/fd"))
    most = cache + BESIDE_THE_CACHE
    print(f"        {peak >> 20} MiB at most of {most >> 20}, {running} threads, {opened} descriptors", flush=True)
    check(peak <= most or sanitized(), f"{peak >> 20} MiB at most, with {cache >> 20} MiB of cache")
    check(running <= threads, f"{running} threads")
    check(opened <= tree.src_n + descriptors, f"{opened} descriptors, with {tree.src_n} sources")


# ---- many readers ----------------------------------------------------------------------------------------


def many_readers(name, cache, how):
    tree = Tree(folder("tree"), usual(8), 8, 4)
    want = want_of(tree)
    with Foreground(tree.src, tree.options(f"cache={cache}", how)) as m:
        total = Crowd(m.mnt, want, READERS, SECONDS / 4, f"{SEED}-{name}").join(LONGEST)
        tell(name, total)
        sound(total)
        check(total["calls"] > READERS, f"{total['calls']} calls")
        within_limits(m.process.pid, cache, tree)
        equal([line for line in m.log().splitlines() if "error" in line or "warning" in line], [], "log")


def test_many_readers():
    for name, cache, how in (
        ("a small cache, direct", 1 << 20, "io=direct"),
        ("a small cache, page cache", 1 << 20, "io=cached"),
        ("a large cache, direct", 256 << 20, "io=direct"),
        ("no cache", 0, "io=auto"),
    ):
        many_readers(name, cache, how)
        shutil.rmtree(folder("tree"))


# ---- one server for all of the time ----------------------------------------------------------------------


def add_up(sum_of, total):
    for field in "calls", "bytes", "lost":
        sum_of[field] = sum_of.get(field, 0) + total[field]
    sum_of["longest"] = max(sum_of.get("longest", 0.0), total["longest"])
    sum_of["wrong"] = sum_of.get("wrong", []) + total["wrong"]
    errors = sum_of.setdefault("errors", {})
    for name, n in total["errors"].items():
        errors[name] = errors.get(name, 0) + n


def with_tensors(m, want):
    """WANT and what the hidden folder has of it; that these are the right bytes is for tests/mount."""
    hidden = os.path.join(m.mnt, ".reshardfs", "tensors")
    paths = [os.path.join(r, name) for r in os.listdir(hidden) for name in os.listdir(os.path.join(hidden, r))]
    return {**want, **{f".reshardfs/tensors/{p}": read_all(os.path.join(hidden, p)) for p in sorted(paths)}}


def test_mixed_load():
    """Pieces of all sizes, files and single tensors, readers that are killed: what fragments memory adds up."""
    choose, cache = choices("mixed"), 64 << 20
    tree = Tree(folder("tree"), MIXED, 4, 2)
    total, rounds, slowest = {}, 0, 0.0
    with Foreground(tree.src, tree.options(f"cache={cache}")) as m:
        files = want_of(tree)
        both = with_tensors(m, files)
        end = time.monotonic() + SECONDS
        while rounds == 0 or time.monotonic() < end:
            crowd = Crowd(m.mnt, (files, both)[rounds % 2], 64, 6, f"{SEED}-{rounds}")
            for _ in range(4):
                time.sleep(choose.random())
                slowest = max(slowest, crowd.kill_some(choose, 4))
                for name in "stats.json", "log", "config.json":
                    read_all(os.path.join(m.mnt, ".reshardfs", name))
            add_up(total, crowd.join(LONGEST))
            rounds += 1
        tell("one server", total, killed=16 * rounds, slowest_end=f"{slowest:.2f} s")
        sound(total)
        check(slowest < LONGEST, f"a killed reader took {slowest:.1f} s to end")
        within_limits(m.process.pid, cache, tree)
        equal([line for line in m.log().splitlines() if "error" in line or "warning" in line], [], "log")


# ---- object storage --------------------------------------------------------------------------------------

# What is wrong with the store, and what readers may meet then: nothing where another try helps.
SLOW = {"latency": 0.05}
STORES = (
    ({}, ()),
    ({"fault": "any", "every": 4}, ("EIO", "SIGBUS")),
    (SLOW, ()),
    ({"fault": "stall", "every": 120, "ranges": True}, ("EIO", "SIGBUS")),
    ({"fault": "garbage", "every": 5, **SLOW}, ("EIO", "SIGBUS")),
    ({}, ()),
    ({"fault": "429", "every": 8}, ("EIO", "SIGBUS")),
    ({"fault": "503"}, ("EIO", "SIGBUS")),
)
LANES = 16  # connections=
TRIES, TIMEOUT = 3, 5  # a call may wait for all of them
OF_OBJECTS = (40 << 20) + LANES * (256 << 10)  # bytes that the server may take more


def read_objects(name, tree, url, proxy, how, seconds):
    """One server for all of the time, crowds with a store that is well, slow or faulty, and readers that are killed."""
    choose, cache = choices(name), 32 << 20
    sides = ",".join(f"{side}_strategy={url}/{side}_strategy.ckpt" for side in ("src", "dst"))
    options = f"{sides},{how},cache={cache},connections={LANES},tries={TRIES},timeout={TIMEOUT},index_cache=no"
    total, rounds, slowest = {}, 0, 0.0
    with Foreground(f"{url}/src", options, env=stores.environment(proxy.url)) as m:
        want = want_of(tree)
        for path in want:
            os.stat(os.path.join(m.mnt, path))
        end = time.monotonic() + seconds
        while rounds < len(STORES) or time.monotonic() < end:
            plan, allowed = STORES[rounds % len(STORES)]
            proxy.plan(**plan)
            proxy.forget()
            crowd = Crowd(m.mnt, want, 16, 6, f"{SEED}-{name}-{rounds}")
            for _ in range(3):
                time.sleep(choose.random())
                slowest = max(slowest, crowd.kill_some(choose, 2))
            told = crowd.join(8 * LONGEST)  # the last way of a reader has many calls, and several may meet a fault
            sound(told, allowed, TRIES * TIMEOUT)
            add_up(total, told)
            rounds += 1
        tell(name, total, killed=6 * rounds, slowest_end=f"{slowest:.2f} s")
        check(slowest < LONGEST, f"a killed reader took {slowest:.1f} s to end")
        within_limits(m.process.pid, cache + OF_OBJECTS, tree, descriptors=512)


def test_objects():
    """S3 past the page cache, and plain HTTP through it."""
    tree = Tree(folder("tree"), MIXED, 4, 2)
    stores.begin(folder("stores"))
    try:
        need(stores.nginx_port, "nginx is missing")
        with stores.Proxy() as proxy:
            read_objects("S3, direct", tree, stores.upload(tree.dir), proxy, "io=direct", SECONDS / 2)
        name, where = publish(tree.dir)
        with stores.Proxy(stores.nginx_port) as proxy:
            read_objects("HTTP, page cache", tree, f"{proxy.url}/{name}", proxy, "io=cached", SECONDS / 2)
    finally:
        stores.end()


# ---- sources that change ---------------------------------------------------------------------------------


def truncated(path, choose):
    os.truncate(path, choose.randrange(os.path.getsize(path)))


def overwritten(path, choose):
    """In place, with its times put back."""
    st = os.stat(path)
    with open(path, "r+b") as file:
        for at in range(0, st.st_size, 4096):
            file.seek(at)
            file.write(os.urandom(min(64, st.st_size - at)))
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def renamed_over(path, choose):
    with open(path + ".new", "wb") as file:
        file.write(os.urandom(os.path.getsize(path)))
    os.rename(path + ".new", path)


def folder_replaced(path, choose):
    whole = os.path.dirname(path)
    os.rename(whole, whole + ".old")
    os.mkdir(whole)
    with open(path, "wb") as file:
        file.write(os.urandom(1000))


def linked(path, choose):
    """To another rank's file."""
    ranks = os.path.dirname(os.path.dirname(path))
    other = choose.choice([r for r in sorted(os.listdir(ranks)) if r != os.path.basename(os.path.dirname(path))])
    inside = os.path.join(ranks, other)
    os.symlink(os.path.join(inside, sorted(os.listdir(inside))[0]), path + ".new")
    os.rename(path + ".new", path)


def made_a_fifo(path, choose):
    os.unlink(path)
    os.mkfifo(path)


def removed(path, choose):
    os.unlink(path)


CHANGES = (truncated, overwritten, renamed_over, folder_replaced, linked, made_a_fifo, removed)


def change_while_read(choose, make):
    """MAKE gives a tree of four ranks, the options of its mount and its files, {path: bytes}."""
    end = time.monotonic() + SECONDS
    rounds = 0
    while rounds < len(CHANGES) or time.monotonic() < end:
        change = CHANGES[rounds % len(CHANGES)]
        how = choose.choice(("io=direct", "io=cached")) + choose.choice((",cache=1M", ",cache=64M", ",cache=0"))
        tree, options, want = make()
        with Foreground(tree.src, f"{options},{how}") as m:
            crowd = Crowd(m.mnt, want, 12, 1.2, f"{SEED}-{rounds}", WITHOUT_MAPPING)
            time.sleep(choose.random() * 0.6)
            victim = choose.randrange(4)
            change(tree.path(victim), choose)
            total = crowd.join(LONGEST)
            tell(f"rank {victim} {change.__name__}, {how}", total)
            sound(total, ("ESTALE", "EIO", "EACCES"))
            within_limits(m.process.pid, 64 << 20, tree)
        shutil.rmtree(tree.dir)
        rounds += 1


def test_changing_sources():
    """What was mounted, or an errno: never a byte of what a source became."""
    def make():
        tree = Tree(folder("tree"), usual(4), 4, 2)
        return tree, tree.options(), want_of(tree)
    change_while_read(choices("changing"), make)


def test_changing_sources_of_converted_views():
    """The same of a weight that conversion rules transpose, in bands that several ranks' files fill."""
    rows, cols = 1024, 768
    want = {}

    def make():
        tree, beside, options = model(rows, cols)
        if not want:
            data = tree.full["w"]
            with Mount(tree.src, options) as m:
                whole = read_all(os.path.join(m.mnt, "model.safetensors"))
            head = whole[: 8 + int.from_bytes(whole[:8], "little")]
            want["model.safetensors"] = head + transposed(data, rows, cols, len(data) // (rows * cols))
        return tree, options, want
    change_while_read(choices("converted"), make)


# ---- processes that are killed ---------------------------------------------------------------------------


def test_a_training_that_is_followed():
    """Of 50 saves and more: whole and slow ones, killed writers, and saves that are written again."""
    n, told = 0, []
    end = time.monotonic() + SECONDS
    while n < 50 or time.monotonic() < end:
        told.append(test_follow.play(50, 16, f"{SEED}-{n}"))
        for name in "job", "notes":
            shutil.rmtree(folder(name))
        n += 50
    print(f"    {n} saves: {told}", flush=True)


def test_killed_readers():
    choose = choices("killed")
    tree = Tree(folder("tree"), usual(8), 8, 4)
    with Foreground(tree.src, tree.options("cache=16M")) as m:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            crowd = Crowd(m.mnt, want_of(tree), 48, 2, f"{SEED}-{time.monotonic()}")
            slowest = 0.0
            for _ in range(8):
                time.sleep(choose.random() * 0.3)
                slowest = max(slowest, crowd.kill_some(choose, 4))
            total = crowd.join(LONGEST)
            tell("the others", total, killed=32, slowest_end=f"{slowest:.2f} s")
            sound(total)
            check(slowest < LONGEST, f"a killed reader took {slowest:.1f} s to end")
        within_limits(m.process.pid, 16 << 20, tree)


def test_killed_servers():
    """Readers get an errno, and the next mount shows every byte, whatever was being kept when the server died."""
    choose = choices("servers")
    tree = Tree(folder("tree"), usual(4), 4, 2)
    kept = folder("kept")
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with Foreground(tree.src, tree.options(f"index_cache={kept}", "cache=16M")) as m:
            crowd = Crowd(m.mnt, want_of(tree), 24, 1.5, f"{SEED}-{time.monotonic()}", WITHOUT_MAPPING)
            time.sleep(choose.random())
            m.process.kill()
            m.process.wait()
            total = crowd.join(LONGEST)
            tell("under a killed server", total)
            # ENOENT and ENOTCONN: of a mount point that is unmounted, or has nobody behind it.
            sound(total, ("ENOTCONN", "ECONNABORTED", "ENOENT", "EIO"))
            subprocess.run(["fusermount3", "-uz", m.mnt], capture_output=True)
            eventually(lambda: not mounted(m.mnt), "it can be unmounted")
        with Foreground(tree.src, tree.options(f"index_cache={kept}")) as m:
            for path, want in want_of(tree).items():
                same_bytes(read_all(os.path.join(m.mnt, path)), want, f"after a killed server: {path}")


# ---- unmounts --------------------------------------------------------------------------------------------


def asked_to_unmount(m):
    """Busy, as files are open; then detached."""
    subprocess.run(["fusermount3", "-u", m.mnt], capture_output=True)
    subprocess.run(["fusermount3", "-uz", m.mnt], capture_output=True)


def test_unmounts_under_load():
    choose = choices("unmounts")
    tree = Tree(folder("tree"), usual(4), 4, 2)
    ways = {
        "SIGTERM": lambda m: m.process.send_signal(signal.SIGTERM),
        "SIGINT": lambda m: m.process.send_signal(signal.SIGINT),
        "fusermount3": asked_to_unmount,
    }
    end = time.monotonic() + SECONDS
    rounds = 0
    while rounds < len(ways) or time.monotonic() < end:
        name = sorted(ways)[rounds % len(ways)]
        with Foreground(tree.src, tree.options("cache=16M", choose.choice(("crc", "io=auto")))) as m:
            want = want_of(tree) if "crc" not in m.process.args[-1] else {}
            want = want or {path: read_all(os.path.join(m.mnt, path)) for path in want_of(tree)}
            crowd = Crowd(m.mnt, want, 24, 1.5, f"{SEED}-{rounds}", WITHOUT_MAPPING)
            time.sleep(0.2 + choose.random() * 0.5)
            start = time.monotonic()
            ways[name](m)
            total = crowd.join(LONGEST)
            equal(m.process.wait(PATIENCE), 0, f"exit status after {name}")
            took = time.monotonic() - start
            eventually(lambda: not mounted(m.mnt), "it is unmounted")
            tell(name, total, ended_after=f"{took:.2f} s")
            # ENOENT: the mount point is an empty folder again.
            sound(total, ("ENOTCONN", "ECONNABORTED", "ENOENT", "EIO", "EINTR", "ESHUTDOWN", "ENODEV"))
        rounds += 1


# ---- system calls that fail, and limits ------------------------------------------------------------------


def test_failing_calls():
    """Calls on one source fail now and then, as strace has them: an errno where it was caused, else the right bytes."""
    need(shutil.which("strace"), "strace is missing")
    opens = "openat,openat2"
    cases = (
        (READS, "error=EIO:when=4+5", ("EIO",)),
        (READS, "error=ENOMEM:when=3+4", ("ENOMEM",)),
        (READS, "error=EINTR:when=2+3", ()),
        (opens, "error=EMFILE:when=1+2", ("EMFILE",)),
        (opens, "error=ENFILE:when=1+2", ("ENFILE",)),
        (READS, "delay_enter=3000:when=3+3", ()),
    )
    for calls, what, errors in cases:
        tree = Tree(folder(f"tree-{what[6:9]}-{what[-4:]}"), usual(4), 4, 2)
        before = ["strace", "-f", "-qq", "-o", os.path.join(tree.dir, "trace"), "-P", tree.path(1)]
        before += ["-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
        with Foreground(tree.src, tree.options("index_cache=no", "cache=1M", "follow_links"), before=before, env=under_strace()) as m:
            total = Crowd(m.mnt, want_of(tree), 12, SECONDS / 8, f"{SEED}-{what}", WITHOUT_MAPPING).join(LONGEST)
            tell(f"{calls} {what}", total)
            sound(total, errors)
            trace = read_all(os.path.join(tree.dir, "trace"))
            check(b"(INJECTED)" in trace or b"(DELAYED)" in trace, "nothing was injected")


LIMITS = (
    ("--nofile=16", ("EMFILE",)),
    ("--nofile=20", ("EMFILE",)),
    ("--nofile=40", ("EMFILE",)),
    ("--nofile=262", ("EMFILE",)),
    ("--as=67108864", ("ENOMEM",)),
    ("--as=150000000", ("ENOMEM",)),
    ("--as=400000000", ("ENOMEM",)),
    ("--data=20000000", ("ENOMEM",)),
    ("--stack=1048576", ()),
    ("--memlock=0", ()),
    ("--fsize=0", ()),
    ("--core=0", ()),
    ("--cpu=unlimited", ()),
    ("--locks=0", ()),
    ("--sigpending=0", ()),
    ("--msgqueue=0", ()),
)


FORTY = [Param("rows", (320, 96), 0, 0), Param("cols", (64, 640), 1, 1), Param("turned", (320, 128), 0, 1)]


def answers(mnt, process):
    """Whether it is mounted and its server has not ended over the first request."""
    try:
        return process.poll() is None and os.stat(mnt) is not None
    except OSError:
        return False


def start_limited(tree, limit):
    """A mount, or None when the server refused the limit with one line."""
    mnt, log = folder("mnt"), os.path.join(folder("logs"), "log")
    command = ["prlimit", limit, reshardfs, tree.src, mnt, "-f", "-o", tree.options("cache=16M")]
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out)
    eventually(lambda: mounted(mnt) or process.poll() is not None, "it is mounted, or has ended")
    if answers(mnt, process):
        return mnt, process
    process.wait(PATIENCE)
    lines = read_all(log).decode(errors="replace").splitlines()
    check(process.returncode in (1, 127), f"{limit}: exit status {process.returncode}: {lines}")
    check(lines and "error" in lines[-1], f"{limit}: it says {lines}")
    print(f"    {limit}: refused: {lines[-1][:150]}", flush=True)
    return None


def test_low_limits():
    """Of everything: refused with one line, or all that is read is right, and it ends in an orderly way."""
    need(shutil.which("prlimit"), "prlimit is missing")
    need(not sanitized(), "a sanitizer needs more memory than that")
    tree = Tree(folder("tree"), FORTY, 40, 4)
    for k, (limit, errors) in enumerate(LIMITS):
        started = start_limited(tree, limit)
        if not started:
            continue
        mnt, process = started
        total = Crowd(mnt, want_of(tree), 16, max(1, SECONDS / 20), f"{SEED}-{limit}", WITHOUT_MAPPING).join(LONGEST)
        tell(limit, total)
        if process.poll() is not None:
            line = read_all(os.path.join(folder("logs"), "log")).decode(errors="replace").splitlines()[-1]
            check("the mount broke: Cannot allocate memory" in line, f"{limit}: ended by itself: {line}")
            sound(total, (*errors, "ECONNABORTED", "ENOTCONN", "ENOENT"))
            continue
        sound(total, errors)
        if k % 2:
            process.terminate()
        else:
            unmount(mnt)
        equal(process.wait(PATIENCE), 0, f"exit status under {limit}")
        eventually(lambda: not mounted(mnt), "it is unmounted")
