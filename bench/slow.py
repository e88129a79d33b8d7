# SPDX-License-Identifier: Apache-2.0
"""Sources on slow storage: reading through a mount beside reading the sources themselves at queue depth 16."""
import os

DEPTH = 16
REQUESTS = (("128 KiB", 128 << 10, 0.8), ("1 MiB", 1 << 20, 0.8))  # the largest request, and what is asked


def source_files(tree):
    """The files that rank 0 reads, and how many percent of each."""
    paths = [os.path.join(tree.source, f"rank_{rank}", f"checkpoint_{rank}.ckpt")
             for rank in range(tree.source_ranks)]
    half = len(paths) * tree.target_ranks // tree.source_ranks
    return (paths[:half], 100) if "contiguous" in tree.folder else (paths, 100 // tree.target_ranks)


def slow_rounds(bench, trees, rounds, figures, mounted, compare):
    """A new mount in every round: what a reader finds out about its storage counts, too."""
    delay_server = bench.program("bench/delay_server")
    for name, request, asked in REQUESTS:
        slow = bench.path("mnt.slow")
        with mounted([delay_server, "-r", str(request), bench.work, slow], slow):
            for _ in range(rounds):
                for kind, tree in trees.items():
                    paths, percent = source_files(tree)
                    paths = [os.path.join(slow, os.path.relpath(p, bench.work)) for p in paths]
                    theirs = bench.rate("-q", str(DEPTH), "-p", str(percent), *paths)
                    mount = bench.path("mnt.of-slow")
                    server = bench.server(tree, mount)
                    server[server.index(tree.source)] = os.path.join(
                        slow, os.path.relpath(tree.source, bench.work))
                    with mounted(server, mount):
                        ours = bench.rate(tree.file(mount, 0))
                    compare(figures, f"{kind}, 2 ms a read of {name} / queue depth {DEPTH}", ours,
                            theirs, asked)
