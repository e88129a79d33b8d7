# SPDX-License-Identifier: Apache-2.0
"""What the tests of exports share: the command, trees of files compared, and manifests read by other means."""
import ctypes
import ctypes.util
import json
import os
import shutil

from harness import *

MANIFEST = "reshard-manifest.json"


def place(name="out"):
    """A folder that is not there yet."""
    return os.path.join(folder("to"), name)


def words(source, target, options, *more):
    return [reshard, "export", source, target, "-o", options, *more]


def slowed(calls, microseconds):
    """What to put before a command so that each of these calls takes longer; the process is the command's own."""
    need(shutil.which("strace"), "strace is missing")
    return ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e",
            f"inject={calls}:delay_enter={microseconds}"]


def under_strace():
    """No search for leaks, which cannot be made then."""
    return {**os.environ, "ASAN_OPTIONS": os.environ["ASAN_OPTIONS"] + ":detect_leaks=0"}


def export(tree, target, *more, options=(), status=0, **how):
    """Exports a forge.Tree; wants the status, and gives what was printed."""
    got = run(*words(tree.src, target, tree.options(*options), *more), **how)
    equal(got.returncode, status, f"status, with {got.stderr!r}")
    if status == 0:
        equal(got.stderr, "", "stderr")
    return got


def refused(tree, target, error, *more, options=(), status=1):
    """One line, and nothing on the standard output."""
    got = export(tree, target, *more, options=options, status=status)
    equal((got.stdout, got.stderr), ("", f"reshard: error: {error}\n"), "stdout, stderr")


def contents(where):
    """{path: bytes} of all files below, but for manifests; a link or a folder without files counts as well."""
    out = {}
    for base, folders, names in os.walk(where):
        for name in names + [f for f in folders if not os.listdir(os.path.join(base, f))]:
            path = os.path.join(base, name)
            key = os.path.relpath(path, where)
            if name.lstrip(".").startswith("reshard-manifest"):
                continue
            out[key] = os.readlink(path) if os.path.islink(path) else None if os.path.isdir(path) else read_all(path)
    return out


def names(where):
    """What is there of it, while somebody writes: (complete, partial)."""
    out = [], []
    for base, _, found in os.walk(where):
        for name in found:
            if not name.lstrip(".").startswith("reshard-manifest"):
                out[name.startswith(".")].append(os.path.relpath(os.path.join(base, name), where))
    return out


def same_files(got, want, what):
    equal(sorted(got), sorted(want), f"{what}: names")
    for name, data in want.items():
        same_bytes(got[name], data, f"{what}: {name}")


def wanted(tree, prefix="checkpoint_"):
    return {f"rank_{r}/{prefix}{r}.ckpt": tree.expected(r) for r in range(tree.dst_n)}


def is_right(tree, target):
    same_files(contents(target), wanted(tree), "exported")


def manifest(target, name=MANIFEST):
    return json.loads(read_all(os.path.join(target, name)))


def events(text):
    return [json.loads(line) for line in text.splitlines()]


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def xxh3_128(data):
    """As the library says it, in the order in which xxhsum writes it."""
    name = ctypes.util.find_library("xxhash")
    need(name, "there is no libxxhash")
    function = ctypes.CDLL(name).XXH3_128bits
    function.restype = Hash128
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    out = function(data, len(data))
    return f"{out.high:016x}{out.low:016x}"
