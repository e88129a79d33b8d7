# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a module: its functions test_NAME, or those that a word of the command line is in."""
import os
import random
import shutil
import subprocess
import sys
import tempfile
import traceback

import reshard

place = tempfile.mkdtemp(prefix="reshard-python-")


class Skip(Exception):
    pass


def tool(*arguments):
    subprocess.run(["reshard", *arguments], check=True, stdout=subprocess.DEVNULL)


def path(*names):
    return os.path.join(place, *names)


def strategies():
    return {"src_strategy": path("e", "src_strategy.ckpt"), "dst_strategy": path("e", "dst_strategy.ckpt")}


def view(**more):
    return reshard.View(path("e", "src"), **strategies(), **more)


def raises(kind, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        return error
    raise AssertionError(f"{call} raised no {kind.__name__}")


def seeded():
    seed = int(os.environ.get("RFS_SEED") or random.randrange(1 << 32))
    print(f"RFS_SEED={seed}")
    return random.Random(seed)


def run(tests, set_up):
    """The exit status; prints a line for each, and their numbers."""
    set_up()
    passed = failed = skipped = 0
    for name, test in list(tests.items()):
        if not name.startswith("test_") or (sys.argv[1:] and not any(word in name for word in sys.argv[1:])):
            continue
        try:
            test()
            passed += 1
            print(f"ok {name[5:]}", flush=True)
        except Skip as why:
            skipped += 1
            print(f"SKIP {name[5:]}: {why}")
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"FAIL {name[5:]}:")
            traceback.print_exc(file=sys.stdout)
    shutil.rmtree(place, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0
