# SPDX-License-Identifier: Apache-2.0
"""Loads of tensors and random boxes by the library, against the files of the same view (check_loads.c)."""
import fcntl
import os
import subprocess
import zlib

TIMEOUT = 300


def program(name="tests/support/check_loads"):
    """Makes a program of the tests where make check has not."""
    build = os.path.abspath(os.environ.get("top_builddir", "."))
    path = os.path.join(build, name)
    if not os.access(path, os.X_OK):
        with open(os.path.join(build, "check_loads.lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other parts want it at the same time
            subprocess.run(["make", "-s", "-C", build, name], stdout=subprocess.DEVNULL, check=True)
    return path


def compared(source, options, name):
    """(whether loads are equal, what check_loads says). NAME, that of a case, makes the boxes, so that it replays them."""
    done = subprocess.run([program(), source, options, str(zlib.crc32(name.encode()))], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT, check=False)
    return done.returncode == 0, done.stdout.strip()


def differs(source, options, name):
    """None, or how loads differ."""
    equal, said = compared(source, options, name)
    return None if equal else f"loads: {said}"
