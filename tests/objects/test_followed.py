# SPDX-License-Identifier: Apache-2.0
"""follow in object storage: saves that are uploaded file by file, changed and removed while the mount shows them."""
import errno
import os
import threading
import time

from harness import *
from test_content import needs_nginx, publish
from test_credentials import Metadata, nobody
from test_follow import EVERY, Play, Training, fails_with, file_of, latest, play, saves, shows, state, unchanged, why
import stores


class Uploading(Training):
    """A job whose ranks upload their files, one after the other."""

    def __init__(self, *more):
        super().__init__(*more)
        self.url = stores.upload(self.tree.dir)
        self.bucket = self.url.split("/")[2]

    def key(self, rank, save):
        return f"run/src/rank_{rank}/net-{save}.ckpt"

    def put(self, rank, save, data):
        stores.put(self.bucket, self.key(rank, save), data)

    def remove(self, save):
        for rank in range(4):
            stores.request(f"/{self.bucket}/{self.key(rank, save)}", method="DELETE")

    def note(self):
        """Something that is no save: a bucket has no empty folders."""
        stores.put(self.bucket, "run/src/notes.txt", b"a run")


def lists_of(proxy):
    return [r for r in proxy.requests() if "list-type=2" in r[1]]


def test_saves_that_are_uploaded():
    job = Uploading()
    with stores.Proxy() as proxy:
        env = stores.environment(proxy.url)
        got = run(reshardfs, f"{job.url}/src", folder("none"), "-o", job.options(), env=env)
        check(got.returncode == 1 and "the source does not exist" in got.stderr, f"a prefix without an object: {got.stderr!r}")
        job.note()
        with Foreground(f"{job.url}/src", job.options("tries=2"), env=env) as m:
            equal((os.listdir(m.mnt), latest(m)), ([], None), "before the first save")
            first = job.save("1_10", 1)
            eventually(lambda: latest(m) == "1_10", "the first save is the latest")
            shows(m, "latest", first)
            second = job.save("1_20", 2, (0, 1, 3))
            unchanged(m)
            equal((saves(m), latest(m)), (["1_10"], "1_10"), "while a rank still uploads")
            check("rank 2 has no file of it" in why(m, "1_20") or "rank_2" in why(m, "1_20"), f"the reason: {state(m)}")
            job.save("1_20", 2, (2,))
            eventually(lambda: latest(m) == "1_20", "the second save is the latest")
            shows(m, "latest", second)
            shows(m, "1_10", first)
            with open(file_of(m, "1_10", 0), "rb", buffering=0) as reader:
                same_bytes(reader.read(100), first[0][:100], "an open file")
                job.remove("1_10")
                eventually(lambda: saves(m) == ["1_20"], "a save that was removed disappears")
                fails_with(errno.ESTALE, lambda: os.pread(reader.fileno(), 4096, len(first[0]) - 4096))
            # Written anew: away with the first object, back with the last one.
            job.save("1_20", 3, (0,))
            eventually(lambda: saves(m) == [], "a save of which an object changes disappears")
            unchanged(m)
            check("has not changed since the save before" in why(m, "1_20"), f"the reason: {state(m)}")
            third = job.save("1_20", 3, (1, 2, 3))
            eventually(lambda: latest(m) == "1_20", "it is whole again")
            shows(m, "latest", third)
            # A look asks whether SRC is an object, and lists all below it once; where nothing has changed, that is all.
            unchanged(m)
            proxy.forget()
            for n in range(1, 6):
                eventually(lambda: saves(m) and len(lists_of(proxy)) == n, f"look {n}, a second after the last")
            equal((len(lists_of(proxy)), len(proxy.requests())), (5, 10), "lists, and all requests, of five looks")
            # A store that fails takes no save away.
            proxy.plan(fault="500", only="list-type")
            eventually(lambda: saves(m) and "status 500" in (state(m).get("trouble") or ""), "the trouble")
            equal(saves(m), ["1_20"], "the saves while the store cannot list")
            proxy.plan()
            job.remove("1_20")
            eventually(lambda: saves(m) == [], "no save is left")
            check("trouble" not in state(m) or "status 500" not in (state(m)["trouble"] or ""), f"the trouble stays: {state(m)}")


def test_a_look_that_takes_long():
    """It lists at its beginning, so what changes meanwhile is seen by a later look."""
    job = Uploading()
    job.note()
    every = 4 * EVERY  # the next look is a second later, and long before that
    options = job.tree.options(f"follow={every}", "index_cache=no")
    with stores.Proxy() as proxy:
        with Foreground(f"{job.url}/src", options, env=stores.environment(proxy.url)) as m:
            job.save("1_20", 1)
            eventually(lambda: "it is complete" in (why(m, "1_20") or ""), "it is opened")
            # The next look lists at its beginning, and opens another save first.
            job.save("1_10", 2)
            proxy.plan(latency=1.5 * every, only="net-1_10")
            proxy.forget()
            seen = []

            def opens_other():
                return any("net-1_10" in r[1] for r in proxy.requests())

            def until_one_looks():
                while not opens_other():
                    seen[:] = os.listdir(m.mnt)

            look = threading.Thread(target=until_one_looks)
            look.start()
            eventually(opens_other, "it opens the other one")
            job.save("1_20", 3, (0,))
            check(look.is_alive(), "the look has ended")
            look.join()
            equal(seen, [], "what the look shows, after a file of the save was changed")
            proxy.plan()
            whole = job.save("1_20", 3, (1, 2, 3))
            eventually(lambda: latest(m) == "1_20", "it is whole again")
            shows(m, "latest", whole)


def test_credentials_that_are_away():
    """While there are none, looks and reads fail; afterwards all goes on."""
    job = Uploading()
    first = job.save("1_10", 1)
    with stores.Proxy() as proxy, Metadata(3 * EVERY) as service:
        env = nobody(proxy.url, AWS_EC2_METADATA_DISABLED=None, AWS_EC2_METADATA_SERVICE_ENDPOINT=service.url)
        with Foreground(f"{job.url}/src", job.options("cache=1M", "index_cache=no"), env=env) as m:
            eventually(lambda: latest(m) == "1_10", "the save is shown")
            shows(m, "latest", first)
            service.server.away = True
            eventually(lambda: os.listdir(m.mnt) and "credentials" in (state(m)["trouble"] or ""), "a look fails")
            for rank in range(2):
                fails_with(errno.EIO, lambda: read_all(file_of(m, "1_10", rank)))
            equal(saves(m), ["1_10"], "what stays")
            service.server.away = False
            shows(m, "latest", first)
            second = job.save("1_20", 2)
            eventually(lambda: latest(m) == "1_20", "the next save is shown")
            shows(m, "latest", second)


class UploadedPlay(Uploading, Play):
    """Objects are whole at once, so a slow save is one of long pauses."""

    def slow(self, save):
        data = self.next(save)
        for rank in self.ranks():
            self.put(rank, save, data[rank])
            time.sleep(self.choose.random() * 0.7 * EVERY)


def test_a_training_that_uploads():
    """Saves of all fates, and readers that believe sums alone; through a store that fails now and then."""
    seed = int(os.environ.get("RFS_SEED") or time.time())
    job = UploadedPlay(seed)
    job.note()
    with stores.Proxy(fault="any", every=23) as proxy:
        print(f"seed {seed}: {play(6, 4, seed, job, job.url + '/src', env=stores.environment(proxy.url))}", flush=True)


class Serving(Training):
    """A job that saves to a folder of a web server."""

    def __init__(self):
        super().__init__()
        self.name, where = publish(self.tree.dir)
        self.src = os.path.join(where, "src")


def test_saves_on_a_web_server():
    needs_nginx()
    job = Serving()
    old = job.save("1_5", 5)
    for rank in range(4):
        os.utime(job.path(rank, "1_5"), (1, 1))
    with Foreground(f"http://127.0.0.1:{stores.nginx_port}/{job.name}/src", job.options(), env=stores.environment()) as m:
        equal(saves(m), [], "before anything is known to stay")  # however old it says that it is
        eventually(lambda: latest(m) == "1_5", "a save that was there")
        shows(m, "latest", old)
        first = job.save("1_10", 1)
        eventually(lambda: latest(m) == "1_10", "the first save is the latest")
        shows(m, "latest", first)
        job.remove("1_5")
        job.save("1_20", 2, (0, 1, 2))
        unchanged(m)
        equal(saves(m), ["1_10"], "while a rank is missing")
        second = job.save("1_20", 2, (3,))
        eventually(lambda: latest(m) == "1_20", "the second save is the latest")
        shows(m, "latest", second)
        job.remove("1_20")
        eventually(lambda: saves(m) == ["1_10"], "a save that was removed disappears")
