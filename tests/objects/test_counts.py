# SPDX-License-Identifier: Apache-2.0
"""What a rank costs in round trips to a store, counted: requests that do not overlap follow each other."""
import os
import random
import shutil
import threading
import time

from forge import WHOLE, Param, Tree, usual
from harness import *
from test_content import publish, needs_nginx, status, strategies
from test_limits import MIXED
import stores

LATENCY = 0.5  # seconds: requests that are made at once are far closer together, on a busy machine, too


def round_trips(requests):
    """How many of the requests began after the one before them had been answered."""
    count, answered = 0, 0.0
    for begin, end in sorted((float(r[4]), float(r[5])) for r in requests if len(r) > 5):
        if begin >= answered:
            count, answered = count + 1, end
        else:
            answered = min(answered, end)
    return count


def bytes_asked(requests):
    """Of requests for ranges."""
    ranges = [r[2].removeprefix("bytes=").split("-") for r in requests if r[2].startswith("bytes=")]
    return sum(int(end) + 1 - int(begin) for begin, end in ranges)


def large_tree(ranks):
    """Tensors that are longer than what is read with a header, as all large ones are."""
    return Tree(folder("tree"), usual(scale=64), ranks, ranks // 2)


def test_the_first_byte_comes_soon():
    t = large_tree(8)
    url = stores.upload(t.dir)
    with stores.Proxy(latency=LATENCY) as proxy:
        with Mount(f"{url}/src", t.options("index_cache=no"), env=stores.environment(proxy.url)) as m:
            proxy.forget()
            os.stat(m.file(3))
            size = sum(os.path.getsize(t.path(rank)) for rank in range(8))
            got = bytes_asked(proxy.requests())
            check(got <= size / 3, f"{got} bytes of headers, of {size}: {proxy.requests()}")
            with open(m.file(3), "rb") as file:
                same_bytes(file.read(1), t.expected(3)[:1], "the first byte")
            asked = proxy.requests()
            objects = {r[1] for r in asked}
            check(round_trips(asked) <= 5 * max(len(objects), 1),
                  f"{round_trips(asked)} round trips for {len(objects)} objects: {asked}")
            # Those of one object are its headers, which are read at once.
            check(round_trips(asked) <= 5, f"{round_trips(asked)} round trips: {asked}")
            proxy.forget()
            with open(m.file(3), "rb") as file:
                file.seek(t.expected(3).__len__() // 2)
                got = file.read(100)
            half = len(t.expected(3)) // 2
            same_bytes(got, t.expected(3)[half:half + 100], "in the middle")
            check(round_trips(proxy.requests()) <= 2, f"a read in the middle: {proxy.requests()}")


def irregular_tree(count, least, most):
    """Tensors of so many KiB a rank, so that the jumps from header to header do not repeat."""
    seed = int(os.environ.get("RFS_SEED", "1"))
    print(f"RFS_SEED={seed}", flush=True)
    chance = random.Random(seed)
    return Tree(folder("tree"), [Param(f"tensor{i}", (2 * chance.randrange(least, most), 256), 0, 0) for i in range(count)], 2, 1)


def first_walk(proxy):
    """The requests for rank 0 before the other rank is looked at, and samples of both are compared."""
    walk = [r for r in proxy.requests() if r[2].startswith("bytes=") and "rank_" in r[1]]
    other = min(float(r[4]) for r in walk if "rank_1/" in r[1])
    return [r for r in walk if float(r[4]) < other]


def test_headers_that_do_not_repeat():
    """Those of short tensors come in blocks that grow; those of long ones take a round trip each, and no more."""
    for count, least, most, trips, bytes_each in ((200, 1, 60, 15, 60 << 10), (16, 200, 500, 20, 400 << 10)):
        t = irregular_tree(count, least, most)
        url = stores.upload(t.dir)
        with stores.Proxy(latency=0.15) as proxy:
            with Mount(f"{url}/src", t.options("index_cache=no"), env=stores.environment(proxy.url)) as m:
                walk = first_walk(proxy)
                check(all("rank_0/" in r[1] for r in walk), f"the walk: {walk}")
                proxy.forget()
                os.stat(m.file(0))
                walk += [r for r in proxy.requests() if r[2].startswith("bytes=") and "rank_0/" in r[1]]
                print(f"{count} tensors: {round_trips(walk)} round trips, {bytes_asked(walk)} bytes", flush=True)
                check(round_trips(walk) <= trips, f"{round_trips(walk)} round trips for {count} headers")
                check(bytes_asked(walk) <= count * bytes_each, f"{bytes_asked(walk)} bytes for {count} headers")
                same_bytes(m.read(0), t.expected(0), "rank 0")
        shutil.rmtree(t.dir)


def test_headers_of_layers_with_large_norms():
    """Norms of 16 KiB before each layer's matrices, of which some have one shape: the layers repeat, and soon come at once."""
    layers = 16
    sizes = (("n1", 16), ("n2", 16), ("q", 300), ("k", 280), ("v", 280), ("o", 300), ("w", 320))
    t = Tree(folder("tree"), [Param(f"layer{i}.{name}", (2 * kib, 256), 0, 0) for i in range(layers) for name, kib in sizes], 2, 1)
    url = stores.upload(t.dir)
    with stores.Proxy(latency=0.15) as proxy:
        with Mount(f"{url}/src", t.options("index_cache=no"), env=stores.environment(proxy.url)) as m:
            walk = first_walk(proxy)
            print(f"{7 * layers} tensors: {round_trips(walk)} round trips, {bytes_asked(walk)} bytes", flush=True)
            check(round_trips(walk) < layers, f"{round_trips(walk)} round trips for {layers} layers")


def test_web_servers_are_asked_many_things_at_once():
    needs_nginx()
    t = Tree(folder("tree"), usual(), 16, 2)
    name, _ = publish(t.dir)
    with stores.Proxy(upstream=stores.nginx_port, latency=LATENCY) as proxy:
        source = f"{proxy.url}/{name}/src"
        with Mount(source, t.options("index_cache=no"), env=stores.environment(proxy.url)) as m:
            asked = proxy.requests()
            lists = [r for r in asked if r[1].endswith("/")]
            equal(len(lists), 17, "lists of folders")
            check(round_trips(lists) <= 4, f"{round_trips(lists)} round trips for the lists: {asked}")
            heads = [r for r in asked if r[0] == "HEAD" and r[1].endswith(".ckpt")]
            equal(len(heads), 16, "HEADs of files")
            check(round_trips(heads) <= 2, f"{round_trips(heads)} round trips for the HEADs: {asked}")
            proxy.forget()
            os.stat(m.file(0))
            asked = proxy.requests()
            equal([r for r in asked if r[0] == "HEAD"], [], "HEADs of what is known")
            check(round_trips(asked) <= 4, f"{round_trips(asked)} round trips for a file: {asked}")


def test_reads_in_sequence_are_few_large_requests():
    t = large_tree(4)
    url = stores.upload(t.dir)
    with stores.Proxy(latency=LATENCY) as proxy:
        with Mount(f"{url}/src", t.options("index_cache=no"), env=stores.environment(proxy.url)) as m:
            os.stat(m.file(0))
            proxy.forget()
            same_bytes(m.read(0), t.expected(0), "rank 0")
            size = len(t.expected(0))
            asked = proxy.requests()
            got = bytes_asked(asked)
            # The first MiB alone, then sixteen times as much, then all.
            check(round_trips(asked) <= 6, f"{round_trips(asked)} round trips for {size} bytes: {asked}")
            check(got <= 1.2 * size + (4 << 20), f"{got} bytes were read for {size}")


def published_example(size, ranks=(4, 2), cut="rows"):
    """A source behind nginx, for files of so many MiB: its name, where it is, and its strategies."""
    needs_nginx()
    where = os.path.join(stores.web, f"example-{os.getpid()}-{time.monotonic_ns()}")
    made = run(reshard, "example", where, "--src", str(ranks[0]), "--dst", str(ranks[1]), "--cut", cut, "--size", f"{ranks[1] * size}M")
    equal(made.returncode, 0, "example")
    for base, _, names in os.walk(where):
        os.chmod(base, 0o755)
        for name in names:
            os.chmod(os.path.join(base, name), 0o644)
    return os.path.basename(where), where, strategies(where)


def read_by_pieces(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def at_once(requests):
    """The most requests for ranges that wait for an answer at the same time."""
    events = sorted((when, change) for r in requests if len(r) > 5 and r[2].startswith("bytes=")
                    for when, change in ((float(r[4]), 1), (float(r[5]), -1)))
    most = now = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


def test_memory_of_random_readers():
    """They have no read-ahead, but as many requests, connections with TLS, blocks and threads as there can be."""
    needs_nginx()
    if sanitized():
        return
    t = Tree(folder("tree"), MIXED, 4, 2)
    name, where = publish(t.dir)
    url, cache, lanes = f"https://127.0.0.1:{stores.tls_port}/{name}", 32, 16
    options = f"{strategies(url)},cache={cache}M,connections={lanes},io=direct,index_cache=no"
    env = stores.environment(CURL_CA_BUNDLE=stores.certificate("server"))
    want = [t.expected(rank) for rank in range(2)]
    failures, done = [], threading.Event()

    def read(m, seed):
        dice = random.Random(seed)
        try:
            with open(m.file(seed % 2), "rb", buffering=0) as file:
                while not done.is_set():
                    at, size = dice.randrange(len(want[0])), 1 << dice.randrange(21)
                    same_bytes(os.pread(file.fileno(), size, at), want[seed % 2][at:at + size], f"{size} bytes at {at}")
        except Exception as error:
            failures.append(error)
            done.set()

    with Mount(f"{url}/src", options, env=env) as m:
        threads = [threading.Thread(target=read, args=(m, seed)) for seed in range(12)]
        for thread in threads:
            thread.start()
        try:
            done.wait(6)
            eventually(lambda: done.is_set() or status(m.pid, "VmHWM") > cache << 10, "the cache is full")
        finally:
            done.set()
            for thread in threads:
                thread.join()
        peak = status(m.pid, "VmHWM") / 1024
    equal(failures, [], "what readers met")
    shutil.rmtree(where)
    # The promise is 64 MiB, 40 more and a quarter for each connection. A third of the first is for headers that are read at once.
    most = cache + 43 + 40 + lanes / 4
    check(cache < peak <= most, f"{peak:.1f} MiB at most, with {cache} MiB of cache; expected {most:.1f}")


def test_reading_ahead_keeps_many_requests_under_way_within_the_memory():
    size = 320
    name, where, options = published_example(size)
    with stores.Proxy(upstream=stores.nginx_port, latency=LATENCY) as proxy:
        for cache, least in ((64, 30), (512, 50)):  # of 64; on a busy machine some end before the last begin
            proxy.forget()
            with Foreground(f"{proxy.url}/{name}/src", f"{options},cache={cache}M,index_cache=no", env=stores.environment(proxy.url)) as m:
                read_by_pieces(m.file(0))
                peak = status(m.process.pid, "VmHWM") >> 10
            most = at_once(proxy.requests())
            print(f"cache={cache}M: {most} requests at once, {peak} MiB at most", flush=True)
            check(least <= most <= 64, f"{most} requests at once with cache={cache}M")
            check(sanitized() or peak <= cache + 64, f"{peak} MiB at most with cache={cache}M")
    shutil.rmtree(where)


def test_reading_ahead_of_many_sources():
    """With little memory, too, each of 16 files is read by large requests, and each byte once."""
    size = 96
    name, where, options = published_example(size, (16, 1), "cols")
    with stores.Proxy(upstream=stores.nginx_port, latency=0.05) as proxy:
        with Foreground(f"{proxy.url}/{name}/src", f"{options},cache=64M,index_cache=no", env=stores.environment(proxy.url)) as m:
            os.stat(m.file(0))
            proxy.forget()
            read_by_pieces(m.file(0))
        asked = proxy.requests()
    check(len(asked) <= size * 4, f"{len(asked)} requests for {size} MiB")
    check(bytes_asked(asked) <= 1.1 * (size << 20), f"{bytes_asked(asked)} bytes were read for {size} MiB")
    shutil.rmtree(where)


def test_strategies_are_compared_in_one_round_trip():
    """Samples of all ranks are asked for at once, after the first header of each and the last."""
    params = [Param(f"layer{i}.weight", (2048, 1024), 0, 0) for i in range(4)]
    params += [Param(f"layer{i}.bias", (300000,), WHOLE, WHOLE) for i in range(4)]
    t = Tree(folder("tree"), params, 8, 4)
    url = stores.upload(t.dir)
    with stores.Proxy(latency=LATENCY) as proxy:
        with Mount(f"{url}/src", t.options("index_cache=no"), env=stores.environment(proxy.url)) as m:
            asked = [r for r in proxy.requests() if r[2].startswith("bytes=") and "rank_" in r[1]]
            others = [r for r in asked if "rank_0/" not in r[1]]
            equal({r[1].split("rank_")[1][0] for r in others}, {"1", "2", "4", "7"}, "the ranks")
            check(round_trips(others) <= 3, f"{round_trips(others)} round trips: {others}")
            samples = [r for r in asked if bytes_asked([r]) == 1024]
            check(len(samples) > 20 and round_trips(samples) == 1, f"{round_trips(samples)} round trips: {samples}")
            same_bytes(m.read(0), t.expected(0), "rank 0")
