# SPDX-License-Identifier: Apache-2.0
"""Who closes what, and when: threads, forks, signals, exceptions between two steps, and the garbage collector."""
import contextlib
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import numpy

import reshard
from reshard import _gate
from cases import path, raises, run, seeded, strategies, tool, view

FILE = "rank_0/checkpoint_0.ckpt"
PACKAGE = os.path.dirname(os.path.abspath(reshard.__file__))
OPENS = {"reshard_open": 2, "reshard_reader_open": 2, "reshard_tensors_open": 2, "reshard_cancel_new": 1}  # where out is
CLOSES = {"reshard_close", "reshard_reader_close", "reshard_tensors_close", "reshard_cancel_free"}


class Closing:
    """What the collector ends, which then closes a view."""

    def __init__(self, v):
        self.view, self.cycle = v, self

    def __del__(self):
        self.view.close()


class Noted:
    """Notes what the library opens and frees while it is entered. before(name) runs before a call that frees."""

    def __init__(self, before=lambda name: None):
        self.before, self.library = before, reshard._library.library()
        self.calls = {name: getattr(self.library, name) for name in [*OPENS, *CLOSES]}
        self.alive, self.order = {}, []  # by pointer: the view that it was opened in

    def opening(self, name):
        def call(*given):
            code = self.calls[name](*given)
            if code == 0:
                self.alive[given[OPENS[name]]._obj.value] = None if name == "reshard_open" else given[0]
            return code
        return call

    def closing(self, name):
        def call(pointer):
            if not pointer:
                return
            self.before(name)
            del self.alive[pointer]  # KeyError: it was freed before
            assert pointer not in self.alive.values(), "what was opened in it is freed first"
            self.calls[name](pointer)
            self.order.append(name)
        return call

    def __enter__(self):
        for name in self.calls:
            setattr(self.library, name, (self.opening if name in OPENS else self.closing)(name))
        return self

    def __exit__(self, *exception):
        for name, call in self.calls.items():
            setattr(self.library, name, call)


class During:
    """Has a function of the library run something before its own work, once."""

    def __init__(self, name, action):
        self.library, self.name, self.action = reshard._library.library(), name, action
        self.own = getattr(self.library, name)

    def __enter__(self):
        def call(*given):
            setattr(self.library, self.name, self.own)
            self.action()
            return self.own(*given)
        setattr(self.library, self.name, call)

    def __exit__(self, *exception):
        setattr(self.library, self.name, self.own)


def in_threads(*functions):
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    return threads


def ended(threads):
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "it hangs"


def test_a_second_closer_waits_for_the_first():
    for what in ("file", "list", "view"):
        begun, go = threading.Event(), threading.Event()
        name = {"file": "reshard_reader_close", "list": "reshard_tensors_close", "view": "reshard_close"}[what]

        def wait(called, name=name, begun=begun, go=go):
            if called == name:
                begun.set()
                assert go.wait(60)

        with Noted(wait) as noted:
            v = view()
            closed = {"file": reshard.RawFile(v, FILE), "list": v.tensors(0), "view": v}[what]
            first = in_threads(closed.close)
            assert begun.wait(60)
            second = in_threads(v.close, closed.close)
            time.sleep(0.2)
            assert all(thread.is_alive() for thread in second) and name not in noted.order, (what, noted.order)
            go.set()
            ended(first + second)
            assert noted.order[-1] == "reshard_close" and not noted.alive, noted.order


def test_a_view_ends_while_a_thread_loads():
    begun, go, got = threading.Event(), threading.Event(), []

    def hang():
        begun.set()
        assert go.wait(60)

    with Noted() as noted, During("reshard_tensors_load", hang):
        with view() as v:
            want = v.tensors(1)
            loading = in_threads(lambda: got.append(v.load(1)))
            assert begun.wait(60)
            threading.Timer(0.2, go.set).start()
        assert not noted.alive and noted.order[-1] == "reshard_close", noted.order
        ended(loading)
        assert list(got[0]) == list(want)


def test_closed_by_what_its_own_calls_run():
    """Nobody gets in any more, the call goes on to its end, and then all is freed. Each would wait for itself."""
    want = reshard.load(path("e", "src"), rank=1, **strategies())

    def by_collector(v):
        Closing(v)
        gc.collect()

    def by_signal(v):
        signal.signal(signal.SIGUSR1, lambda *_: v.close())
        signal.raise_signal(signal.SIGUSR1)

    for close in (by_collector, by_signal, lambda v: v.close()):
        with Noted() as noted:
            v = view()
            file = v.open(FILE)

            def now(v=v, close=close, file=file, noted=noted):
                close(v)
                assert v.closed and file.closed and "reshard_close" not in noted.order
                raises(ValueError, v.listdir)
                raises(ValueError, file.raw.pread, 1, 0)

            with During("reshard_reader_pread", now):
                assert len(file.raw.pread(100, 0)) == 100
            assert not noted.alive, noted.alive
            v = view()
            tensors = v.tensors(1)
            got = tensors.load(progress=lambda done, total, v=v: v.close())
            assert not noted.alive and all(numpy.array_equal(got[name], want[name]) for name in want)
            # The thread that loads cannot wait for the one that waits for it.
            v = view()
            with During("reshard_tensors_load", v.close):
                loads = in_threads(lambda v=v: v.load(1, progress=lambda done, total: None))
                ended(loads)
            assert not noted.alive, noted.alive


def test_collected_in_the_thread_that_a_load_waits_for():
    """Wherever the collector runs there: the load's caller waits for that thread, also before and after its own call."""
    def load(v):
        with contextlib.suppress(ValueError):  # it is closed before that thread begins its call
            v.load(1, progress=lambda done, total: None)

    step, reached = 0, True
    while reached:
        reached = False
        with Noted() as noted:
            v, left = view(), step

            def look(_frame, event, _argument, v=v):
                nonlocal left, reached
                if event not in ("call", "return") or threading.current_thread().name != "reshard load":
                    return
                left -= 1
                if left == -1:
                    reached = True
                    Closing(v)
                    gc.collect()

            threading.setprofile(look)
            try:
                ended(in_threads(lambda v=v: load(v)))
            finally:
                threading.setprofile(None)
            v.close()
            assert not noted.alive, noted.alive
        step += 1
    assert step > 20, step


def test_closed_by_who_hears_of_its_lines():
    """A thread of the library's calls the logger; it cannot wait for the end of itself."""
    opened = []
    handler = logging.Handler()
    handler.emit = lambda record: [v.close() for v in opened]
    logging.getLogger("reshard").addHandler(handler)
    try:
        with Noted() as noted:
            opened.append(view())
            with contextlib.suppress(ValueError):
                for name in opened[0].walk():
                    opened[0].stat(name)
            assert opened[0].closed
            reshard.view._receive(None, 1, b"a line")
            ended(in_threads(opened[0].close))
            assert not noted.alive, noted.alive
    finally:
        logging.getLogger("reshard").removeHandler(handler)


def test_two_views_closed_by_each_other():
    """Two threads, each in a call on one view, close the other's."""
    for _ in range(5):
        with Noted() as noted:
            views, meet = [view(), view()], threading.Barrier(2)

            def work(i, views=views, meet=meet):
                def heard(_done, _total):
                    with contextlib.suppress(threading.BrokenBarrierError):
                        meet.wait(5)
                    views[1 - i].close()
                with contextlib.suppress(ValueError):
                    views[i].load(1, progress=heard)

            ended(in_threads(lambda: work(0), lambda: work(1)))
            for v in views:
                v.close()
            assert not noted.alive


class Interrupted(BaseException):
    pass


def interrupted_at(n, function):
    """Calls a function, which an exception ends at its n-th step: where the interpreter looks for signals. Returns whether it
    came so far."""
    left = n

    def look(frame, event, _argument):
        nonlocal left
        mine = frame.f_code.co_filename.startswith(PACKAGE)
        calls_library = frame.f_code.co_name == "call" and frame.f_code.co_filename == os.path.abspath(__file__)
        if (mine and event in ("call", "c_return")) or (calls_library and event == "return"):
            left -= 1
            if left == 0:
                raise Interrupted

    told, sys.unraisablehook = sys.unraisablehook, lambda _: None  # in a callback of the library it is dropped
    sys.setprofile(look)
    try:
        function()
    except (Interrupted, ValueError):  # io.BufferedReader takes any exception in "closed" for yes
        pass
    finally:
        sys.setprofile(None)
        sys.unraisablehook = told
    return left <= 0


def test_an_exception_at_each_step():
    """Wherever a signal's handler raises, the next close frees all, and does not wait for what has ended."""
    def opening(v):
        file = v.open(FILE)
        file.read(10)
        file.close()

    for work in (lambda v: v.stat(FILE), opening, lambda v: v.tensors(0).load(), lambda v: v.tensors(0).close(),
                 lambda v: v.load(0, progress=lambda done, total: None), lambda v: v.close()):
        n, reached = 0, True
        while reached:
            n += 1
            with Noted() as noted:
                v = view()
                reached = interrupted_at(n, lambda v=v, work=work: work(v))
                ended(in_threads(v.close))
                assert not noted.alive and not _gate._calls, (n, noted.alive, _gate._calls)
        assert n > 5


# ---- forks ---------------------------------------------------------------------------------------

def in_child(function):
    """Calls a function in a forked process, which then ends as programs do; its exit status, 0 if all went well. A signal ends
    one that hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        status = 1
        try:
            function()
            status = 0
        finally:
            if status:
                sys.excepthook(*sys.exc_info())
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_forked_while_a_thread_reads():
    """Another thread of the parent is in each of the calls, with all locks that they take."""
    go = threading.Event()
    v = view()
    buffered, raw, tensors = v.open(FILE), reshard.RawFile(v, FILE), v.tensors(1)
    tensor = tensors["layer1.weight"]
    begun = threading.Semaphore(0)
    library = reshard._library.library()
    own = {name: getattr(library, name) for name in ("reshard_reader_pread", "reshard_getattr", "reshard_tensors_load")}

    def slow(name):
        def call(*given):
            begun.release()
            assert go.wait(120)
            return own[name](*given)
        return call

    for name in own:
        setattr(library, name, slow(name))
    threads = in_threads(lambda: buffered.read(10), lambda: raw.readinto(bytearray(10)), lambda: v.stat(FILE), tensor.numpy)
    for _ in threads:
        assert begun.acquire(timeout=20)
    for name, call in own.items():
        setattr(library, name, call)
    closer = in_threads(v.close)
    while not v.closed:
        time.sleep(0.01)

    def child():
        for call in (lambda: v.stat(FILE), v.listdir, lambda: v.exists(FILE), lambda: list(v.walk()), lambda: v.open(FILE),
                     v.tensors, lambda: v.load(1), v.summary, v.statistics, lambda: buffered.read(1), lambda: buffered.read1(1),
                     lambda: buffered.readinto(bytearray(1)), lambda: buffered.peek(1), buffered.readline, lambda: buffered.seek(0),
                     lambda: next(buffered), lambda: buffered.pread(1, 0), lambda: raw.read(1), raw.readall, lambda: raw.seek(0),
                     lambda: raw.readinto(bytearray(1)), lambda: raw.pread(1, 0), tensor.numpy, lambda: tensor[0], tensors.load):
            error = raises(RuntimeError, call)
            assert "was forked from; try: open it here" in str(error), error
        for one in (buffered, raw, tensors, v):
            one.close()
        with view() as mine, mine.open(FILE) as file:
            assert len(file.read()) == mine.stat(FILE).st_size
            mine.load(1)

    try:
        assert in_child(child) == 0
    finally:
        go.set()
        ended(threads + closer)


# A whole program in the child, with its objects still there, and those of the parent.
ENDS = """
import gc, os, signal, sys, threading, time, reshard
source, src, dst = sys.argv[1:]
v = reshard.View(source, src_strategy=src, dst_strategy=dst)
file, tensors = v.open("rank_0/checkpoint_0.ckpt"), v.tensors(1)
tensors.load()  # Python itself hangs in the child where another thread imports
stop = False
def read():
    while not stop:
        file.seek(0)
        file.read(1000)
        tensors["layer1.weight"].numpy()
        v.stat("rank_1/checkpoint_1.ckpt")
threads = [threading.Thread(target=read, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
children = []
for i in range(12):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        if i % 3 == 0:
            del file, tensors, v
            gc.collect()
        elif i % 3 == 1:
            own = reshard.View(source, src_strategy=src, dst_strategy=dst)
            own.load(0)
        sys.exit(7)
    children.append(child)
got = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
stop = True
for thread in threads:
    thread.join()
print(set(got))
"""


def test_children_end():
    got = subprocess.run([sys.executable, "-B", "-c", ENDS, path("e", "src"), *strategies().values()], capture_output=True,
                         text=True, timeout=300, check=False)
    assert got.stdout == "{7}\n", got


def test_children_read_while_threads_open_and_load():
    """Children open views of their own, whatever the parent's threads were doing at the fork."""
    random, stop, wrong = seeded(), threading.Event(), []
    header = json.dumps({"one": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    header += b" " * (20 << 20)  # of which there is one in memory at a time
    with open(path("long.safetensors"), "wb") as out:
        out.write(len(header).to_bytes(8, "little") + header + b"1")

    def read(rank):
        with view() as v:
            file = v.open(FILE)
            assert len(file.read(100)) == 100 and len(v.load(rank)) > 0
        with reshard.View(path("long.safetensors"), format="pt") as v:
            assert v.tensors()["one"].numpy() == [49]

    def work(rank):
        try:
            while not stop.is_set():
                read(rank)
        except BaseException as why:  # pylint: disable=broad-except
            wrong.append(repr(why))

    read(0)
    threads = in_threads(*[lambda rank=rank: work(rank) for rank in range(4)])
    try:
        for number in range(60):
            time.sleep(random.random() / 100)
            assert in_child(lambda: read(1)) == 0, number
    finally:
        stop.set()
        ended(threads)
    assert not wrong, wrong


def test_forked_by_a_progress_function():
    """The child has no thread that loads, and is told so; the parent's load goes on."""
    parent, children, forked = os.getpid(), [], threading.Event()
    library = reshard._library.library()
    load = library.reshard_tensors_load

    def heard(_done, _total):
        if not children:
            children.append(os.fork())
            if children[0] == 0:
                signal.alarm(60)
            forked.set()

    def slow(*given):
        given[3](None, 1, 2)
        assert forked.wait(60)
        return load(*given)

    with view() as v:
        library.reshard_tensors_load, said = slow, ""
        try:
            v.load(1, progress=heard)
        except RuntimeError as why:
            said = str(why)
        finally:
            library.reshard_tensors_load = load
            if os.getpid() != parent:
                os._exit(0 if "was forked from" in said else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0 and not said, said


def test_a_signal_ends_a_wait_by_an_exception():
    """Memory is written to until the library's call has ended, also where a handler raises something of its own."""
    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    calls = []
    signal.signal(signal.SIGALRM, stop)
    library = reshard._library.library()
    load = library.reshard_tensors_load

    def slow(*given):
        for _ in range(3):
            signal.raise_signal(signal.SIGALRM)
            time.sleep(0.2)
        got = load(*given)
        calls.append(got)
        return got

    with view() as v:
        library.reshard_tensors_load = slow
        try:
            raises(Stop, v.load, 1, progress=lambda done, total: None)
        finally:
            library.reshard_tensors_load = load
        assert len(calls) == 1, calls


def test_no_more_threads():
    """A load for which the system gives no thread fails."""
    said = []

    def load(v):
        said.append(raises(RuntimeError, v.load, 1, progress=lambda done, total: None))

    name = "_start_new_thread" if hasattr(threading, "_start_new_thread") else "_start_joinable_thread"
    start = getattr(threading, name)

    def refuse(function, *given, **named):
        if threading.current_thread().name != "loads":
            return start(function, *given, **named)
        raise RuntimeError("can't start new thread")

    with view() as v:
        setattr(threading, name, refuse)
        try:
            loads = threading.Thread(target=load, args=(v,), name="loads", daemon=True)
            loads.start()
            ended([loads])
        finally:
            setattr(threading, name, start)
        assert "start new thread" in str(said), said


def test_a_handler_reads_the_file_that_is_read():
    with view() as v, v.open(FILE) as file:
        got = []
        with During("reshard_reader_pread", lambda: got.append(file.raw.read(10))):
            assert file.raw.readinto(bytearray(20)) == 20
        assert len(got[0]) == 10


if __name__ == "__main__":
    sys.exit(run(globals(), lambda: tool("example", path("e"))))
