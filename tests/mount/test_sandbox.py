# SPDX-License-Identifier: Apache-2.0
"""What the server has given up: what it cannot do any more, and that all that it should do works without."""
import ctypes
import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess

from forge import Tree, usual
from harness import *
from seal import KEY, key_file, seal_tree
from test_access import NOBODY, place_of
from test_converted import model
from test_life import keeper
from test_kept import settle
from test_trees import two_saves

SANITIZED = sanitized()
# CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_IPC_LOCK, CAP_SYS_RESOURCE
OVERRIDE, READS_ALL, LOCKS, RAISES = 1 << 1, 1 << 2, 1 << 14, 1 << 24
MOUNTS = 1 << 21  # CAP_SYS_ADMIN
LANDLOCK = 444  # the number of landlock_create_ruleset, on all processors


def small(name="tree", src=4, dst=2):
    return Tree(folder(name), usual(), src, dst)


def need_landlock():
    """Whether this kernel has it, asked without our programs."""
    libc = ctypes.CDLL(None)
    need(libc.syscall(LANDLOCK, None, ctypes.c_size_t(0), 1) > 0, "this kernel has no Landlock")


def status(pid):
    return dict(re.findall(r"^(\w+):\s+(.*)$", read_all(f"/proc/{pid}/status").decode(), re.M))


def told(mnt):
    return json.loads(read_all(os.path.join(mnt, ".reshardfs", "stats.json")))["sandbox"]


def shim(**env):
    """The environment with tests/mount/misbehave.c."""
    return preloaded("mount", "misbehave.c", **env)


def locking(less=0, limit=None):
    """CAP_IPC_LOCK where it is kept: of what we have but LESS, because LIMIT cannot be raised."""
    had = int(status("self")["CapEff"], 16) & ~less
    limit = limit or resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    return had & LOCKS if limit != resource.RLIM_INFINITY and not had & RAISES else 0


def test_sandbox_is_told():
    """The default is what this machine has: in the process, in --version, in the log and in stats.json."""
    if SANITIZED:
        equal(run(reshardfs, "--version").stdout.splitlines()[-1].split("; ")[-1], "not by default", "--version")
        return
    tree = small()
    can = run(reshardfs, "--version").stdout.splitlines()[-1]
    check(can.startswith("sandbox: no new privileges, no capabilit"), can)
    check("a filter of system calls" in can, f"no filter: {can}")
    version = ctypes.CDLL(None).syscall(LANDLOCK, None, ctypes.c_size_t(0), 1)
    check(can.endswith(f"Landlock {version}" if version > 0 else "no Landlock"), can)
    with Foreground(tree.src, tree.options("log_level=debug")) as m:
        now = status(m.process.pid)
        kept = (READS_ALL if os.geteuid() == 0 else 0) | locking()
        equal((now["NoNewPrivs"], now["Seccomp"]), ("1", "2"), "no new privileges, a filter")
        for name in ("CapPrm", "CapEff", *(["CapBnd"] if os.geteuid() == 0 else [])):  # only root may give up what it has not
            equal(int(now[name], 16), kept, name)
        equal(int(now["CapInh"], 16) | int(now["CapAmb"], 16), 0, "what a program would inherit")
        equal(re.search(r"^Max core file size\s+(\d+)\s+(\d+)", read_all(f"/proc/{m.process.pid}/limits").decode(),
                        re.M).groups(), ("0", "0"), "core files")
        for pid in os.listdir(f"/proc/{m.process.pid}/task"):
            equal(status(pid)["Seccomp"], "2", f"thread {pid}")
        equal(f"sandbox: {told(m.mnt)}", can, "stats.json")
        check(can in m.log(), m.log())
        same_bytes(m.read(0), tree.expected(0), "rank 0")


def test_sandbox_keeps_what_reading_takes():
    """Root of a container reads the files of others by CAP_DAC_OVERRIDE, and locks memory where no limit can be raised."""
    needs_programs_of_all()
    need(os.geteuid() == 0 and shutil.which("setpriv"), "only root can give capabilities up")
    if SANITIZED:
        return
    tree = small()
    for rank in range(4):
        os.chown(tree.path(rank), NOBODY, NOBODY)
        os.chmod(tree.path(rank), 0o400)

    def less(*names):
        return "setpriv", *(f"--{which}={','.join('-' + n for n in names)}" for which in ("bounding-set", "inh-caps"))

    limit = ("prlimit", "--memlock=65536:65536")
    for before, reads, locks in (
        (less("dac_read_search"), OVERRIDE, locking()),
        (less("dac_read_search", "ipc_lock"), OVERRIDE, 0),
        ((*limit, *less("sys_resource")), READS_ALL, locking(RAISES, 65536)),
        (limit, READS_ALL, locking(0, 65536)),
        (less("sys_resource", "ipc_lock"), READS_ALL, 0),
    ):
        names = "CAP_DAC_OVERRIDE" if reads == OVERRIDE else "CAP_DAC_READ_SEARCH"
        names = f"no capability but {names}{' and CAP_IPC_LOCK' if locks else ''}"
        can = run(*before, reshardfs, "--version").stdout.splitlines()[-1]
        with Foreground(tree.src, tree.options(), before=before) as m:
            equal(int(status(m.process.pid)["CapEff"], 16), reads | locks, names)
            check(f", {names}, " in told(m.mnt), told(m.mnt))
            equal(can, f"sandbox: {told(m.mnt)}", "--version")
            same_bytes(m.read(0), tree.expected(0), "rank 0")
    got = run(*less("dac_read_search", "dac_override", "ipc_lock"), reshardfs, "--version").stdout
    check(", no capabilities, " in got, got)


def test_sandbox_of_a_server_whose_children_are_ignored():
    """Who starts it may ignore SIGCHLD, and a program inherits that."""
    if SANITIZED:
        return
    tree = small()
    ignoring = ("env", "--ignore-signal=CHLD")
    with Foreground(tree.src, tree.options("sandbox=on"), before=ignoring) as m:
        equal(status(m.process.pid)["Seccomp"], "2", "a filter")
    need_landlock()
    env = shim(RFS_MISBEHAVE="execve", RFS_MISBEHAVE_AT=str(LANDLOCK))
    got = run(*ignoring, reshardfs, tree.src, folder("mnt2"), "-o", tree.options(), env=env)
    check("the sandbox has ended the server" in got.stderr, f"in the background: {got.stderr}")


def waits(pid):
    """Whether it is asleep in the sandbox, and all threads are that have compared ranks: then nothing else takes long."""
    if not SANITIZED and status(pid)["Seccomp"] != "2":
        return False
    states = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as file:
            states.append(re.search(r"^State:\s+(\w)", file.read(), re.M)[1])
    return set(states) == {"S"}


def test_signals_end_a_server_that_mounting_holds_up():
    """Mounting hangs in the keeper, which may be at a network file system or at fusermount3."""
    need(os.geteuid() == 0, "an ordinary user's fusermount3 takes no library")
    if SANITIZED:
        return
    tree, mnt = small(), folder("mnt")
    env = shim(RFS_MOUNT_HANGS="yes")
    for number in (signal.SIGTERM, signal.SIGINT):
        command = (reshardfs, tree.src, mnt, "-f", "-o", tree.options())
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        try:
            eventually(lambda: waits(server.pid), "it waits for its keeper")
            server.send_signal(number)
            equal(server.wait(PATIENCE), -number, "the end of the server")
        finally:
            server.kill()
        eventually(lambda: not servers(mnt), "the keeper ends as well")
    check(not mounted(mnt), "something is mounted")


def in_place_of(mnt):
    """Another folder gets the mount point's name, as whoever may write in the folder above can do. (Where the first one is
    now, the other one.)"""
    away, other = mnt + ".away", folder("other")
    os.rename(mnt, away)
    os.symlink(other, mnt)
    return away, other


def test_a_mount_point_that_is_replaced_before_it_is_used():
    """Between the look at it and the mount, all headers are read, and here a key is waited for."""
    tree, mnt = small(), folder("mnt")
    seal_tree(tree)
    reader, writer = os.pipe()
    command = (reshardfs, tree.src, mnt, "-f", "-o", tree.options(f"key_fd={reader}"))
    server = subprocess.Popen(command, pass_fds=[reader], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    os.close(reader)
    try:
        eventually(lambda: waits(server.pid), "it waits for its key")
        away, other = in_place_of(mnt)
        with os.fdopen(writer, "wb") as file:
            file.write(KEY)
        line = f"reshardfs: error: {mnt}: another folder took the place of the mount point; try: a mount point that only you can move\n"
        equal((server.communicate(timeout=PATIENCE)[1], server.returncode), (line, 1), "the end")
    finally:
        server.kill()
    for spot in (away, other):
        check(not mounted(spot), f"something is mounted at {spot}")


def test_a_mount_point_that_is_replaced_while_it_is_mounted():
    """The mount is at the folder that was looked at, wherever that is now; and is unmounted there."""
    need(os.geteuid() == 0, "an ordinary user's fusermount3 goes by the path")
    if SANITIZED:
        return
    tree, mnt = small(), folder("mnt")
    now = os.path.join(folder("turn"), "now")
    command = (reshardfs, tree.src, mnt, "-f", "-o", tree.options())
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=shim(RFS_MOUNT_WAITS=now))
    try:
        eventually(lambda: os.path.exists(now + ".begun"), "its keeper is about to mount")
        away, other = in_place_of(mnt)
        open(now, "w").close()
        eventually(lambda: mounted(away) or mounted(other), "it is mounted")
        check(not mounted(other), "another folder is covered")
        same_bytes(read_all(os.path.join(away, "rank_0", "checkpoint_0.ckpt")), tree.expected(0), "rank 0")
        server.send_signal(signal.SIGTERM)
        equal(server.wait(PATIENCE), 0, "the end of the server")
    finally:
        server.kill()
    eventually(lambda: not mounted(away), "it is unmounted")


def test_the_keeper_of_root_has_few_rights():
    need(os.geteuid() == 0, "an ordinary user's keeper runs fusermount3")
    if SANITIZED:
        return
    tree = small()
    with Foreground(tree.src, tree.options("sandbox=on")) as m:
        now = status(keeper(m.mnt))
        equal((now["NoNewPrivs"], now["Seccomp"]), ("1", "2"), "no new privileges, a filter")
        for name in ("CapPrm", "CapEff", "CapBnd"):
            equal(int(now[name], 16), MOUNTS, name)
    with Foreground(tree.src, tree.options("sandbox=off")) as m:
        equal(status(keeper(m.mnt))["CapEff"], status("self")["CapEff"], "without a sandbox")


def test_modules_of_openssl_in_the_sandbox():
    """Its configuration names them; they are code, which the sandbox lets nobody load."""
    need(shutil.which("openssl"), "openssl is missing")
    needs_to_look_into_a_server_with_a_key()
    modules = re.search('"(.*)"', run("openssl", "version", "-m").stdout)
    need(modules and os.path.exists(os.path.join(modules[1], "legacy.so")), "this OpenSSL has no module beside it")
    tree = small()
    seal_tree(tree)
    config = os.path.join(tree.dir, "openssl.cnf")
    with open(config, "w") as file:
        file.write("openssl_conf = all\n[all]\nproviders = each\n[each]\ndefault = on\nlegacy = on\n[on]\nactivate = 1\n")
    env = {**os.environ, "OPENSSL_CONF": config}
    with Foreground(tree.src, tree.options(f"key_file={key_file(tree)}"), env=env) as m:
        same_bytes(m.read(0), tree.expected(0), "rank 0")
        check(b"/legacy.so" in read_all(f"/proc/{m.process.pid}/maps"), "the module was not loaded")


def test_sandbox_off():
    tree = small()
    with Foreground(tree.src, tree.options("sandbox=off")) as m:
        now = status(m.process.pid)
        equal((now["NoNewPrivs"], now["Seccomp"]), (status("self")["NoNewPrivs"], status("self")["Seccomp"]), "as here")
        equal(now["CapEff"], status("self")["CapEff"], "capabilities")
        equal(told(m.mnt), "off", "stats.json")
        same_bytes(m.read(0), tree.expected(0), "rank 0")
    fails(2, "option sandbox=yes: not one that is known; try: sandbox=auto, on, log or off",
          tree.src, m.mnt, "-o", tree.options("sandbox=yes"))


def misbehave(tree, how, path="/nothing", mode="on"):
    """How a server ends that does something else: a status, or the number of a signal, less than 0."""
    env = shim(RFS_MISBEHAVE=how, RFS_MISBEHAVE_PATH=path)
    with Foreground(tree.src, tree.options(f"sandbox={mode}"), env=env) as m:
        same_bytes(m.read(0), tree.expected(0), "rank 0")
        m.process.send_signal(signal.SIGUSR1)
        end = m.process.wait(PATIENCE)
        eventually(lambda: not mounted(m.mnt), f"{how}: the mount is gone with its server")
        return end


def test_sandbox_ends_a_server_that_does_something_else():
    if SANITIZED:
        return
    need_landlock()
    tree = small()
    for call in ("execve", "clone", "socket", "ptrace", "mount", "umount2", "kill", "mmap", "io_uring_setup",
                 "unshare", "prlimit64", "connect", "sendto", "sendmsg", "F_SETOWN", "umask", "utimensat", "memfd_create",
                 "mprotect", "PR_SET_DUMPABLE"):
        equal(misbehave(tree, call), -signal.SIGSYS, f"the end of a server that calls {call}")
    equal(misbehave(tree, "socket of this machine"), errno.EPERM, "the system's log, when it is started anew")
    equal(misbehave(tree, "TCGETS2"), errno.ENOTTY, "isatty of glibc 2.42")
    equal(misbehave(tree, "mmap of code"), errno.EPERM, "a library that is loaded late")
    equal(misbehave(tree, "PR_GET_DUMPABLE"), 0, "a core file, whoever takes it")
    foreign = "another machine's call"
    if misbehave(tree, foreign, mode="off") == 0:  # this kernel has such calls
        equal(misbehave(tree, foreign), -signal.SIGSYS, "the end of a server, and not of one thread")
    equal(misbehave(tree, "execve", mode="log"), 0, "an execve that is only logged")
    equal(misbehave(tree, "execve", mode="off"), 0, "an execve without a sandbox")


def test_sandbox_tells_why_a_server_never_answered():
    if SANITIZED:
        return
    need_landlock()
    tree, mnt = small(), folder("mnt")
    env = shim(RFS_MISBEHAVE="execve", RFS_MISBEHAVE_AT=str(LANDLOCK))
    fails(1, "the sandbox has ended the server for a system call that it does not know; try: sandbox=log and dmesg, "
          "to see which; sandbox=off, to do without", tree.src, mnt, "-o", tree.options(), env=env)
    check(not mounted(mnt), "something is mounted")


def test_sandbox_keeps_from_other_files():
    if SANITIZED:
        return
    need_landlock()
    tree, other = small(), os.path.join(folder("other"), "file")
    with open(other, "wb") as file:
        file.write(b"x")
    denied = 13
    for act, path, want in (
        ("read", other, denied),
        ("read", "/etc/passwd", denied),
        ("read", tree.path(0), 0),
        ("write", tree.path(0), denied),
        ("make", os.path.join(tree.src, "new"), denied),
        ("remove", tree.path(0), denied),
        ("remove", other, denied),
        ("make", other + "2", denied),
        ("write", "/dev/null", 0),
        ("read", f"/proc/{os.getpid()}/status", 0),
        ("read", f"/proc/{os.getpid()}/environ", denied),
        ("read", f"/proc/{os.getpid()}/root{other}", denied),
    ):
        equal(misbehave(tree, act, path), want, f"{act} {path}")
    equal(misbehave(tree, "read", other, mode="off"), 0, "without a sandbox")


def test_sandbox_gives_no_file_powers():
    """What others could execute with the rights of the server's user: of the source's files, or in the folder of indexes."""
    if SANITIZED:
        return
    need_landlock()
    tree, cache = small(), folder("kept")
    os.chmod(cache, 0o700)
    before = os.stat(tree.path(0)).st_mode

    def act(how, path):
        with Foreground(tree.src, tree.options(f"sandbox=on,index_cache={cache}"),
                        env=shim(RFS_MISBEHAVE=how, RFS_MISBEHAVE_PATH=path)) as m:
            m.process.send_signal(signal.SIGUSR1)
            end = m.process.wait(PATIENCE)
            eventually(lambda: not mounted(m.mnt), f"{how}: the mount is gone with its server")
            return end

    equal(act("fchmod", tree.path(0)), -signal.SIGSYS, "the end of a server that makes a source set-user-ID")
    equal(os.stat(tree.path(0)).st_mode, before, "the source's mode")
    new = os.path.join(cache, "new")
    equal(act("open with 06755", new), -signal.SIGSYS, "the end of a server that makes such a file")
    equal(os.path.exists(new), False, "such a file")
    equal(act("openat2 with 0777", new), 0, "a file whose mode is in memory")
    equal(os.stat(new).st_mode & 0o7777, 0o600, "its mode, by the umask")
    equal(act("mkdir", os.path.join(cache, "folder")), errno.EACCES, "a folder")


def test_sandbox_without_a_part_of_the_kernel():
    """What can't be had is left out, and told; sandbox=on refuses to do without."""
    if SANITIZED:
        return
    need_landlock()
    tree = small()
    env = shim(RFS_WITHOUT=str(LANDLOCK))
    with Foreground(tree.src, tree.options(), env=env) as m:
        check(told(m.mnt).endswith("a filter of system calls, no Landlock"), told(m.mnt))
        equal(m.log(), "reshardfs: sandbox: Landlock is not available here (Function not implemented)\n", "the log")
        same_bytes(m.read(0), tree.expected(0), "rank 0")
    fails(1, "sandbox=on is not possible: Landlock: Function not implemented; try: sandbox=auto, to do without",
          tree.src, m.mnt, "-o", tree.options("sandbox=on"), env=env)


def seen(mnt):
    """{path: bytes} of all that is shown, but what tells of the mount itself."""
    out = {}
    for top_folder in (mnt, os.path.join(mnt, ".reshardfs", "tensors")):
        for where, folders, files in os.walk(top_folder):
            files = [] if os.path.basename(where) == ".reshardfs" else files
            for name in files:
                path = os.path.join(where, name)
                out[os.path.relpath(path, mnt)] = read_all(path)
                for attribute in os.listxattr(path):
                    os.getxattr(path, attribute)
    return out


def exported(source, name, options):
    """What later mounts have as their source."""
    out = os.path.join(folder("exports"), name)
    got = run(reshard, "export", source, out, "--no-fsync", "-o", options)
    equal(got.returncode, 0, f"exporting {name}: {got.stderr}")
    return out


def sources_of_each_kind(tree):
    """(source, options) for what is read otherwise than a tree of .ckpt files."""
    cut = tree.options()
    whole = f"src_strategy={tree.dir}/src_strategy.ckpt"
    dst = f"dst_strategy={tree.dir}/dst_strategy.ckpt"
    trained, _, converted = model()
    _, saves = two_saves()
    parts = os.path.join(folder("parts"), "saved")
    script = os.path.join(top, "tests", "golden", "save_parts.py")
    equal(run("python3", script, parts, "3", "1000").returncode, 0, "saving parts")
    one = exported(tree.src, "one", f"{whole},format=safetensors")
    return [
        (exported(tree.src, "safetensors", f"{cut},format=safetensors"), f"src_{dst[4:]},check_first"),
        (exported(tree.src, "torch", f"{cut},format=pt"), f"src_{dst[4:]},format=pt,zip_crc"),
        (exported(tree.src, "parts of hf", f"{whole},view=huggingface,file_size=100K"), f"{dst},io=cached"),
        (exported(tree.src, "unified", f"{whole},view=unified"), dst),
        (exported(tree.src, "dcp", f"{whole},view=dcp,dst_ranks=3"), f"{dst},format=safetensors"),
        (exported(tree.src, "mindformers", f"{cut},view=mindformers,dtype=float32"), dst),
        (os.path.join(one, "rank_0", "checkpoint_0.safetensors"), "dst_rules=*: whole,dst_ranks=2"),
        (tree.src, f"{cut},view=mindformers"),
        (tree.src, f"{whole},view=dcp,dst_ranks=3"),
        (trained.src, converted),
        (saves.src, saves.options("step=all")),
        (parts, "nshards=2"),
    ]


def test_every_feature_in_the_sandbox():
    """With all of its parts, each feature shows what it shows without."""
    if SANITIZED:
        return
    need_landlock()
    tree, mnt = small("usual"), folder("mnt")
    sealed = small("sealed")
    seal_tree(sealed)
    places = small("places")
    with open(os.path.join(places.dir, "map.json"), "w") as file:
        json.dump({str(r): places.path(r) for r in range(4)}, file)
    with open(os.path.join(places.dir, "names.json"), "w") as file:
        json.dump({}, file)
    cache = os.path.join(folder("kept"), "cache")
    settle()
    cases = [
        (tree.src, tree.options(more))
        for more in (
            "index_cache=no", f"index_cache={cache}", f"index_cache={cache},crc", "format=safetensors",
            "format=pt", "format=pt,zip_crc", "check=crc", "dtype=bfloat16", "io=cached", "io=direct",
            "control=show", "max_threads=1", "cache=1M",
        )
    ]
    cases += [
        (tree.src, f"src_strategy={tree.dir}/src_strategy.ckpt"),
        (tree.src, f"src_strategy={tree.dir}/src_strategy.ckpt,view=huggingface,file_size=100K"),
        (tree.src, f"src_strategy={tree.dir}/src_strategy.ckpt,view=unified"),
        (sealed.src, sealed.options(f"key_file={key_file(sealed)}")),
        (places.src, places.options(f"files={places.dir}/map.json")),
        (places.src, places.options(f"names={places.dir}/names.json")),
        *sources_of_each_kind(tree),
    ]
    for source, options in cases:
        found = {}
        for sandbox in ("off", "on"):
            with Mount(source, f"{options},sandbox={sandbox}", mnt=mnt) as m:
                try:
                    found[sandbox] = seen(m.mnt)
                except OSError as error:
                    raise AssertionError(f"{options}, sandbox={sandbox}: {error}: {told(m.mnt)}") from error
                equal(status(m.pid)["Seccomp"], "2" if sandbox == "on" else status("self")["Seccomp"], options)
        check(len(found["on"]) > 1, f"{options}: nothing was found")
        equal(sorted(found["on"]), sorted(found["off"]), f"{options}: what is shown")
        for name, content in found["on"].items():
            same_bytes(content, found["off"][name], f"{options}: {name}")
    check(os.listdir(cache), "indexes were kept")


def test_sources_elsewhere_in_the_sandbox():
    """Where links and maps lead is found out when the mount begins."""
    if SANITIZED:
        return
    need_landlock()
    tree, mnt = small(), folder("mnt")
    away = folder("away")
    want = [tree.expected(rank) for rank in range(2)]
    os.rename(os.path.join(tree.src, "rank_1"), os.path.join(away, "first"))
    os.symlink(os.path.join(away, "first"), os.path.join(tree.src, "rank_1"))
    os.rename(tree.path(2), os.path.join(away, "blob"))
    os.symlink("../../../away/blob", tree.path(2))
    beside = os.path.join(folder("beside"), "3.ckpt")
    shutil.copy(tree.path(3), beside)
    with open(os.path.join(tree.dir, "map.json"), "w") as file:
        json.dump({**{str(r): tree.path(r) for r in range(3)}, "3": beside}, file)
    for more in ("follow_links", f"follow_links,files={tree.dir}/map.json"):
        if run(reshardfs, "--check", tree.src, "-o", tree.options(more)).returncode == 2:
            more = more.replace("follow_links,", "").replace("follow_links", "cache=1M")
        with Mount(tree.src, tree.options(more, "sandbox=on"), mnt=mnt) as m:
            for rank in range(2):
                same_bytes(m.read(rank), want[rank], f"rank {rank}, {more}")


def test_an_ordinary_user_in_the_sandbox():
    """fusermount3 needs its privileges, which the server has given up: the keeper has them."""
    needs_namespace("set it up")
    need(shutil.which("setpriv"), "setpriv is missing")
    if SANITIZED:
        return
    need_landlock()
    tree, mnt, dev = small(), folder("mnt"), folder("dev")
    for spot in (mnt, tree.src, *(os.path.dirname(tree.path(r)) for r in range(4)), *map(tree.path, range(4))):
        os.chown(spot, NOBODY, NOBODY)
    script = """
        set -e
        mount --make-rprivate /
        mknod -m 666 "$4/fuse" c 10 229 && mount --bind "$4/fuse" /dev/fuse
        user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        user env HOME="$3/.." "$1" "$2" "$3" -f -o "$5,sandbox=on,index_cache=no" & server=$!
        for turn in $(seq 1200); do grep -q " $3 " /proc/self/mounts && break; sleep 0.05; done
        user cat "$3/rank_1/checkpoint_1.ckpt" >"$4/copy"
        pid=$(pgrep -f "^$1 $2 $3")
        grep -E '^(Seccomp|NoNewPrivs|CapEff):' "/proc/$pid/status" >"$4/status"
        stat -c %u "/proc/$pid/mem" >"$4/owner"
        kill "$pid"; wait "$server"
        if grep " $3 " /proc/self/mounts; then exit 7; fi
    """
    for spot in (place_of(), tree.dir):
        os.chmod(spot, 0o755)
    got = run("unshare", "-m", "sh", "-c", script, "sh", reshardfs, tree.src, mnt, dev, tree.options())
    equal(got.returncode, 0, got.stderr)
    same_bytes(read_all(os.path.join(dev, "copy")), tree.expected(1), "rank 1")
    now = dict(line.split(":\t") for line in read_all(os.path.join(dev, "status")).decode().splitlines())
    equal(now, {"NoNewPrivs": "1", "Seccomp": "2", "CapEff": "0" * 16}, "what it has given up")
    equal(read_all(os.path.join(dev, "owner")), b"0\n", "who may look into its memory")


def test_a_descriptor_as_the_mount_point():
    """/dev/fd/N: somebody else has mounted it, and unmounts it."""
    need(os.geteuid() == 0, "only root can mount by itself")
    tree, mnt = small(), folder("mnt")
    libc = ctypes.CDLL(None, use_errno=True)
    for background in (False, True):
        fd = os.open("/dev/fuse", os.O_RDWR)
        data = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
        equal(libc.mount(b"ours", mnt.encode(), b"fuse", 1, data), 0, f"mount: {os.strerror(ctypes.get_errno())}")
        command = (reshardfs, tree.src, f"/dev/fd/{fd}", "-o", tree.options(), *([] if background else ["-f"]))
        process = subprocess.Popen(command, pass_fds=[fd], stdin=subprocess.DEVNULL)
        os.close(fd)
        try:
            same_bytes(read_all(os.path.join(mnt, "rank_1", "checkpoint_1.ckpt")), tree.expected(1), "rank 1")
            if background:
                equal(process.wait(PATIENCE), 0, "the parent's status")
        finally:
            unmount(mnt)
        equal(process.wait(PATIENCE), 0, "status")
    fails(1, "/dev/fd/777: the descriptor of the mount cannot be used: Bad file descriptor",
          tree.src, "/dev/fd/777", "-o", tree.options())
    for number in (0, 1):  # /dev/null, and a pipe
        fails(1, f"/dev/fd/{number}: the descriptor is not one of /dev/fuse; try: a folder",
              tree.src, f"/dev/fd/{number}", "-o", tree.options())


def test_drop_privileges():
    """mount.fuse3 mounts and gives up everything before it starts us."""
    helper = shutil.which("mount.fuse3", path=os.environ["PATH"] + ":/sbin:/usr/sbin")
    needs_programs_of_all()
    need(os.geteuid() == 0 and helper, "there is no mount.fuse3, or no root")
    if SANITIZED:
        return
    tree, mnt = small(), folder("mnt")
    env = {**os.environ, "PATH": os.path.dirname(reshardfs) + ":" + os.environ["PATH"]}
    got = run(helper, f"reshardfs#{tree.src}", mnt, "-o", "drop_privileges," + tree.options(), env=env)
    equal((got.returncode, got.stderr), (0, ""), "mount.fuse3")
    try:
        same_bytes(read_all(os.path.join(mnt, "rank_1", "checkpoint_1.ckpt")), tree.expected(1), "rank 1")
        check("no capabilities" in told(mnt), told(mnt))
    finally:
        unmount(mnt)
    eventually(lambda: not servers(tree.src), "the server ends, whose mount point is a descriptor")
