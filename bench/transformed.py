# SPDX-License-Identifier: Apache-2.0
"""
Reading through a mount beside the local files that a conversion would have written: a transformer whose weights are
cut by rows and by columns, from 8 ranks to 4, and from 4 to 8 for many readers. Both sides are in the page cache, but
for the cold ones.
"""
import os
import shutil
import subprocess
import tempfile
import time

import steady

MODEL = ["--layers", "8", "--cut", "tp", "--hidden", "2048"]
# name, options of bench/reader, readers, the part of the local files' speed to reach
WAYS = (
    ("one reader, 1 MiB", [], 1, 0.8),
    ("one reader, 128 KiB", ["-b", "128K"], 1, None),
    ("one reader, one read() of the file", ["-w"], 1, None),
    ("two readers of two files", [], 2, 0.6),
    ("four readers of four files", [], 4, None),
)
MEMORY = "/dev/shm"


class Pair:
    """A tree, and what `reshard export` makes of it."""

    def __init__(self, bench, mounted, name, size, ranks):
        self.bench, self.mounted = bench, mounted
        self.tree = bench.example(name, MODEL, size, ranks)
        self.local = self.tree.folder + ".exported"
        named = [word for option in self.tree.options() for word in ("-o", option)]
        subprocess.run([bench.reshard, "export", self.tree.source, self.local, "--no-fsync", *named],
                       check=True, stdout=subprocess.DEVNULL)
        steady.write_out(bench.work)
        steady.remember(*self.sources(), *self.files(self.local))

    def sources(self):
        return [os.path.join(folder, name) for folder, _, names in os.walk(self.tree.source) for name in names]

    def files(self, folder):
        return [self.tree.file(folder, rank) for rank in range(self.tree.target_ranks)]

    def mount(self, path, *options):
        return self.mounted(self.bench.server(self.tree, path, *options), path)

    def remove(self):
        shutil.rmtree(self.tree.folder)
        shutil.rmtree(self.local)


def copy(path):
    """GB/s of cp to memory."""
    with tempfile.TemporaryDirectory(prefix="reshard-bench.", dir=MEMORY) as folder:
        begin = time.monotonic()
        subprocess.run(["cp", path, folder], check=True)
        return os.path.getsize(path) / (time.monotonic() - begin) / 1e9


def both(figures, name, ours, theirs, asked=None):
    """Each side is measured twice and goes first once."""
    a, b, c, d = ours(), theirs(), theirs(), ours()
    figures.add(f"{name} / local file", (a + d) / (b + c), asked,
                note=f"{(a + d) / 2:.2f} of {(b + c) / 2:.2f} GB/s")


def warm(pair, figures):
    """
    New mounts, so that no slice is in the cache of one; the first file was read by none. The null server beside them,
    which reads nothing, shows how much of the local file's speed FUSE leaves to any server here.
    """
    bench = pair.bench
    local = pair.files(pair.local)
    size = os.path.getsize(local[0])
    for name, options, readers, asked in WAYS:
        def rate(*files):
            return bench.rate(*options, "-n", str(readers), *files[:readers])

        def ours():
            mount = bench.path("mnt.local")
            with pair.mount(mount):
                return rate(*pair.files(mount))

        def nulls():
            mount = bench.path("mnt.null")
            with pair.mounted([bench.null_server, mount, str(size)], mount):
                return rate(os.path.join(mount, "null"))
        both(figures, name, ours, lambda: rate(*local), asked)
        both(figures, f"{name}: null server", nulls, lambda: rate(*local))
    mount = bench.path("mnt.local")
    if os.path.isdir(MEMORY):
        def ours_copied():
            with pair.mount(mount):
                return copy(pair.files(mount)[0])
        both(figures, "cp to memory", ours_copied, lambda: copy(local[0]), 0.85)


def cold(pair, figures):
    """From the disk: what rank 0 takes is about as much as its file."""
    bench, mount = pair.bench, pair.bench.path("mnt.local")

    def ours():
        with pair.mount(mount):
            os.stat(pair.files(mount)[0])
            steady.forget(*pair.sources())
            return bench.rate(pair.files(mount)[0])

    def theirs():
        steady.forget(pair.files(pair.local)[0])
        return bench.rate(pair.files(pair.local)[0])
    both(figures, "one reader, sources on disk", ours, theirs)
    steady.remember(*pair.sources(), *pair.files(pair.local))


def many(pair, figures):
    """All processes of a node load at once, each its rank's file, with one call; slices of several ranks share sources."""
    bench, mount = pair.bench, pair.bench.path("mnt.local")
    for n in (4, 8):
        files = pair.files(pair.local)[:n]

        def ours():
            with pair.mount(mount):
                return together(bench, pair.files(mount)[:n])
        both(figures, f"{n} processes, each a rank's file of 8", ours, lambda: together(bench, files))


def together(bench, paths):
    """GB/s of one process for each path, from the start of the first to the end of the last."""
    begin = time.monotonic()
    processes = [subprocess.Popen([bench.reader, "-w", path], stdout=subprocess.DEVNULL) for path in paths]
    failed = sum(process.wait() != 0 for process in processes)
    took = time.monotonic() - begin
    if failed:
        raise RuntimeError(f"{failed} of {len(paths)} readers failed")
    return sum(os.path.getsize(path) for path in paths) / took / 1e9


def measure(bench, mounted, size, rounds, figures, say):
    for name, ranks, parts in (("8 to 4", (8, 4), (warm, cold)), ("4 to 8", (4, 8), (many,))):
        pair = Pair(bench, mounted, name, size, ranks)
        for number in range(rounds):
            say(f"beside local files, {name} ranks, round {number + 1} of {rounds}")
            for part in parts:
                part(pair, figures)
        pair.remove()
