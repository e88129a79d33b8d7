# SPDX-License-Identifier: Apache-2.0
"""Encrypted sources: what is read, who may read it, and what is left behind of it."""
import ctypes
import errno
import mmap
import os
import re
import shutil
import stat
import subprocess

from forge import Param, Tree, usual
from harness import *
from seal import KEY, key_file, seal, seal_tree
from test_access import NOBODY, as_nobody, place_of


def sealed(params=None, mode="AES-GCM", key=KEY):
    tree = Tree(folder("tree"), params or usual(), 4, 2)
    seal_tree(tree, key, mode)
    return tree, f"key_file={key_file(tree, key)}"


def all_right(m, tree):
    for rank in range(2):
        equal(os.stat(m.file(rank)).st_size, len(tree.expected(rank)), f"size of rank {rank}")
        same_bytes(m.read(rank), tree.expected(rank), f"rank {rank}")


def test_encrypted_sources():
    for number, (mode, n) in enumerate((("AES-GCM", 32), ("AES-CBC", 16), ("SM4-CBC", 16))):
        tree = Tree(folder(f"tree{number}"), usual(), 4, 2)
        seal_tree(tree, KEY[:n], mode)
        with Mount(tree.src, tree.options(f"key_file={key_file(tree, KEY[:n])}")) as m:
            warned = f"encrypted by {mode}, which does not detect changes" in m.stderr
            equal(warned, mode != "AES-GCM", f"{mode}: a warning when mounting")
            all_right(m, tree)
            equal(stat.S_IMODE(os.stat(m.file(0)).st_mode), 0o400, "mode")


def test_blocks_of_64_mib():
    """More than one block, a cache with room for one, and no more memory than that and the usual."""
    tree = Tree(folder("tree"), [Param("w", (2, 3 << 22), 0, 1)], 2, 1)  # 48 MiB a rank …
    both = read_all(tree.path(0)) + read_all(tree.path(1)).replace(b"\x01w\x12", b"\x01v\x12", 1)
    tree.write(0, seal(both))  # … and one of 96 MiB
    tree.write(1, seal(read_all(tree.path(1))))
    options = tree.options(f"key_file={key_file(tree)}", "cache=80M")
    with Mount(tree.src, options, "--single-thread") as m:
        st = os.stat(m.file(0))
        with open(m.file(0), "rb") as file:
            got = file.read()
        equal(st.st_size, len(got), "size")
        check(tree.expected(0) in got, "w, of both ranks")
        peak = int(re.search(rb"VmHWM:\s+(\d+) kB", read_all(f"/proc/{m.pid}/status"))[1]) << 10
        check(peak < (80 + 64) << 20 or sanitized(), f"{peak} bytes")


def test_key_from_the_environment():
    needs_to_look_into_a_server_with_a_key()
    tree, _ = sealed(key=KEY[:24])
    env = {**os.environ, "THE_KEY": KEY[:24].decode(), "OTHER": "stays"}
    with Mount(tree.src, tree.options("key_env=THE_KEY"), env=env) as m:
        environment = read_all(f"/proc/{m.pid}/environ")
        check(b"OTHER=stays" in environment, "what others see of the environment")
        check(KEY[:24] not in environment, "the key is still there")
        all_right(m, tree)


def test_verified_by_a_key_from_the_environment():
    """The source is opened once, as it is and as the tree should be; what the tree has beside tensors is looked at."""
    tree, given = sealed()
    out = os.path.join(folder("to"), "out")
    equal(run(reshard, "export", tree.src, out, "-o", tree.options(given)).returncode, 0, "export")
    command = [reshard, "verify", out, "--against", tree.src, "-o", tree.options("key_env=THE_KEY")]
    env = {**os.environ, "THE_KEY": KEY.decode()}
    got = run(*command, env=env)
    equal((got.returncode, "note" in got.stdout), (0, False), f"verify: {got.stdout}{got.stderr}")
    path = os.path.join(out, "rank_1", "checkpoint_1.ckpt")
    data = bytearray(read_all(path))
    data[-1] ^= 1
    os.chmod(path, 0o600)
    with open(path, "wb") as file:
        file.write(data)
    equal(run(*command, env=env).returncode, 1, "a flipped bit")


def test_key_from_a_descriptor():
    needs_to_look_into_a_server_with_a_key()
    tree, _ = sealed()
    mnt = folder("mnt")
    reader, writer = os.pipe()
    os.write(writer, KEY)
    os.close(writer)
    command = [reshardfs, tree.src, mnt, "-o", tree.options(f"key_fd={reader}")]
    got = subprocess.run(command, pass_fds=[reader], capture_output=True, timeout=LIMIT)
    os.close(reader)
    equal((got.returncode, got.stderr), (0, b""), "mounting")
    (pid,) = servers(mnt)
    check(not any("pipe:" in os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")
                  if int(n) == reader), "the descriptor is still open")
    same_bytes(read_all(os.path.join(mnt, "rank_1", "checkpoint_1.ckpt")), tree.expected(1), "rank 1")
    unmount(mnt)
    eventually(lambda: not servers(mnt), "the server ends")


def test_wrong_key():
    tree, _ = sealed()
    path = tree.path(0)
    line = (
        f"{path}: offset 0: block 0 fails its AES-GCM check: the key is wrong, or the file was changed; "
        "try: check the key, or compare the file with its original"
    )
    options = tree.options(f"key_file={key_file(tree, KEY[::-1])}")
    fails(1, line, tree.src, folder("mnt"), "-o", options)
    fails(1, line, "--check", tree.src, "-o", options)


def test_encrypted_without_a_key():
    tree, _ = sealed()
    line = (
        f"{tree.path(3)}: the file is encrypted (AES-GCM), and there is no key; try: -o key_file=FILE, "
        "key_env=NAME or key_fd=N"
    )
    got = run(reshardfs, "--check", tree.src, "-o", tree.options())
    equal(got.returncode, 1, "status")
    check(re.sub(r"rank_\d/net-1_\d", "rank_3/net-1_3", got.stderr.strip()).endswith(line), got.stderr)


def test_refused_with_a_key():
    tree, key = sealed()
    mnt = folder("mnt")

    def refused(line, *options):
        fails(2, line, tree.src, mnt, "-o", tree.options(*options))

    refused("a key cannot be given on a command line, where other users see it; try: -o key_file=FILE, key_env=NAME "
            "or key_fd=N", "key=" + KEY.decode())
    refused("there is more than one place for the key, or none; try: one of key_file, key_env and key_fd",
            key, "key_env=HOME")
    refused("io=cached with a key would keep decrypted content in the page cache; try: io=direct", key, "io=cached")
    for word in ("allow_other", "allow_root"):
        refused(f"{word} with a key would show decrypted content to other users; "
                "try: allow_decrypted as well, to permit that", key, word)
    refused("the cache is too small for encrypted sources: a block of 64 MiB must fit, and 16 MiB beside it; try: "
            "cache=80M or more", key, "cache=64M")


def test_allow_other_asked_for_twice():
    need(os.geteuid() == 0 and shutil.which("setpriv"), "only root may become somebody else")
    tree, key = sealed()
    for rank in range(4):
        os.chmod(tree.path(rank), 0o644)
    with Mount(tree.src, tree.options(key, "allow_other", "allow_decrypted")) as m:
        equal(as_nobody("ls", os.path.join(m.mnt, "rank_0")).returncode, 0, "names are seen")
        got = as_nobody("cat", m.file(0))
        check(got.returncode != 0 and "Permission denied" in got.stderr, f"readable by its owner alone: {got}")
        all_right(m, tree)


def test_past_the_page_cache():
    """Also safetensors, which go through it otherwise."""
    tree, key = sealed()
    for more in ((), ("format=safetensors",)):
        with Mount(tree.src, tree.options(key, *more)) as m:
            name = m.file(0) if not more else m.file(0)[:-5] + ".safetensors"
            with open(name, "rb") as file:
                try:
                    mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
                except OSError as error:
                    equal(error.errno, errno.ENODEV, "a shared mapping")
                else:
                    raise AssertionError("a shared mapping works")
                private = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
                same_bytes(private[:], file.read(), "a private mapping")
                private.close()


CACHESTAT = 451  # of the kernel from 6.5 on; mapping a file, to ask mincore, drops its pages


def pages_kept(file):
    """How many of an open file's pages the kernel has."""
    libc = ctypes.CDLL(None, use_errno=True)
    everything = (ctypes.c_uint64 * 2)(0, 0)
    told = (ctypes.c_uint64 * 5)()
    rc = libc.syscall(ctypes.c_long(CACHESTAT), ctypes.c_int(file.fileno()), everything, told, ctypes.c_uint(0))
    need(rc == 0, "the kernel tells nothing of its page cache")
    return told[0]


def test_pages_of_private_mappings_go():
    """When the file is closed, not only when it is opened again."""
    tree, key = sealed()
    with Mount(tree.src, tree.options(key)) as m:
        with open(m.file(0), "rb") as before:
            with open(m.file(0), "rb") as file:
                private = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
                same_bytes(private[:], tree.expected(0), "a private mapping")
                check(pages_kept(before) > 0, "pages are there while it is mapped")
                private.close()
            eventually(lambda: pages_kept(before) == 0, "plain pages are dropped")
        all_right(m, tree)


def map_until(file, begun, end):
    """In a process of its own: maps the open file, says so, and ends, which unmaps it, when END is closed."""
    pid = os.fork()
    if pid == 0:
        private = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
        sum(private[::4096])
        os.write(begun, b"x")
        os.close(end[1])
        os.read(end[0], 1)
        os._exit(0)
    return pid


def test_pages_of_files_closed_at_once_go():
    """Those of each, also where one is closed while the pages of another are being dropped."""
    tree = Tree(folder("tree"), [Param("w", (2048, 4096), 0, 0)], 8, 8)
    seal_tree(tree, KEY, "AES-GCM")
    with Mount(tree.src, tree.options(f"key_file={key_file(tree, KEY)}")) as m:
        before = [open(m.file(rank), "rb") for rank in range(8)]
        for turn in range(4):
            begun, end = os.pipe(), os.pipe()
            files = [open(m.file(rank), "rb") for rank in range(8)]
            readers = [map_until(file, begun[1], end) for file in files]
            for file in files:
                file.close()
                os.read(begun[0], 1)
            check(all(pages_kept(file) > 0 for file in before), "pages are there while they are mapped")
            for one in (*begun, *end):
                os.close(one)
            for pid in readers:
                os.waitpid(pid, 0)
            for rank, file in enumerate(before):
                eventually(lambda: pages_kept(file) == 0, f"turn {turn}: plain pages of rank {rank} are dropped")
        for file in before:
            file.close()


def test_a_changed_byte():
    tree, key = sealed([Param("w", (64, 96), 0, 0)])  # rank R of the two from ranks 2R and 2R + 1
    data = bytearray(read_all(tree.path(3)))
    data[len(data) // 2] ^= 16
    tree.write(3, bytes(data))
    with Foreground(tree.src, tree.options(key)) as m:
        for _ in range(2):
            try:
                os.stat(m.file(1))
            except OSError as error:
                equal(error.errno, errno.EBADMSG, "stat of what depends on it")
            else:
                raise AssertionError("a file with a changed byte has attributes")
        same_bytes(m.read(0), tree.expected(0), "what does not")
        check(f"{tree.path(3)}: offset 0: block 0 fails its AES-GCM check" in m.log(), m.log())


def test_changed_while_mounted():
    tree, key = sealed()
    with Mount(tree.src, tree.options(key)) as m:
        all_right(m, tree)
        tree.write(2, seal(b"\x0a" + bytes(100)))
        for rank in range(2):
            try:
                m.read(rank)
            except OSError as error:
                equal(error.errno, errno.ESTALE, "a source was replaced")
            else:
                raise AssertionError("read all the same")


def dumpable(pid):
    """Mappings that a core file would have: (from, to)."""
    spot = None
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            range_ = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                spot = tuple(int(x, 16) for x in range_.groups()) if range_ else None
            elif line.startswith("VmFlags:") and spot and " dd" not in line and " io" not in line:
                yield spot


def test_nothing_is_left_in_memory():
    """Of key and content, outside of what is kept from core files."""
    need(os.geteuid() == 0, "only root may look")
    tree, key = sealed([Param("w", (512, 4096), 0, 1, "Int8"), Param("n", (64,), 0, 0, "Int8")])
    wanted, long = {"the key": KEY}, {}
    # Small values lie within what is read of headers.
    wanted.update({f"n at {at}": tree.full["n"][at : at + 16] for at in range(0, 64, 16)})
    for rank in range(2):
        data = tree.expected(rank)
        places = range(99, len(data) - 256, 65521)
        wanted.update({f"byte {at} of rank {rank}": data[at : at + 24] for at in places})
        long.update({f"byte {at} of rank {rank}": data[at : at + 256] for at in places})
    # A sanitizer's own code runs in between and saves registers on the stack, with what has just been copied in them.
    for flags in ((), ("--single-thread",)):
        with Mount(tree.src, tree.options(key), *flags) as m:
            all_right(m, tree)
            try:
                memory = open(f"/proc/{m.pid}/mem", "rb", buffering=0)
            except OSError as error:
                need(False, f"the memory of another process: {error}")
            looked = 0
            with memory:
                for begin, end in dumpable(m.pid):
                    try:
                        memory.seek(begin)
                        held = memory.read(end - begin)
                    except (OSError, OverflowError, ValueError):
                        continue  # [vvar] and the like
                    looked += len(held)
                    for what, data in (long if sanitized() else wanted).items():
                        at = begin + held.find(data) if data in held else None
                        # A piece may be read ahead still, into memory that was guarded after it was listed.
                        there = at is not None and any(b <= at < e for b, e in dumpable(m.pid))
                        check(not there, f"{what} is in memory that a core file would have, at {at or 0:x}")
            check(looked > 1 << 20, "hardly anything was looked at")


def test_no_core_file():
    needs_to_look_into_a_server_with_a_key()
    tree, key = sealed()
    with Mount(tree.src, tree.options()) as m:
        before = read_all(f"/proc/{m.pid}/limits")
    with Mount(tree.src, tree.options(key)) as m:
        limits = read_all(f"/proc/{m.pid}/limits")
        check(re.search(rb"^Max core file size +0 +0 ", limits, re.M), limits)
        smaps = read_all(f"/proc/{m.pid}/smaps").decode()
        check(sanitized() or re.search(r"VmFlags:.* lo .*\bdd\b", smaps), "nothing is locked and left out of core files")
    check(before, "limits of a mount without a key")


def test_not_dumpable():
    """Nobody else of the same user gets at it, once it has a key or is in the sandbox."""
    needs_namespace("set it up")
    need(shutil.which("setpriv"), "setpriv is missing")
    tree, key = sealed()
    mnt, dev = folder("mnt"), folder("dev")
    spots = [mnt, tree.src, key.split("=")[1], *(os.path.dirname(tree.path(r)) for r in range(4))]
    for spot in (*spots, *map(tree.path, range(4))):
        os.chown(spot, NOBODY, NOBODY)
    script = """
        set -e
        mount --make-rprivate /
        mknod -m 666 "$4/fuse" c 10 229 && mount --bind "$4/fuse" /dev/fuse
        user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        for options in "$5" "$6" "$7"; do
            user "$1" "$2" "$3" -o "$options"
            for pid in $(pgrep -f "^$1 $2 $3 "); do
                if user cat /proc/$pid/maps >/dev/null 2>&1; then echo open; else echo closed; fi
            done
            user md5sum "$3/rank_1/checkpoint_1.ckpt" 2>/dev/null | cut -c1-32
            user fusermount3 -u "$3"
            while pgrep -f "^$1 $2 $3 " >/dev/null; do sleep 0.1; done
        done
    """
    for spot in (place_of(), tree.dir):
        os.chmod(spot, 0o755)
    got = run("unshare", "-m", "sh", "-c", script, "sh", reshardfs, tree.src, mnt, dev,
              tree.options("sandbox=off"), tree.options(), tree.options(key, "sandbox=off"))
    equal(got.returncode, 0, got.stderr)
    words = got.stdout.split()
    sandboxed = "open" if sanitized() else "closed"
    equal(words[:3], ["open", sandboxed, "closed"], "the memory of the server, as it is, in the sandbox, and with a key")
    import hashlib
    equal(words[-1], hashlib.md5(tree.expected(1)).hexdigest(), "what it shows all the same")
    eventually(lambda: not servers(mnt), "the server ends")
