# SPDX-License-Identifier: Apache-2.0
"""Running mounts and tests: what was mounted is unmounted, and each test ends, whatever happens."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import usage

top = os.environ.get("top_srcdir") or os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
)
build = os.environ.get("top_builddir") or "."
reshardfs = os.path.abspath(os.environ.get("RESHARDFS") or os.path.join(build, "reshardfs"))
reshard = os.path.abspath(os.environ.get("RESHARD") or os.path.join(build, "reshard"))

SLOWER = int(os.environ.get("RFS_TEST_SLOWER") or 1)  # how often slower this machine is than usual, because it is emulated
LIMIT = 300 * SLOWER  # seconds for one test
PATIENCE = 60 * SLOWER  # seconds for what should take none, on a machine however busy
GRACE = 20 * SLOWER  # seconds for processes of a test that is over

root = None  # folder of this process's tests
place = None  # folder of the test


class Skip(Exception):
    pass


def need(condition, why):
    if not condition:
        raise Skip(why)


def needs_strace_of_a_mount():
    need(shutil.which("strace"), "strace is missing")
    need(os.geteuid() == 0, "under strace fusermount3 has no more rights than its user, so only root can mount")


def needs_programs_of_all():
    """For tests that start a program as another user: root's own folder may be closed to others."""
    where = os.path.dirname(os.path.realpath(reshardfs))
    while where != "/":
        need(os.stat(where).st_mode & 0o001, f"other users cannot reach {where}, where the programs are")
        where = os.path.dirname(where)


def needs_to_look_into_a_server_with_a_key():
    need(os.geteuid() == 0, "only root may look into the process")


def to_look_into(options):
    """Options of a server of which the tests read what only its user may, in /proc: in its sandbox it belongs to root."""
    return options if os.geteuid() == 0 else options + ",sandbox=off"


def needs_namespace(what):
    """For tests that mount in a namespace of their own. In a chroot whose root is no mount point, what they mount could
    reach the other namespaces."""
    need(os.geteuid() == 0 and shutil.which("unshare"), f"only root can {what}")
    need(any(m[1] == "/" for m in mounts()), "the root folder is no mount point")


def sanitized(*kinds):
    """Whether the program has a sanitizer, or one of these kinds: then it has no sandbox unless it is asked for, locks no
    memory and takes more of it."""
    program = read_all(reshardfs)
    return any(f"__{kind}_init".encode() in program for kind in kinds or ("asan", "tsan"))


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def equal(got, want, what):
    if got != want:
        shown = [repr(x)[:1500] for x in (got, want)]
        raise AssertionError(f"{what}: got {shown[0]}, want {shown[1]}")


def same_bytes(got, want, what):
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise AssertionError(f"{what}: {len(got)} bytes, want {len(want)}; they differ from offset {at}")


def run(*command, timeout=LIMIT, **how):
    how.setdefault("stdin", subprocess.DEVNULL)
    how.setdefault("text", True)
    return subprocess.run(command, capture_output=True, timeout=timeout, **how)


def preloaded(*source, **env):
    """The environment in which a program has the functions of a C file below tests/ instead of its own."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    need(compiler, "there is no C compiler")
    library = os.path.join(folder("lib"), source[-1].replace(".c", ".so"))
    if not os.path.exists(library):
        flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-w", "-fPIC", "-shared"]
        got = run(compiler, *flags, os.path.join(top, "tests", *source), "-o", library, "-ldl")
        equal(got.returncode, 0, f"compiling: {got.stderr}")
    asan = os.environ["ASAN_OPTIONS"] + ":verify_asan_link_order=0"
    return {**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": asan, **env}


def eventually(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.01)


def fails(want_status, want_error, *arguments, **how):
    """Runs reshardfs; wants this status and exactly this one line."""
    got = run(reshardfs, *arguments, **how)
    equal((got.returncode, got.stderr), (want_status, f"reshardfs: error: {want_error}\n"), "status, stderr")
    equal(got.stdout, "", "stdout")


def folder(name):
    path = os.path.join(place, name)
    os.makedirs(path, exist_ok=True)
    return path


def read_all(path):
    with open(path, "rb") as file:
        return file.read()


def mounts():
    """(source, mount point, type, super options) of what is mounted."""
    out = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            first, last = line.split(" - ", 1)
            kind, source, options = last.split(" ", 2)
            spot, how = first.split(" ")[4:6]
            decode = lambda s: re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), s)
            out.append((decode(source), decode(spot), kind, set(how.split(",") + options.strip().split(","))))
    return out


def mounted(path):
    return any(m[1] == path for m in mounts())


def servers(mnt):
    """Processes of reshardfs that serve MNT."""
    out = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = read_all(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
        except OSError:
            continue
        if mnt in words and "reshardfs" in os.path.basename(words[0]):
            out.append(int(pid))
    return out


def unmount(mnt):
    """Pages that a killed reader still waits for keep a mount busy until their requests are answered."""
    end = time.monotonic() + PATIENCE
    while True:
        got = run("fusermount3", "-u", mnt)
        if "busy" not in got.stderr or time.monotonic() > end:
            break
        time.sleep(0.05)
    equal((got.returncode, got.stderr), (0, ""), f"fusermount3 -u {mnt}")


class Mount:
    """A mount in the background, from `with` to its end."""

    def __init__(self, source, options, *flags, mnt=None, env=None):
        self.source, self.options, self.flags, self.env = source, options, flags, env
        self.mnt = mnt or folder("mnt")

    def __enter__(self):
        self.start()
        return self

    def start(self):
        got = run(reshardfs, self.source, self.mnt, "-o", self.options, *self.flags, env=self.env)
        equal((got.returncode, got.stdout), (0, ""), f"mounting, with {got.stderr!r}: status, stdout")
        check(mounted(self.mnt), "the program has ended well, but nothing is mounted")
        self.stderr = got.stderr
        (self.pid,) = servers(self.mnt)

    def file(self, rank, prefix="checkpoint_"):
        return os.path.join(self.mnt, f"rank_{rank}", f"{prefix}{rank}.ckpt")

    def read(self, rank):
        return read_all(self.file(rank))

    def stop(self):
        unmount(self.mnt)
        eventually(lambda: not servers(self.mnt), "the server ends after the unmount")

    def __exit__(self, kind, error, trace):
        if kind in (None, Skip):
            self.stop()


class Foreground:
    """A mount with -f; its log is in self.log(), and stop() tells its exit status."""

    def __init__(self, source, options, *flags, before=(), mnt=None, env=None):
        self.mnt = mnt or folder("mnt")
        self.path = os.path.join(place, "log")
        if any("inject=" in word for word in before):
            # strace makes a call fail by making it another one, which the sandbox lets nobody do.
            env = {**(env or os.environ), "RESHARDFS_SANDBOX": "off"}
        if "strace" in before:  # leaks can't be looked for under it
            env = {**(env or os.environ), "ASAN_OPTIONS": os.environ["ASAN_OPTIONS"] + ":detect_leaks=0"}
        command = [*before, reshardfs, source, self.mnt, "-f", "-o", options, *flags]
        with open(self.path, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env=env
            )
        eventually(lambda: mounted(self.mnt) or self.process.poll() is not None, "it is mounted")
        check(mounted(self.mnt), f"not mounted: {self.log()}")
        try:
            os.stat(self.mnt)
        except OSError as error:
            check(False, f"{error}: the server ended with {self.process.wait(PATIENCE)}: {self.log()}")

    file = Mount.file
    read = Mount.read

    def log(self):
        with open(self.path, errors="replace") as file:
            return file.read()

    def stop(self, how=None):
        if how is None:
            unmount(self.mnt)
        else:
            self.process.send_signal(how)
        return self.process.wait(PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind in (None, Skip) and self.process.poll() is None:
            equal(self.stop(), 0, "exit status")


def lost_processes():
    """Those that have something of the test's folder on their command line."""
    lost = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = read_all(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
        except OSError:
            continue
        if int(pid) != os.getpid() and any(w.startswith(place + "/") for w in words):
            lost.append((pid, os.path.basename(words[0])))
    return lost


def clean_up():
    """Ends what a test left behind; returns what there was. What is about to end has a few seconds."""
    left = [m[1] for m in mounts() if m[1].startswith(place + "/")]
    for spot in reversed(left):
        subprocess.run(["umount", "-l", spot], capture_output=True) if os.geteuid() == 0 else None
        subprocess.run(["fusermount3", "-uz", spot], capture_output=True)
    end = time.monotonic() + GRACE
    while lost_processes() and time.monotonic() < end:
        time.sleep(0.1)
    lost = lost_processes()
    for pid, _ in lost:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
    return [f"still mounted: {m}" for m in left] + [f"still running: {p}, {name}" for p, name in lost]


def sanitizer_reports():
    out = []
    for name in os.listdir(root):
        if name.startswith("sanitizer."):
            with open(os.path.join(root, name), errors="replace") as file:
                out.append(file.read()[:6000])
            os.unlink(os.path.join(root, name))
    return out


def on_alarm(number, frame):
    raise AssertionError(f"not done after {LIMIT} s")


def run_one(name, test):
    global place
    place = tempfile.mkdtemp(prefix=name[:24] + "-", dir=root)  # the path of a socket has 107 bytes
    os.chmod(place, 0o755)
    verdict, why = "ok", ""
    begin = time.monotonic()
    signal.alarm(LIMIT)
    try:
        test()
    except Skip as skip:
        verdict, why = "SKIP", str(skip)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)
        lines = [f"{os.path.basename(f.filename)}:{f.lineno}" for f in where if f.name != "run_one"]
        verdict, why = "FAIL", f"{type(error).__name__}: {error} ({' > '.join(lines)})"
    signal.alarm(0)
    left = clean_up()
    reports = sanitizer_reports()
    if verdict != "FAIL" and (left or reports):
        verdict, why = "FAIL", "; ".join(left + ["a sanitizer has reported"] * bool(reports))
    took = f" ({time.monotonic() - begin:.1f} s)" if verdict == "ok" else ""
    # One write, because other workers write, too.
    text = "\n".join([f"{verdict} {name}{took}{': ' if why else ''}{why}", *reports, ""])
    os.write(sys.stdout.fileno(), text.encode(errors="backslashreplace"))
    shutil.rmtree(place, ignore_errors=True)
    return verdict


def alone(test):
    """Marks a test that no other test may run beside, because it measures or limits what they share."""
    test.alone = True
    return test


def waiting(module):
    """Marks the tests of a module that sleep most of the time: they run beside as many others as are run without them."""
    for name, test in vars(module).items():
        if name.startswith("test_") and callable(test):
            test.waits = True


def begin_worker():
    """A folder for the tests of this process, and for what sanitizers find in the programs that they start."""
    global root
    root = tempfile.mkdtemp(prefix="reshardfs-test-")
    os.chmod(root, 0o755)
    for kind in ("ASAN", "UBSAN", "LSAN", "TSAN"):
        given = os.environ.get(kind + "_OPTIONS")
        path = os.path.join(root, "sanitizer." + kind.lower())
        os.environ[kind + "_OPTIONS"] = (given + ":" if given else "") + f"log_path={path}"
    os.environ["TSAN_OPTIONS"] += ":atexit_sleep_ms=0"  # or a process that goes to the background stays for a second
    os.environ["XDG_CACHE_HOME"] = os.path.join(root, "cache")


def run_some(tests, turns, verdicts):
    """In a process of its own: takes tests in turn, one byte of TURNS for each, and writes a letter for each verdict."""
    begin_worker()
    try:
        while turn := os.read(turns, 2):
            name, test = tests[int.from_bytes(turn, "big")]
            os.write(verdicts, run_one(name, test)[:1].encode())
    finally:
        shutil.rmtree(root, ignore_errors=True)


def start_beside(tests, jobs):
    """Starts tests in JOBS processes, for end_beside."""
    turns, put = os.pipe()
    get, verdicts = os.pipe()
    os.write(put, b"".join(i.to_bytes(2, "big") for i in range(len(tests))))
    os.close(put)
    sys.stdout.flush()
    workers = []
    for _ in range(min(jobs, len(tests))):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(get)
                run_some(tests, turns, verdicts)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        workers.append(pid)
    os.close(turns)
    os.close(verdicts)
    return get, workers


def end_beside(started):
    """The first letters of their verdicts. A process that dies leaves some out."""
    get, workers = started
    with os.fdopen(get, "rb") as file:
        letters = file.read().decode()
    for pid in workers:
        os.waitpid(pid, 0)
    return letters


def run_all(tests, chosen, jobs=None):
    """Most tests wait half of the time: JOBS of them, RFS_TEST_JOBS, or twice the processors, run at once."""
    jobs = int(os.environ.get("RFS_TEST_JOBS") or jobs or 2 * (os.cpu_count() or 1))
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    signal.signal(signal.SIGALRM, on_alarm)
    # Who runs the tests may ignore these (a shell does for what it puts in the background), and what is
    # ignored here is ignored by every program started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    tests = [(n, f) for n, f in tests if not chosen or any(word in n for word in chosen)]
    if not tests:
        return usage.fit_nothing(chosen)
    quiet = [t for t in tests if hasattr(t[1], "alone")]
    waits = [t for t in tests if hasattr(t[1], "waits") and t not in quiet]
    others = [t for t in tests if t not in waits and t not in quiet]
    letters = "".join(map(end_beside, [start_beside(waits, jobs), start_beside(others, jobs)]))
    letters += end_beside(start_beside(quiet, 1))
    passed, skipped = letters.count("o"), letters.count("S")
    failed = len(tests) - passed - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
