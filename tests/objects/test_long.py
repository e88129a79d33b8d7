# SPDX-License-Identifier: Apache-2.0
"""Only with --long: readers for a minute over a store that fails in every way."""
import os
import random
import threading
import time

from harness import *
from test_content import strategies, tree
import stores

SECONDS = 60  # less than the limit of a test


def test_long_reading_of_a_faulty_store():
    t = tree(scale=8)
    url = stores.upload(t.dir)
    seed = int(os.environ.get("RFS_SEED", str(time.time_ns() % 2**32)))
    print(f"RFS_SEED={seed}", flush=True)
    expected = [t.expected(rank) for rank in range(2)]
    wrong, counts = [], {"right": 0, "refused": 0}
    end = time.monotonic() + SECONDS

    def read(m, number):
        chance = random.Random(seed + number)
        while time.monotonic() < end:
            rank = chance.randrange(2)
            at = chance.randrange(len(expected[rank]))
            n = chance.choice((1, 4096, 100000, 1 << 20))
            try:
                with open(m.file(rank), "rb") as file:
                    file.seek(at)
                    got = file.read(n)
                if got != expected[rank][at:at + n]:
                    wrong.append((rank, at, n))
                counts["right"] += 1
            except OSError as error:
                counts["refused"] += 1
                if error.strerror != "Input/output error":
                    wrong.append(error)

    with stores.Proxy(fault="any", every=3) as proxy:
        with Mount(f"{url}/src", strategies(url) + ",cache=2M,tries=4,timeout=2", env=stores.environment(proxy.url)) as m:
            before = len(os.listdir(f"/proc/{m.pid}/fd"))
            threads = [threading.Thread(target=read, args=(m, i)) for i in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            after = len(os.listdir(f"/proc/{m.pid}/fd"))
            check(after < before + 200, f"{after} descriptors are open, {before} at first")
    print(counts, flush=True)
    equal(wrong, [], "wrong bytes or errors")
    check(counts["right"] > 100, f"{counts}")
