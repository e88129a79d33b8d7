# SPDX-License-Identifier: Apache-2.0
"""Runs random and fixed cases of several families, each with a Python of its own: tests/chunks, tests/rules
and tests/quantized.

A family is a module NAME_cases beside the program with FIXED, name -> function(name) that makes a case, make(seed, number)
for the random ones, and prepare(). A case has write(folder), which gives the source and options of a view,
check_oracle(folder) and check_views(folder, source, options), which give None or what differs, and describe().
The family NAME runs with the Python of RFS_TEST_NAME; RFS_TEST_NAME_SKIP says why there is none.
"""
import argparse
import fnmatch
import importlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import parts


def arguments(program, families):
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--seed", default=os.environ.get("RFS_SEED"),
                        help="of the random cases (RFS_SEED); by default another one each time")
    parser.add_argument("--count", type=int, help="of random cases of each family")
    parser.add_argument("--long", action="store_true", help="ten times as many random cases")
    parser.add_argument("--case", action="append", default=[],
                        help="only this one: a fixed name, a pattern, or FAMILY-SEED-NUMBER")
    parser.add_argument("--family", choices=list(families), help="only its cases")
    parser.add_argument("--keep", action="store_true", help="leave the folder of the cases")
    parser.add_argument("--list", action="store_true", help="name the fixed cases")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at once, in processes of their own")
    parser.add_argument("--part", metavar="K/N", help="only every N-th case, from the K-th on")
    args = parser.parse_args()
    args.program, args.families = program, families
    return args


def by_name(family, pattern):
    """[(name, function that makes the case)]"""
    found = [(n, make) for n, make in family.FIXED.items() if fnmatch.fnmatch(n, pattern)]
    said = re.fullmatch(r"[a-z]+-(.+)-(\d+)", pattern)
    if not found and said:
        found = [(pattern, lambda name: family.make(said[1], int(said[2])))]
    if not found:
        sys.exit(f"no case is called {pattern}; --list names the fixed ones")
    return found


def wanted(args, family):
    if args.case:
        return [case for pattern in args.case for case in by_name(family, pattern)]
    out = list(family.FIXED.items())
    out += [(f"{args.family}-{args.seed}-{i}", lambda n, i=i: family.make(args.seed, i)) for i in range(args.count)]
    first, step = map(int, args.part.split("/"))
    return out[first::step]


def start(family, arguments, **pipe):
    """This program with the Python of a family."""
    environment = dict(os.environ)
    if family == "mindformers":  # with the numpy that MindSpore was built with
        environment["PYTHONPATH"] = os.path.join(os.environ["RFS_MINDFORMERS"], "numpy")
    command = [os.environ[f"RFS_TEST_{family.upper()}"], "-B", *arguments, "--family", family]
    return subprocess.Popen(command, env=environment, **pipe)


def asked_families(args):
    """Those that are asked for; a case is named after its family."""
    named = {case.split("-")[0] for case in args.case}
    return [f for f in args.families if args.family in (None, f) and (not named or f in named)]


def in_parts(args):
    """Runs the cases in several processes, as neither MindSpore nor torch can be forked."""
    counts = [0, 0, 0]
    jobs = 1 if args.case else args.jobs
    for family in asked_families(args):
        missing = os.environ.get(f"RFS_TEST_{family.upper()}_SKIP")
        if missing:
            print(f"SKIP {args.program.split('/')[1]}-{family}: {missing}")
            counts[2] += 1
            continue
        processes = [(f"part {k} of {jobs} of {family}",
                      start(family, [*sys.argv, "--seed", args.seed, "--part", f"{k}/{jobs}"], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)) for k in range(jobs)]
        counts = [a + b for a, b in zip(counts, parts.run(processes))]
    print("{} passed, {} failed, {} skipped".format(*counts), flush=True)
    return 1 if counts[1] or not any(counts) else 0


class Runner:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.passed = self.failed = 0

    def run(self, name, maker):
        start = time.monotonic()
        folder = os.path.join(self.folder, re.sub(r"[^\w.-]", "_", name))
        os.makedirs(folder)
        case, problem = None, "it was not compared to its end"
        try:
            case = maker(name)
            source, options = case.write(folder)
            problem = case.check_oracle(folder) or case.check_views(folder, source, options)
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
            print(f"  replay: {self.args.program} --case '{name}' --keep", flush=True)
            return
        self.passed += 1
        print(f"ok   {name} ({seconds:.2f} s)", flush=True)


def list_cases(family):
    for name, make in family.FIXED.items():
        print(f"{name}: {(make.__doc__ or '').strip()}")
    return 0


def run_part(args):
    if args.count is None:
        args.count = args.families[args.family] * (10 if args.long else 1)
    family = importlib.import_module(f"{args.family}_cases")
    if args.list:
        return list_cases(family)
    family.prepare()
    folder = tempfile.mkdtemp(prefix="reshardfs-cases-")
    os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
    runner = Runner(args, folder)
    try:
        for name, maker in wanted(args, family):
            runner.run(name, maker)
    finally:
        if args.keep:
            print(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{runner.passed} passed, {runner.failed} failed, 0 skipped", flush=True)
    return 1 if runner.failed else 0


def main(program, families):
    """The exit status. PROGRAM: what started it, for its messages; FAMILIES: name -> count of random cases by default."""
    args = arguments(program, families)
    if args.part:
        return run_part(args)
    if args.list:
        asked = [f for f in asked_families(args) if not os.environ.get(f"RFS_TEST_{f.upper()}_SKIP")]
        return max([start(f, [*sys.argv, "--part", "0/1"]).wait() for f in asked], default=0)
    args.seed = args.seed or str(random.SystemRandom().randrange(1 << 32))
    print(f"seed {args.seed}; a random case replays alone with --case FAMILY-SEED-NUMBER, all with RFS_SEED", flush=True)
    return in_parts(args)

