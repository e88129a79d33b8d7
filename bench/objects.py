# SPDX-License-Identifier: Apache-2.0
"""
Sources behind a web server with ranges: reading through a mount beside curl, which asks the same server for 32 ranges at once.
Each mount is new and keeps no headers, and curl begins without a connection: both are cold, while the server has its files in
memory. curl throws away what it gets. A mount keeps up to MEMORY of it, which the host has given before.
"""
import contextlib
import os
import shutil
import subprocess
import time

import steady
from slow import source_files

PART = 8 << 20  # of curl's requests
AT_ONCE = 32
MEMORY = 1 << 30
SERVERS = (("a fast server", ["0"]), ("50 ms a request", ["50"]), ("20 ms and 30 MiB/s a connection", ["20", "30"]))
ASKED = 0.8


@contextlib.contextmanager
def serving(bench, words):
    """Yields the URL of bench.work."""
    port = bench.path("port")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(port)
    with subprocess.Popen([bench.program("bench/range_server"), bench.work, port, *words]) as server:
        try:
            while not os.path.exists(port):
                time.sleep(0.01)
            with open(port, encoding="ascii") as file:
                yield f"http://127.0.0.1:{file.read().strip()}"
        finally:
            server.kill()


def ranges(path, percent):
    """Ranges of so many percent of a file; of a part of it they are of its begin."""
    size = os.path.getsize(path) * percent // 100
    return [(at, min(at + PART, size) - 1) for at in range(0, size, PART)]


def asked(bench, url, requests, *words):
    """Bytes and seconds of one curl that makes all the requests, each a path below the URL and its range."""
    config = bench.path("curl.config")
    with open(config, "w", encoding="utf-8") as file:
        file.write("next\n".join(f'url = "{url}/{path}"\nrange = "{first}-{last}"\noutput = "/dev/null"\nfail\n'
                                 for path, first, last in requests))
    begin = time.monotonic()
    subprocess.run(["curl", "-q", "-s", *words, "--config", config], check=True, stderr=subprocess.DEVNULL,
                   env={**os.environ, "no_proxy": "*"})
    seconds = time.monotonic() - begin
    os.unlink(config)
    return sum(last + 1 - first for _, first, last in requests), seconds


def at_once(bench, url, paths, percent):
    """GB/s of all that a rank reads, by one curl."""
    requests = [(os.path.relpath(path, bench.work), *ends) for path in paths for ends in ranges(path, percent)]
    got, seconds = asked(bench, url, requests, "--parallel", "--parallel-immediate", "--parallel-max", str(AT_ONCE))
    return got / 1e9 / seconds


def one_by_one(bench, url, tree):
    """The same of the first 64 MiB, or of a smaller file, in requests of 1 MiB on one connection."""
    path = source_files(tree)[0][0]
    ends = range(0, min(64 << 20, os.path.getsize(path)), 1 << 20)
    got, seconds = asked(bench, url, [(os.path.relpath(path, bench.work), at, at + (1 << 20) - 1) for at in ends])
    return got / 1e9 / seconds


def server_of(bench, url, tree, mount):
    """The command of a mount of a tree's source by its URL."""
    server = bench.server(tree, mount, "index_cache=no")
    server[server.index(tree.source)] = f"{url}/{os.path.relpath(tree.source, bench.work)}"
    return server


def round_of(bench, trees, name, url, figures, mounted, compare):
    for kind, tree in trees.items():
        mount = bench.path("mnt.objects")
        theirs = at_once(bench, url, *source_files(tree))
        steady.fetch_memory(MEMORY)
        with mounted(server_of(bench, url, tree, mount), mount):
            ours = bench.rate(tree.file(mount, 0))
        compare(figures, f"{kind}, {name} / curl, {AT_ONCE} at once", ours, theirs, ASKED)
        if name.startswith("50 ms"):
            alone = one_by_one(bench, url, tree)
            figures.add(f"{kind}, {name} / requests of 1 MiB one after the other", ours / alone, 64.0,
                        note=f"{ours:.2f} of {alone:.4f} GB/s")


def measure(bench, trees, rounds, figures, mounted, compare):
    if not shutil.which("curl"):
        raise OSError("curl is not there")
    for name, words in SERVERS:
        with serving(bench, words) as url:
            for number in range(-1, rounds):  # round -1 warms up
                round_of(bench, trees, name, url, figures if number >= 0 else type(figures)(), mounted, compare)
