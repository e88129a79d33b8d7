# SPDX-License-Identifier: Apache-2.0
"""Runs the cases: see README.md. Started by ./run, in the virtual environment of MindSpore."""
import argparse
import fnmatch
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "interop")]

import oracle  # noqa: E402

oracle.quiet()

import compared  # noqa: E402
import mindformers_cases  # noqa: E402

# Each has FIXED, name -> function(name) that makes a Case, and make(seed, number) for the random ones.
FAMILIES = {"mindformers": mindformers_cases}


def arguments():
    parser = argparse.ArgumentParser(prog="tests/boxes/run")
    parser.add_argument("--seed", default=os.environ.get("RFS_SEED"),
                        help="of the random cases (RFS_SEED); by default another one each time")
    parser.add_argument("--count", type=int, default=100, help="of random cases of each family")
    parser.add_argument("--case", action="append", default=[],
                        help="only this one: a fixed name, a pattern, or FAMILY-SEED-NUMBER")
    parser.add_argument("--family", choices=sorted(FAMILIES), help="only its cases")
    parser.add_argument("--keep", action="store_true", help="leave the folder of the cases")
    parser.add_argument("--list", action="store_true", help="name the fixed cases")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at once, in processes of their own")
    parser.add_argument("--part", metavar="K/N", help="only every N-th case, from the K-th on")
    return parser.parse_args()


def families(args):
    return {n: f for n, f in FAMILIES.items() if args.family in (None, n)}


def by_name(pattern):
    """[(name, function that makes the case)]"""
    found = [(n, make) for f in FAMILIES.values() for n, make in f.FIXED.items()
             if fnmatch.fnmatch(n, pattern)]
    said = re.fullmatch(r"([a-z]+)-(.+)-(\d+)", pattern)
    if not found and said and said[1] in FAMILIES:
        found = [(pattern, lambda name: FAMILIES[said[1]].make(said[2], int(said[3])))]
    if not found:
        sys.exit(f"no case is called {pattern}; --list names the fixed ones")
    return found


def wanted(args):
    if args.case:
        return [case for pattern in args.case for case in by_name(pattern)]
    out = []
    for name, family in families(args).items():
        out += family.FIXED.items()
        out += [(f"{name}-{args.seed}-{i}", lambda n, f=family, i=i: f.make(args.seed, i))
                for i in range(args.count)]
    first, step = map(int, args.part.split("/")) if args.part else (0, 1)
    return out[first::step]


def in_parts(args):
    """Runs the cases in several processes, since MindSpore is none that can be forked; prints what each has printed."""
    counts = [0, 0, 0]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [open(os.path.join(folder, str(k)), "w+") for k in range(args.jobs)]
        command = [sys.executable, "-B", *sys.argv, "--seed", args.seed, "--part"]
        parts = [subprocess.Popen([*command, f"{k}/{args.jobs}"], stdout=output, stderr=subprocess.STDOUT)
                 for k, output in enumerate(outputs)]
        for k, part in enumerate(parts):
            status = part.wait()
            outputs[k].seek(0)
            text = outputs[k].read()
            outputs[k].close()
            said = re.search(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", text, re.M)
            print(text.replace(said[0] + "\n", "") if said else text, end="")
            if not said:
                print(f"FAIL part {k} of {args.jobs}: it did not get to its end: exit {status}")
            counts = [a + int(b) for a, b in zip(counts, said.groups() if said else (0, 1, 0))]
    print("{} passed, {} failed, {} skipped".format(*counts), flush=True)
    return 1 if counts[1] or not counts[0] else 0


class Runner:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.passed = self.failed = 0

    def run(self, name, maker):
        start = time.monotonic()
        folder = os.path.join(self.folder, re.sub(r"[^\w.-]", "_", name))
        os.makedirs(folder)
        case = problem = None
        try:
            case = maker(name)
            source, options = case.write(folder)
            problem = case.check_oracle(folder) or compared.check(case, folder, source, options)
        except Exception:  # noqa: BLE001 - a fault of the generator is a failure too
            problem = traceback.format_exc().strip()
        finally:
            if not self.args.keep:
                shutil.rmtree(folder, ignore_errors=True)
            self.report(name, case, problem, time.monotonic() - start)

    def report(self, name, case, problem, seconds):
        if problem:
            self.failed += 1
            print(f"FAIL {name}: {problem}")
            if case:
                print(case.describe())
            print(f"  replay: tests/boxes/run --case '{name}' --keep", flush=True)
            return
        self.passed += 1
        print(f"ok   {name} ({seconds:.2f} s)", flush=True)


def main():
    args = arguments()
    if args.list:
        for family in families(args).values():
            for name, make in family.FIXED.items():
                print(f"{name}: {(make.__doc__ or '').strip()}")
        return 0
    if not args.case and not args.part:
        args.seed = args.seed or str(random.SystemRandom().randrange(1 << 32))
        print(f"seed {args.seed}; a random case replays alone with --case FAMILY-SEED-NUMBER, all with RFS_SEED",
              flush=True)
        return in_parts(args)
    oracle.ignore_free_memory()
    folder = tempfile.mkdtemp(prefix="reshardfs-boxes-")
    os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
    runner = Runner(args, folder)
    try:
        for name, maker in wanted(args):
            runner.run(name, maker)
    finally:
        if args.keep:
            print(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{runner.passed} passed, {runner.failed} failed, 0 skipped", flush=True)
    return 1 if runner.failed else 0


sys.exit(main())
