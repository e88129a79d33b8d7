# SPDX-License-Identifier: Apache-2.0
"""One mount of the built reshardfs, and what is asked of it."""
import os
import subprocess
import time

import loading
import values

TIMEOUT = 300
place = str  # where a source or a strategy is: a path, or its URL with --objects
LOAD_ALL = 2 << 20  # bytes of a case's files


def escape(text):
    """An option's value: commas are written as backslash and comma."""
    return text.replace(",", "\\,")


class Mount:
    """with Mount(program, built): the tree is at .path, or .error says why there is none."""

    def __init__(self, program, built):
        self.program, self.built = program, built
        self.path = os.path.join(built.folder, "mnt")
        self.error = None

    def command(self, *more):
        more_options = self.built.case.options
        src, dst = (None if f"{side}_rules" in more_options else path
                    for side, path in zip(("src", "dst"), self.built.given))
        options = [f"prefix={escape(self.built.case.prefix)}"]
        options += [f"{k}={escape(place(v))}" for k, v in (("src_strategy", src), ("dst_strategy", dst))
                    if v]
        options += [k if v is None else f"{k}={escape(v)}"
                    for k, v in more_options.items()]
        if self.built.case.noise:  # by its strategy they are equal
            options.append("trust_strategy")
        return [self.program, *more, place(self.built.src_dir), self.path, "-o", ",".join(options)]

    def loads_differ(self):
        *_, source, _, _, options = self.command()
        return loading.differs(source, options, self.built.case.name)

    def run(self, *more):
        return subprocess.run(self.command(*more), stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT,
                              check=False)

    def __enter__(self):
        os.makedirs(self.path, exist_ok=True)
        done = self.run()
        if done.returncode:
            self.error = f"exit {done.returncode}: {done.stdout.strip()}"
        return self

    def __exit__(self, *exc):
        if self.error and not os.path.ismount(self.path):
            return
        for wait in (0, 0.1, 0.3, 1, 2, 5, 10, 20):
            time.sleep(wait)
            done = subprocess.run(["fusermount3", "-u", self.path], check=False,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if done.returncode == 0:
                return
        subprocess.run(["fusermount3", "-u", "-z", self.path], check=False)


def listing(root):
    found = []
    for folder, _, names in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(found)


def same_file(got, want):
    """None, or what differs."""
    sizes = os.stat(got).st_size, os.stat(want).st_size
    if sizes[0] != sizes[1]:
        return f"{sizes[0]} bytes instead of {sizes[1]}"
    at = 0
    with open(got, "rb") as a, open(want, "rb") as b:
        while True:
            x, y = a.read(1 << 20), b.read(1 << 20)
            if x != y:
                first = next((i for i, (p, q) in enumerate(zip(x, y)) if p != q),
                             min(len(x), len(y)))
                return f"byte {at + first} differs"
            if not x:
                return None
            at += len(x)


def loads(path, wanted):
    """Whether load_checkpoint gives these (name, Value), in order; None, or what differs."""
    import mindspore as ms
    loaded = ms.load_checkpoint(path)
    if list(loaded) != [n for n, _ in wanted]:
        return f"load_checkpoint gives {list(loaded)}"
    for name, value in wanted:
        if value.dtype == "map":
            continue  # its bytes are compared; load_checkpoint gives bare arrays
        dtype, shape, content = values.loaded_bytes(loaded[name])
        expect = value.data.encode("utf-32-le") if value.dtype == "str" else value.data.tobytes()
        if dtype != value.dtype or content != expect:
            return f"load_checkpoint gives another {name}"
        if value.dtype != "str" and shape != tuple(value.shape):
            return f"load_checkpoint gives {name} of shape {shape}"
    return None


def check(program, built):
    """Mounts a built case and compares everything. None when all is well, else the failure."""
    if built.kind == "refuse":
        return check_refusal(program, built)
    with Mount(program, built) as mount:
        if mount.error:
            return f"does not mount: {mount.error}"
        try:
            return compare(mount, built) or mount.loads_differ() or doubts(mount, built.case.noise)
        except OSError as e:
            done = mount.run("--check")
            return f"{e}; --check says: {done.stdout.strip()}"


def doubts(mount, noise):
    """None unless ranks are said to contradict a right strategy."""
    said = "" if noise else mount.run("--check").stdout
    return f"a right strategy is doubted: {said.strip()}" if "contradict it" in said else None


def compare(mount, built):
    got, want = listing(mount.path), listing(built.expected)
    if got != want:
        return f"missing {sorted(set(want) - set(got))[:4]}, extra {sorted(set(got) - set(want))[:4]}"
    for name in want:
        problem = same_file(os.path.join(mount.path, name), os.path.join(built.expected, name))
        if problem:
            return f"{name}: {problem}" + which(mount, built, name)
    case = built.case
    if not case.loadable:
        return None
    for name in loaded_files(built, want):
        path = os.path.join(mount.path, name)
        if built.wanted is None:
            import mindspore as ms
            ms.load_checkpoint(path)
            continue
        problem = loads(path, built.wanted[name])
        if problem:
            return f"{name}: {problem}"
    return None


def loaded_files(built, names):
    """Those that MindSpore loads through the mount: all, or one of a large case, by its name."""
    total = sum(os.stat(os.path.join(built.expected, name)).st_size for name in names)
    if total <= LOAD_ALL:
        return names
    return [names[sum(map(ord, built.case.name)) % len(names)]]


def which(mount, built, name):
    """The parameter at which a file goes wrong, for the reader of a failure."""
    import mindspore as ms
    try:
        got = ms.load_checkpoint(os.path.join(mount.path, name))
        want = ms.load_checkpoint(os.path.join(built.expected, name))
    except Exception as e:  # noqa: BLE001 - any failure to load is the answer
        return f" (does not load: {str(e).strip().splitlines()[0]})"
    if list(got) != list(want):
        return f" (order {list(got)} instead of {list(want)})"
    wrong = [n for n in want if values.loaded_bytes(got[n]) != values.loaded_bytes(want[n])]
    return f" (parameters {', '.join(wrong)})"


def check_refusal(program, built, mount_class=Mount):
    """--check must say why: the first error has the fragment; no file may be made up."""
    fragment = built.case.refusal
    with mount_class(program, built) as mount:
        if not mount.error:
            bad = 0
            for name in listing(mount.path):
                try:
                    os.stat(os.path.join(mount.path, name))
                except OSError:
                    bad += 1
            if not bad:
                return "mounts, and every file is answered for"
        done = mount.run("--check")
        lines = [x for x in done.stdout.splitlines() if "error:" in x]
        if done.returncode != built.case.exit_code:
            return f"--check exits with {done.returncode}: {done.stdout.strip()}"
        if not lines or fragment not in lines[0]:
            return f"'{fragment}' is not in: {done.stdout.strip()}"
    return None
