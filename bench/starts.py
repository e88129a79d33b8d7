# SPDX-License-Identifier: Apache-2.0
"""What a mount costs before anything is read: listing a large one, the first time and again, and planning one file."""
import os
import shutil
import statistics
import subprocess
import time

PARAMETERS = 10000
LARGE, SMALL = (1024, 768), (8, 6)  # ranks of the source and of the destination
SETTLED = 3  # seconds after which what was written is of the past


def trees(bench, say):
    """Sources of as many parameters, of a few bytes each in a rank: headers are all that matters."""
    out = {}
    for name, ranks in (("large", LARGE), ("small", SMALL)):
        say(f"writing a source of {ranks[0]} ranks of {PARAMETERS} parameters")
        # At least as many rows as both sides divide: 3072, and 24.
        out[name] = bench.example(name, ["--cut", "rows", "--layers", str(PARAMETERS), "--hidden",
                                         "4" if name == "large" else "64", "--dtype", "float16"], 1, ranks)
    time.sleep(SETTLED)
    return out


def seconds(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def listing(mount):
    subprocess.run(["ls", "-lR", mount], check=True, stdout=subprocess.DEVNULL)


def read_files(tree):
    """Opens and reads the sources, which are hardly more than headers, into one buffer: no less can be done."""
    buffer = bytearray(256 << 10)
    for folder, _, names in os.walk(tree.source):
        for name in names:
            with open(os.path.join(folder, name), "rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def first_and_second(bench, mounted, tree, figures, round_):
    cache, mount = bench.path(f"kept{round_}"), bench.path("mnt.start")
    times = []
    for _ in range(2):
        with mounted(bench.server(tree, mount, f"index_cache={cache}"), mount):
            times.append(seconds(listing, mount))
        deadline = time.monotonic() + 10  # a server writes on its way out, and ends then
        while len(os.listdir(cache)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    shutil.rmtree(cache)
    least = seconds(read_files, tree)
    figures.add("ls -lR of 1,024 ranks as 768, first mount / reading their headers", times[0] / least, 15, at_most=True,
                note=f"{times[0]:.2f} of {least:.2f} s")
    figures.add("ls -lR of 1,024 ranks as 768, first mount / second", times[0] / times[1],
                note=f"{times[0]:.2f} s, then {times[1] * 1000:.0f} ms")


def planning(bench, mounted, all_trees, figures):
    """Of a file whose stage's first rank is indexed already: its own sources, and the plan."""
    times = {}
    for name, tree in all_trees.items():
        mount = bench.path("mnt.plan")
        with mounted(bench.server(tree, mount, "index_cache=no"), mount):
            os.stat(tree.file(mount, 0))
            times[name] = statistics.median(seconds(os.stat, tree.file(mount, rank)) for rank in range(1, 6))
    figures.add("stat of one file, 1,024 → 768 ranks / 8 → 6", times["large"] / times["small"], 50, at_most=True,
                note=f"{times['large'] * 1000:.1f} of {times['small'] * 1000:.1f} ms")


def measure(bench, mounted, rounds, figures, say):
    all_trees = trees(bench, say)
    say(f"mounting, {rounds} rounds")
    for round_ in range(rounds):
        first_and_second(bench, mounted, all_trees["large"], figures, round_)
        planning(bench, mounted, all_trees, figures)
    for tree in all_trees.values():
        shutil.rmtree(tree.folder)
