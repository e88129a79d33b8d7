# SPDX-License-Identifier: Apache-2.0
"""Only with --long: readers for minutes over a store that fails in every way that passes; Apache's index."""
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time

from harness import *
from test_content import publish, status, strategies, tree
from test_secrets import search, search_core
import stores

SECONDS = int(os.environ.get("RFS_OBJECTS_SECONDS", "150"))
PLANS = ({"fault": "any", "every": 3}, {"fault": "stall", "every": 9, "ranges": True}, {"fault": "429", "every": 5},
         {"fault": "garbage", "every": 4}, {"fault": "503"}, {}, {"fault": "any", "every": 2, "latency": 0.05})


def is_clean(m):
    """Nothing that tells who asks, in what others may see."""
    pid = m.process.pid
    search(m.log().encode(), "the log")
    for name in ("cmdline", "environ"):
        search(read_all(f"/proc/{pid}/{name}"), name)
    search_core(pid)


def test_long_reading_of_a_faulty_store():
    signal.alarm(SECONDS + LIMIT)
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

    with stores.Proxy() as proxy:
        with Foreground(f"{url}/src", strategies(url) + ",cache=2M,tries=3,timeout=2,index_cache=no,log_level=debug",
                        env=stores.environment(proxy.url)) as m:
            for rank in range(2):
                os.stat(m.file(rank))
            pid = m.process.pid
            threads = [threading.Thread(target=read, args=(m, i)) for i in range(12)]
            for thread in threads:
                thread.start()
            sizes = []
            for turn in range(10**6):
                if time.monotonic() >= end:
                    break
                proxy.plan(**PLANS[turn % len(PLANS)])
                time.sleep(min(4, max(0, end - time.monotonic())))
                sizes.append((status(pid, "VmRSS"), len(os.listdir(f"/proc/{pid}/fd")), status(pid, "Threads")))
            for thread in threads:
                thread.join()
            is_clean(m)
    print(counts, "KiB, descriptors, threads:", sizes[len(sizes) // 4], sizes[-1], flush=True)
    equal(wrong, [], "wrong bytes or errors")
    check(counts["right"] > 100 and counts["refused"] > 0, f"{counts}")
    half = sizes[len(sizes) // 4:]
    # AddressSanitizer keeps what was freed, 256 MiB of it.
    kept = 320 << 10 if sanitized("asan") else 0
    for what, which, room in (("KiB", 0, (48 << 10) + kept), ("descriptors", 1, 200), ("threads", 2, 70)):
        check(max(s[which] for s in half[len(half) // 2:]) <= half[0][which] + room, f"{what} grow: {[s[which] for s in half]}")


def test_the_index_of_apache():
    program = shutil.which("apache2") or "/usr/sbin/apache2"
    need(os.path.exists(program), "apache2 is missing")
    t = tree(scale=4)
    name, where = publish(t.dir)
    port, conf = stores.free_port(), folder("apache")
    with open(os.path.join(conf, "conf"), "w") as file:
        file.write(f"""ServerRoot {conf}
ServerName tests
PidFile {conf}/pid
ErrorLog {conf}/errors
Mutex file:{conf}
Listen 127.0.0.1:{port}
""" + "".join(f"LoadModule {n}_module /usr/lib/apache2/modules/mod_{n}.so\n" for n in ("mpm_event", "authz_core", "dir", "alias", "autoindex"))
                   + f"""{"User www-data" if os.geteuid() == 0 else ""}
DocumentRoot {stores.web}
<Directory {stores.web}>
    Options +Indexes
    Require all granted
</Directory>
Alias /fancy {stores.web}
<Location /fancy>
    IndexOptions FancyIndexing HTMLTable
</Location>
""")
    process = subprocess.Popen([program, "-f", f"{conf}/conf", "-D", "FOREGROUND"], stdin=subprocess.DEVNULL)
    try:
        check(stores.answers(port, process), "apache2 does not answer")
        for way in ("", "/fancy"):
            url = f"http://127.0.0.1:{port}{way}/{name}"
            with Mount(f"{url}/src", strategies(url), env=stores.environment()) as m:
                for rank in range(2):
                    same_bytes(m.read(rank), t.expected(rank), f"rank {rank} by {url}")
    finally:
        process.terminate()
        process.wait(10)
    shutil.rmtree(where)
