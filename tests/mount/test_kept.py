# SPDX-License-Identifier: Apache-2.0
"""What a mount keeps for the next one: that it is used, that it is never believed when it is wrong, and where it may go."""
import errno
import json
import os
import random
import re
import shutil
import stat
import time

from forge import Param, Tree
from harness import *
from test_encrypted import sealed
from test_stale import EVENTS, ROWS, change, read_errno, remove, replace

SETTLED = 2.2  # seconds after which a file is of the past
SEED = int(os.environ.get("RFS_SEED", random.randrange(1 << 32)))


def settle():
    time.sleep(SETTLED)


def kept(where):
    """{name: bytes} of what is kept in a folder."""
    if not os.path.isdir(where):
        return {}
    return {n: read_all(os.path.join(where, n)) for n in sorted(os.listdir(where))}


def listing(m, ranks):
    """What ls -l tells, of all files."""
    out = []
    for rank in range(ranks):
        st = os.stat(m.file(rank))
        out.append((st.st_ino, st.st_size, st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns))
    return out


def first_mount(tree, cache):
    """Fills the folder; what was listed."""
    with Mount(tree.src, tree.options(f"index_cache={cache}")) as m:
        told = listing(m, tree.dst_n)
    check(sorted(n[33:] for n in kept(cache)) == ["index", "sizes"], f"kept is {list(kept(cache))}")
    return told


def sources_opened(tree, trace):
    with open(trace, errors="replace") as file:
        return [line for line in file if re.search(r'open\w*\(', line) and re.search(re.escape(tree.src) + r'(/|>, ")rank_', line)
                and ".ckpt" in line and "O_PATH" not in line]


def test_a_mount_at_the_place_of_another():
    """As a source it may have the same path, device, inode, size and modification time, and other bytes."""
    tree, cache = Tree(folder("tree"), [Param("w", (64, 64), 0, 1)], 2, 1), os.path.join(folder("tree"), "cache")
    settle()
    below, above = folder("below"), folder("above")
    for name in "ab":
        tree.put_strategy("names.json", json.dumps({"w": name}).encode())
        with Mount(tree.src, tree.options(f"names={tree.dir}/names.json"), mnt=below) as m:
            settle()
            with Mount(m.file(0), f"format=safetensors,index_cache={cache}", mnt=above):
                got = read_all(os.path.join(above, "rank_0", "checkpoint_0.safetensors"))
        check(f'"{name}":'.encode() in got[:200], f"the file of {name}: {got[:100]}")
    check(kept(cache), "nothing was kept")


def test_the_second_mount_opens_no_source():
    needs_strace_of_a_mount()
    tree, cache = Tree(folder("tree"), ROWS, 4, 2), os.path.join(folder("tree"), "cache")
    settle()
    told = first_mount(tree, cache)
    check(stat.S_IMODE(os.stat(cache).st_mode) == 0o700, "the folder is the user's alone")
    for name in kept(cache):
        check(stat.S_IMODE(os.stat(os.path.join(cache, name)).st_mode) == 0o600, f"{name} is the user's alone")
    trace = os.path.join(folder("out"), "trace")
    before = ["strace", "-f", "-y", "-qq", "-e", "trace=open,openat,openat2", "-o", trace]
    with Foreground(tree.src, tree.options(f"index_cache={cache}"), before=before) as m:
        compared = sources_opened(tree, trace)
        equal({re.search(r"rank_(\d)/", line)[1] for line in compared}, {"0", "1", "2"}, "ranks that mounting compares")
        equal(listing(m, 2), told, "what is listed")
        equal(sources_opened(tree, trace), compared, "sources opened for it")
        for rank in range(2):
            same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
        check(len(sources_opened(tree, trace)) > len(compared), "but they are opened to be read")
        m.stop()
        m.process.wait(PATIENCE)


def test_changed_sources_are_noticed():
    trees = {e: Tree(folder("tree-" + e.__name__), ROWS, 4, 2) for e in EVENTS if e is not remove}
    settle()
    for event, tree in trees.items():
        cache = os.path.join(tree.dir, "cache")
        first_mount(tree, cache)
        event(tree, 1)
        results = []
        for number, options in enumerate(("index_cache=no", f"index_cache={cache}")):
            with Mount(tree.src, tree.options(options), mnt=folder(f"mnt-{event.__name__}{number}")) as m:
                got = []
                for rank in range(2):
                    try:
                        got.append((os.stat(m.file(rank))[6:9], m.read(rank)))
                    except OSError as error:
                        got.append(error.errno)
                results.append(got)
        check(results[0] == results[1], f"{event.__name__}: with what was kept, the mount shows something else")


def test_changed_after_the_stat():
    """A size that was kept is told after a look at the sources, which hold from then on."""
    tree = Tree(folder("tree"), ROWS, 4, 4)
    cache = os.path.join(tree.dir, "cache")
    settle()
    told = first_mount(tree, cache)
    with Mount(tree.src, tree.options(f"index_cache={cache}")) as m:
        equal(listing(m, 4), told, "what is listed")
        change(tree, 2)
        try:
            fd = os.open(m.file(2), os.O_RDONLY)
        except OSError as error:
            equal(error.errno, errno.ESTALE, "open")
        else:
            equal(read_errno(fd, 4096, 0), "ESTALE", "what depends on it")
            os.close(fd)
        same_bytes(m.read(1), tree.expected(1), "what does not depend on it")


def test_damaged_in_any_way():
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    tree = Tree(folder("tree"), ROWS, 4, 2)
    cache = os.path.join(tree.dir, "cache")
    settle()
    told = first_mount(tree, cache)
    good = kept(cache)
    for turn in range(12):
        for name, data in good.items():
            data = bytearray(data)
            for _ in range(rng.choice((1, 1, 5))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            with open(os.path.join(cache, name), "wb") as file:
                file.write(data[: rng.randrange(len(data))] if turn % 4 == 3 else data)
        with Mount(tree.src, tree.options(f"index_cache={cache}"), mnt=folder(f"mnt{turn}")) as m:
            equal(listing(m, 2), told, f"turn {turn} of seed {SEED}: what is listed")
            same_bytes(m.read(turn % 2), tree.expected(turn % 2), f"turn {turn} of seed {SEED}")


def test_fresh_sources_are_not_kept():
    """What could be changed again without showing a later time is read again."""
    tree = Tree(folder("tree"), ROWS, 4, 2)
    cache = os.path.join(tree.dir, "cache")
    with Mount(tree.src, tree.options(f"index_cache={cache}")) as m:
        listing(m, 2)
    equal(kept(cache), {}, "kept")
    settle()
    first_mount(tree, cache)


def works_without(tree, options, mnt, **how):
    with Foreground(tree.src, tree.options(*options), mnt=folder(mnt), **how) as m:
        for rank in range(2):
            same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")
        m.stop()
        return m.log()


def test_nowhere_to_keep_anything():
    tree = Tree(folder("tree"), ROWS, 4, 2)
    other = os.path.join(tree.dir, "other")
    settle()
    env = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME")}
    equal(works_without(tree, (), "mnt1", env=env), "", "the log without HOME")
    equal(works_without(tree, ("index_cache=no",), "mnt2"), "", "the log with index_cache=no")
    log = works_without(tree, (), "mnt3", env={**env, "XDG_CACHE_HOME": "/proc/1"})  # read-only, even for root
    check("/proc/1/reshardfs: no index is kept here: " in log, log)
    os.symlink("tree", other)
    log = works_without(tree, (f"index_cache={other}",), "mnt4")
    check(f"{other}: no index is kept here: it is not a folder" in log, log)
    os.unlink(other)
    os.mkdir(other)
    os.chmod(other, 0o777)
    log = works_without(tree, (f"index_cache={other}",), "mnt5")
    check(f"{other}: no index is kept here: other users may write there, or it belongs to one" in log, log)
    equal(kept(other), {}, "kept where others may write")
    need(os.geteuid() == 0, "only root may give a folder away")
    os.chmod(other, 0o700)
    os.chown(other, 65534, 65534)
    log = works_without(tree, (f"index_cache={other}",), "mnt6")
    check("no index is kept here" in log, log)
    equal(kept(other), {}, "kept in another's folder")


def test_full_disk():
    need(os.geteuid() == 0, "only root may mount a small disk")
    tree, disk = Tree(folder("tree"), ROWS, 4, 2), folder("disk")
    settle()
    got = run("mount", "-t", "tmpfs", "-o", "size=4096,mode=0700", "small", disk)
    need(got.returncode == 0, got.stderr.strip())
    with open(os.path.join(disk, "fill"), "wb") as file:
        file.write(bytes(4096))
    log = works_without(tree, (f"index_cache={disk}",), "mnt")
    check(f"{disk}: no index is kept here: No space left on device" in log, log)
    equal(list(kept(disk)), ["fill"], "what is there")
    run("umount", disk)


def test_two_mounts_at_once():
    tree = Tree(folder("tree"), ROWS, 4, 2)
    cache = os.path.join(tree.dir, "cache")
    settle()
    options = tree.options(f"index_cache={cache}")
    with Mount(tree.src, options) as a, Mount(tree.src, options, mnt=folder("mnt2")) as b:
        told = listing(a, 2)
        equal(listing(b, 2), told, "what the other lists")
        shutil.rmtree(cache, ignore_errors=True)  # whenever they write
        for rank in range(2):
            same_bytes(b.read(rank), tree.expected(rank), f"rank {rank}")
    with Mount(tree.src, options, mnt=folder("mnt3")) as m:
        equal(listing(m, 2), told, "what is listed later")
        shutil.rmtree(cache, ignore_errors=True)
        same_bytes(m.read(1), tree.expected(1), "rank 1")


def test_other_strategies_have_sizes_of_their_own():
    cache = os.path.join(folder("cache"), "x")
    tree = Tree(folder("tree"), ROWS, 4, 2)
    other = Tree(folder("other"), ROWS, 4, 4)
    settle()
    with Mount(tree.src, tree.options(f"index_cache={cache}")) as m:
        two = listing(m, 2)
    four = other.options(f"index_cache={cache}")
    for turn in range(2):
        with Mount(tree.src, four, mnt=folder(f"mnt4-{turn}")) as m:
            equal([s[1] for s in listing(m, 4)], [len(other.expected(r)) for r in range(4)], "sizes of four")
        with Mount(tree.src, tree.options(f"index_cache={cache}"), mnt=folder(f"mnt2-{turn}")) as m:
            equal(listing(m, 2), two, "what is listed of two")
        with Mount(tree.src, tree.options(f"index_cache={cache}", "format=safetensors"), mnt=folder(f"mntst-{turn}")) as m:
            check(os.stat(os.path.join(m.mnt, "rank_0", "checkpoint_0.safetensors")).st_size != two[0][1], "of another format")


def test_nothing_of_encrypted_sources():
    tree, key = sealed()
    cache = os.path.join(folder("kept"), "cache")
    settle()
    with Mount(tree.src, tree.options(key, f"index_cache={cache}")) as m:
        os.stat(m.file(0))
    equal(kept(cache), {}, "kept")
