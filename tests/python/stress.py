# SPDX-License-Identifier: Apache-2.0
"""Threads, forks, signals and cycles that open, read and close the same views at random, for $RFS_STRESS_SECONDS (5). It prints its
seed, which $RFS_SEED replays; each round has a seed of its own, the schedule of threads has none.

Below a sanitizer ($RFS_PRELOAD) a round forks only when its threads have ended: the sanitizer's allocator is not in order in
children of threads, where it waits for ever."""
import contextlib
import faulthandler
import gc
import os
import random
import shutil
import signal
import sys
import threading
import time

import reshard
from reshard import _gate
from cases import place, seeded, tool, view

FILE = "rank_{0}/checkpoint_{0}.ckpt"
HANGS = 240  # seconds
FORKS_BESIDE_THREADS = "RFS_PRELOAD" not in os.environ


class Interrupted(Exception):
    pass


def may_raise(frame):
    """Whether work() catches what a handler raises here, and none of Python's own modules is under way: its locks would stay
    locked for ever."""
    while frame and frame.f_code is not Round.act.__code__:
        if frame.f_globals.get("__name__") in ("logging", "threading"):
            return False
        frame = frame.f_back
    return frame is not None


class Cycle:
    """What the collector ends, in whatever thread it runs."""

    def __init__(self, thing):
        self.thing, self.me = thing, self

    def __del__(self):
        self.thing.close()


class Round:
    def __init__(self, seed, want):
        self.seed, self.want, self.wrong = seed, want, []
        self.views = [view(cache="16M") for _ in range(2)]
        self.things = [*self.views]  # all that is open, and what was closed
        self.parent = os.getpid()

    def read(self, rng, mine):
        v, rank = rng.choice(self.views), rng.randrange(4)
        kind = rng.randrange(6)
        if kind == 0:
            file = v.open(FILE.format(rank))
            mine.append(file)
            at = rng.randrange(50000)
            assert file.pread(1000, at) == self.want[rank][0][at:at + 1000]
        elif kind == 1:
            file = reshard.RawFile(v, FILE.format(rank))
            self.things.append(file)
            assert file.readall() == self.want[rank][0]
        elif kind == 2:
            tensors = v.tensors(rank)
            self.things.append(tensors)
            name = rng.choice(list(tensors))
            assert tensors[name].numpy().tobytes() == self.want[rank][1][name]
        elif kind == 3:
            closes = rng.random() < 0.1
            got = v.load(rank, progress=lambda done, total: v.close() if closes else None)
            assert {name: array.tobytes() for name, array in got.items()} == self.want[rank][1]
        elif kind == 4:
            v.stat(FILE.format(rank))
        else:
            assert len(list(v.walk())) == 4

    def fork(self, rng):
        child = os.fork()
        if child == 0:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            status = 1
            try:
                for thing in self.things:
                    with contextlib.suppress(RuntimeError, ValueError):
                        thing.readall() if isinstance(thing, reshard.RawFile) else thing.load()
                        status = 2
                    if rng.random() < 0.3:
                        thing.close()
                self.things.clear()
                gc.collect()
                with view() as own:
                    if own.open(FILE.format(1)).read() == self.want[1][0] and status == 1:
                        status = 0
            finally:
                os._exit(status)
        done, status, end = 0, 0, time.monotonic() + HANGS / 2
        while not done:
            try:
                done, status = os.waitpid(child, os.WNOHANG)
                if not done:
                    if time.monotonic() > end:
                        os.kill(child, signal.SIGKILL)
                    time.sleep(0.001)
            except Interrupted:
                continue
            except ChildProcessError:  # the exception of a signal came with the status, which is lost
                status = 0
                break
        if status:
            self.wrong.append(f"a child ended with {os.waitstatus_to_exitcode(status)}")

    def fork_alone(self):
        """Forks when the threads have given back all that they had, which is after join()."""
        end = time.monotonic() + HANGS / 2
        while len(os.listdir("/proc/self/task")) > 2 and time.monotonic() < end:  # this one and that of faulthandler
            time.sleep(0.001)
        self.fork(self.rng)

    def act(self, rng, mine):
        kind = rng.randrange(20)
        if kind < 14:
            self.read(rng, mine)
        elif kind < 16:
            rng.choice(self.things[2:] or self.views).close()
        elif kind == 16:
            Cycle(rng.choice(self.things))
        elif kind == 17:
            gc.collect()
        elif kind == 18 and FORKS_BESIDE_THREADS and rng.random() < 0.2:
            self.fork(rng)
        elif rng.random() < 0.2:
            rng.choice(self.views).close()
        del mine[5:]

    def work(self, number, interrupted=()):
        rng, mine = random.Random(f"{self.seed}-{number}"), []
        for _ in range(60):
            try:
                self.act(rng, mine)
            except (ValueError, *interrupted) as why:  # it is closed
                if not isinstance(why, interrupted) and "closed" not in str(why):
                    self.wrong.append(repr(why))
            except BaseException as why:  # pylint: disable=broad-except
                self.wrong.append(repr(why))
            if os.getpid() != self.parent:
                os._exit(3)

    def signalled(self, _number, frame):
        if os.getpid() != self.parent:
            return
        kind = self.rng.randrange(8)
        if kind == 0 and may_raise(frame):
            raise Interrupted
        if kind == 1 and self.rng.random() < 0.05:
            self.rng.choice(self.views).close()
        elif kind == 2:
            self.rng.choice(self.things[2:] or self.views).close()
        elif kind == 3:
            gc.collect()

    def run(self):
        self.rng = random.Random(f"{self.seed}-signals")
        threads = [threading.Thread(target=self.work, args=(n,), daemon=True) for n in range(1, 7)]
        for thread in threads:
            thread.start()
        signal.signal(signal.SIGALRM, self.signalled)
        signal.setitimer(signal.ITIMER_REAL, 0.001, self.rng.choice([0.0007, 0.003, 0.01]))
        self.work(0, (Interrupted,))
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        for v in self.views:  # others may still use it
            v.close()
        for thread in threads:
            thread.join()
        self.fork_alone()
        self.things.clear()
        gc.collect()
        for v in self.views:
            v.close()
            if not v._gate._freed or v._gate._below:
                self.wrong.append("a view is not freed")
        end = time.monotonic() + HANGS / 2
        while _gate._calls and time.monotonic() < end:  # what was collected is freed by a thread of its own
            time.sleep(0.001)
        if _gate._calls:
            self.wrong.append(f"calls are left: {list(_gate._calls)}")


def main():
    if sys.argv[1:] and not any(word in "stress" for word in sys.argv[1:]):
        print("0 passed, 0 failed, 0 skipped")
        return 0
    seconds, rounds, failed = float(os.environ.get("RFS_STRESS_SECONDS", "5")), 0, 0
    tool("example", f"{place}/e")
    seed = seeded().randrange(1 << 32)
    want = []
    with view() as v:
        for rank in range(4):
            with v.open(FILE.format(rank)) as file:
                want.append((file.read(), {name: array.tobytes() for name, array in v.load(rank).items()}))
    end = time.monotonic() + seconds
    while rounds == 0 or (time.monotonic() < end and not failed):
        faulthandler.dump_traceback_later(HANGS, exit=True)
        one = Round(f"{seed}-{rounds}", want)
        one.run()
        rounds += 1
        if one.wrong:
            failed += 1
            print(f"FAIL stress: round {rounds}: {one.wrong[:5]}")
    faulthandler.cancel_dump_traceback_later()
    shutil.rmtree(place, ignore_errors=True)
    print(f"{rounds} rounds")
    print(f"{int(not failed)} passed, {failed} failed, 0 skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
