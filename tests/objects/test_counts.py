# SPDX-License-Identifier: Apache-2.0
"""What a rank costs in round trips to a store, counted: requests that do not overlap follow each other."""
import os

from forge import Tree, usual
from harness import *
from test_content import publish, needs_nginx, strategies
import stores

LATENCY = 0.15  # seconds: requests that are made at once are far closer together


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
            proxy.forget()
            os.stat(m.file(0))
            asked = proxy.requests()
            heads = [r for r in asked if r[0] == "HEAD"]
            check(len(heads) >= 14, f"the requests are {asked}")
            check(round_trips(asked) <= 6, f"{round_trips(asked)} round trips for {len(heads)} HEADs: {asked}")


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
