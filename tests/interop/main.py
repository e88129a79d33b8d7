# SPDX-License-Identifier: Apache-2.0
"""Runs the cases: see README.md. Started by ./run, in the virtual environment of MindSpore."""
import argparse
import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import oracle  # noqa: E402

oracle.quiet()

import build  # noqa: E402
import cases  # noqa: E402
import mounting  # noqa: E402
import needed  # noqa: E402
import parts  # noqa: E402
import registry  # noqa: E402
import serving  # noqa: E402
import story  # noqa: E402

LARGE = ("chunks-in", "chunks-out")
# Left out with --objects: there MindSpore's choice depends on the numbers in the path, also in the folders above.
BY_PATH = ("safetensors-choice",)
LARGE_BYTES = 5 << 30  # of disk: the source, MindSpore's output and what it needs on the way


def arguments():
    parser = argparse.ArgumentParser(prog="tests/interop/run")
    parser.add_argument("--build", default=os.environ.get("top_builddir", "."),
                        help="the build folder, with reshardfs in it")
    parser.add_argument("--seed", help="of the random cases; by default another one each time")
    parser.add_argument("--count", type=int, default=150, help="of random cases for each seed")
    parser.add_argument("--case", action="append", default=[],
                        help="only this one: a fixed name, a pattern, or random-SEED-NUMBER")
    parser.add_argument("--long", action="store_true",
                        help="RFS_INTEROP_SEEDS (8) seeds instead of one")
    parser.add_argument("--keep", action="store_true", help="leave the folder of the cases")
    parser.add_argument("--list", action="store_true", help="name the small fixed cases")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at once, in processes of their own")
    parser.add_argument("--part", metavar="K/N", help="only every N-th case, from the K-th on")
    parser.add_argument("--objects", action="store_true",
                        help="sources and strategies by a web server (nginx)")
    parser.add_argument("--model-only", action="store_true",
                        help="no mount: MindSpore against the model")
    return parser.parse_args()


def wanted(args):
    """[(name, function that makes the case; None for a story)]"""
    if args.case:
        out = []
        for name in args.case:
            found = cases.by_name(name) + [(n, None) for n in cases.stories(name)]
            if not found:
                sys.exit(f"no case is called {name}; --list names the fixed ones")
            out += found
        return out
    seeds = [args.seed]
    if args.long:
        seeds += [f"{args.seed}x{i}" for i in range(1, int(os.environ.get("RFS_INTEROP_SEEDS", "8")))]
    first, step = map(int, args.part.split("/")) if args.part else (0, 1)
    found = cases.everything(seeds, args.count) + [(n, None) for n in cases.stories()]
    return [f for f in found if not args.objects or f[0] not in BY_PATH][first::step]


def in_parts(args):
    """Runs the cases in several processes, since MindSpore is none that can be forked; prints what each has printed."""
    command = [sys.executable, "-B", *sys.argv, "--seed", args.seed, "--part"]
    counts = parts.run([(f"part {k} of {args.jobs}",
                         subprocess.Popen([*command, f"{k}/{args.jobs}"], text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT)) for k in range(args.jobs)])
    print("{} passed, {} failed, {} skipped".format(*counts), flush=True)
    return 1 if counts[1] or not counts[0] else 0


class Runner:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.program = os.path.abspath(
            os.environ.get("RESHARDFS") or os.path.join(args.build, "reshardfs"))
        os.environ.setdefault("RESHARD", os.path.join(os.path.dirname(self.program), "reshard"))
        os.environ.setdefault("top_builddir", args.build)
        self.passed = self.failed = self.skipped = 0
        self.kinds = {}

    def run(self, name, maker):
        if name in LARGE and shutil.disk_usage(self.folder).free < LARGE_BYTES:
            print(f"SKIP interop-{name}: less than {LARGE_BYTES >> 30} GiB of free disk", flush=True)
            self.skipped += 1
            return
        start = time.monotonic()
        case = built = problem = None
        try:
            if maker is None:
                case = built = self.tell(name)
                problem = story.check(self.program, built)
                return
            case = maker()
            built = build.Built(case, os.path.join(self.folder, name))
            built.write()
            built.expect(model_writes=not self.args.model_only)
            problem = built.problem
            if not problem and not self.args.model_only:
                problem = needed.check(needed.program_in(self.args.build), built)
            if not problem and not self.args.model_only:
                problem = mounting.check(self.program, built)
        except Exception:  # noqa: BLE001 - a fault of the generator is a failure too
            problem = traceback.format_exc().strip()
        finally:
            if not self.args.keep:
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
            self.report(name, case, built, problem, time.monotonic() - start)

    def tell(self, name):
        folder = os.path.join(self.folder, name)
        os.makedirs(folder)
        note = (registry.STORIES[name].__doc__ or "").strip()
        return story.Told(name, registry.tell(name, folder), folder, note)

    def report(self, name, case, built, problem, seconds):
        if problem:
            self.failed += 1
            print(f"FAIL {name}: {problem}")
            if case:
                print(case.describe())
            if built and built.why:
                print(f"  kind {built.kind}: {built.why}")
            print(f"  replay: tests/interop/run --case '{name}' --keep", flush=True)
            return
        self.passed += 1
        kind = built.kind + (", noise" if case.noise else "")
        self.kinds[built.kind] = self.kinds.get(built.kind, 0) + 1
        print(f"ok   {name} ({kind}, {seconds:.2f} s)", flush=True)

    def finish(self):
        kinds = ", ".join(f"{n} {k}" for k, n in sorted(self.kinds.items()))
        print(f"expectations: {kinds}")
        print("rank lists: " + ", ".join(f"{n} {k}" for k, n in needed.COUNTS.items()))
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 1 if self.failed else 0


def main():
    args = arguments()
    if args.list:
        for name, make in cases.fixed():
            if name not in LARGE:
                print(f"{name}: {make().note}")
        for name in cases.stories():
            print(f"{name}: {(registry.STORIES[name].__doc__ or '').strip()}")
        return 0
    if not args.case and not args.part:
        args.seed = args.seed or str(random.SystemRandom().randrange(1 << 32))
        print(f"seed {args.seed}; a random case replays alone with --case random-SEED-NUMBER", flush=True)
        return in_parts(args)
    oracle.ignore_free_memory()
    folder = tempfile.mkdtemp(prefix="reshardfs-interop-")
    os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
    runner = Runner(args, folder)
    if not args.model_only and not os.access(runner.program, os.X_OK):
        sys.exit(f"there is no {runner.program}; build it, or say where with --build")
    try:
        with serving.Server(folder) if args.objects else contextlib.nullcontext() as server:
            mounting.place = server.url if server else str
            for name, maker in wanted(args):
                runner.run(name, maker)
    finally:
        if args.keep:
            print(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return runner.finish()


sys.exit(main())
