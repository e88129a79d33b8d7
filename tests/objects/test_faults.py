# SPDX-License-Identifier: Apache-2.0
"""A store that fails: right bytes after another try, or an error that says why, and nothing that waits for ever."""
import contextlib
import errno
import os
import pty
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import threading
import time

from harness import *
from test_content import export, exports_through, needs_nginx, publish, same_folders, strategies, tree
import stores

SOON = 20  # seconds for what must not wait for a store, which is left after 30 that it does not answer

# What helps, and what is said when it does not. The first two are in the words of libcurl 7 or 8.
PASSING = {
    "reset": "transfer closed|end of response with",
    "cut": "transfer closed|end of response with",
    "500": "status 500, InternalError: We encountered an internal error",
    "503": "status 503, SlowDown: Please reduce your request rate.",
    "whole": "the whole was sent instead of a range",
    "shifted": "the wrong range was sent",
    "garbage": "HTTP/0.9",
}
LASTING = {
    "403": "status 403, AccessDenied: Access Denied by the proxy",
    "404": "the object was removed",
    "301": "region= and endpoint= of the bucket",
    "307": "region= and endpoint= of the bucket",
    "mixed": "the object was changed",
}


def test_faults_that_pass_are_overcome():
    for fault, requests in exports_through({fault: {"fault": fault, "every": 2} for fault in PASSING}):
        check(any(r[3] == fault for r in requests), f"no request met with {fault}")


def test_faults_that_stay_are_told():
    t = tree(scale=8)
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy:
        env = stores.environment(proxy.url)
        for fault, word in {**PASSING, **LASTING}.items():
            proxy.plan(fault=fault, ranges=True, only="rank_")
            proxy.forget()
            text = export(f"{url}/src", strategies(url) + ",tries=3", fault, env, status=1)
            check(re.search(word, text) and "s3://" in text and "; try: " in text, f"{fault}: the message is {text!r}")
            asked = [r for r in proxy.requests() if r[3] == fault and "rank_0" in r[1]]
            if fault in PASSING:
                check("tried 3 times" in text and len(asked) >= 3, f"{fault}: {text!r} after {len(asked)} requests")


def test_headers_are_read_again_when_a_store_is_well():
    """A rank whose headers could not be read is no failed rank."""
    t = tree(scale=8)
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy, Mount(f"{url}/src", t.options("index_cache=no,tries=2"), env=stores.environment(proxy.url)) as m:
        proxy.plan(fault="500", ranges=True, only="rank_")
        try:
            os.stat(m.file(0))
        except OSError as error:
            equal(error.errno, errno.EIO, "stat while the store is unwell")
        else:
            raise AssertionError("stat needs no header of another rank")
        proxy.plan()
        same_bytes(m.read(0), t.expected(0), "rank 0")


def test_what_hardly_ever_gets_better_is_tried_twice():
    needs_nginx()
    t = tree(scale=8)
    name, where = publish(t.dir)
    server = f"127.0.0.1:{stores.nginx_port}"
    env = stores.environment()
    nobody = "x" * 64 + ".invalid"  # longer than a name may be, so that no other machine is asked
    for url, at, reason, remedy in (
            (f"http://{server}/whole/{name}/src", f"http://{server}", "the whole was sent instead of a range",
             "a server that answers requests for ranges"),
            (f"https://{server}/{name}/src", f"https://{server}", "", "http://, or the port of the server's TLS"),
            (f"http://{nobody}/src", f"http://{nobody}", nobody, "check endpoint= and the network")):
        end = f"{reason} (tried 2 times, at {at}); try: {remedy}"
        for words in ((reshardfs, url, folder("mnt"), "-o", t.options("index_cache=no")), (reshard, "info", url)):
            got = run(*words, env=env)
            equal(got.returncode, 1, f"the status of {words}, with {got.stderr!r}")
            last = got.stderr.splitlines()[-1]
            check(last.startswith(f"{os.path.basename(words[0])}: error: {url}"), f"{words}: {last!r}")
            check(last.endswith(end) or (not reason and "SSL" in last and end in last), f"{words}: {last!r}")
    shutil.rmtree(where)


def test_a_closed_port_is_tried_twice():
    t = tree()
    closed = f"http://127.0.0.1:{stores.free_port()}"
    end = f" (tried 2 times, at {closed}); try: check endpoint= and the network\n"
    for url in (f"{closed}/src", "s3://bucket/src"):
        for words in ((reshardfs, url, folder("mnt"), "-o", t.options()), (reshard, "info", url)):
            got = run(*words, env=stores.environment(closed))
            equal((got.returncode, got.stderr.count("\n")), (1, 1), f"the status and the lines of {words}: {got.stderr!r}")
            check(got.stderr.endswith(end), f"{words}: {got.stderr!r}")


def test_small_files_need_no_ranges():
    """A server that sends the whole file instead is good enough for these; of larger ones it is refused when they are mounted."""
    needs_nginx()
    t = tree(scale=4)
    name, where = publish(t.dir)
    with Mount(f"http://127.0.0.1:{stores.nginx_port}/whole/{name}/src", t.options("index_cache=no"), env=stores.environment()) as m:
        for rank in range(2):
            same_bytes(m.read(rank), t.expected(rank), f"rank {rank}")
        size = len(t.expected(1))
        with open(m.file(1), "rb", buffering=0) as file:
            for at in (size - 1, size // 2, 7, 0):
                file.seek(at)
                same_bytes(file.read(100), t.expected(1)[at:at + 100], f"offset {at}")
    shutil.rmtree(where)


def test_a_strategy_that_is_not_there_is_no_folder():
    t = tree()
    url = stores.upload(t.dir)
    for words in ((reshard, "info", f"{url}/src", "-s", f"{url}/none.ckpt"), (reshard, "verify", f"{url}/src", "-s", f"{url}/none.ckpt"),
                  (reshardfs, f"{url}/src", folder("mnt"), "-o", f"src_strategy={url}/none.ckpt")):
        got = run(*words, env=stores.environment())
        check(got.returncode != 0, f"the status of {words}")
        equal(got.stderr.split(": error: ")[-1], f"{url}/none.ckpt: cannot be read: there is no such object; try: check the path\n", f"{words}")


def test_urls_that_are_not_read_are_named():
    t = tree()
    why = "it begins with none of s3://, hf://, https:// and http://; try: one of these, or a path\n"
    for url in ("az://bucket/src", "s3:/bucket/src", "S3://bucket/src"):
        for words in ((reshardfs, url, folder("mnt"), "-o", t.options()), (reshard, "info", url)):
            got = run(*words, env=stores.environment())
            equal(got.stderr, f"{os.path.basename(words[0])}: error: {url}: the source cannot be reached: {why}", f"{words}")
    got = run(reshard, "info", t.src, "-s", "az://bucket/src.ckpt", env=stores.environment())
    equal(got.stderr, f"reshard: error: az://bucket/src.ckpt: cannot be read: {why}", "a strategy")


def rest_of(terminal):
    """Reads what was written to a terminal that nobody has open any more, and closes it."""
    text = b""
    with contextlib.suppress(OSError):  # EIO is its end
        while more := os.read(terminal, 4096):
            text += more
    os.close(terminal)
    return text.decode()


def test_a_user_at_a_terminal_is_told_of_a_wait():
    with socket.socket() as server:  # which takes connections, and answers none
        server.bind(("127.0.0.1", 0))
        server.listen()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/src"
        env, few = stores.environment(), "timeout=4,tries=1"
        words = [[reshard, "info", url, "-o", few], [reshardfs, url, folder("mnt"), "-o", f"{tree().options()},{few}"]]
        terminals = [pty.openpty() for _ in words]
        ends = [subprocess.Popen(w, stderr=slave, env=env) for w, (_, slave) in zip(words, terminals)]
        beside = run(*words[0], env=env)
        check("tried 1 time" in beside.stderr and "waiting" not in beside.stderr, f"without a terminal: {beside.stderr!r}")
        for program, end, (terminal, slave) in zip(("reshard", "reshardfs"), ends, terminals):
            equal(end.wait(PATIENCE), 1, "the status")
            os.close(slave)
            first, second = rest_of(terminal).splitlines()
            equal(first, f"{program}: waiting for {url}", "the first line")
            check("tried 1 time" in second, f"the second line is {second!r}")


def test_a_throttled_store_is_given_time():
    t = tree()
    url = stores.upload(t.dir)
    with stores.Proxy(fault="429", every=9) as proxy:
        env = stores.environment(proxy.url)
        begin = time.monotonic()
        same_folders(export(f"{url}/src", strategies(url), "got", env), export(t.src, t.options(), "want", env))
        if any(r[3] == "429" for r in proxy.requests()):
            check(time.monotonic() - begin >= 1, "Retry-After: 1 was not kept")


def test_a_stalled_connection_is_left():
    t = tree()
    url = stores.upload(t.dir)
    with stores.Proxy(fault="stall", ranges=True, every=5) as proxy:
        env = stores.environment(proxy.url)
        same_folders(export(f"{url}/src", strategies(url) + ",timeout=3", "got", env),
                     export(t.src, t.options(), "want", env))


def test_a_connection_that_drips_is_left():
    """Five bytes a second are not enough to go on with."""
    t = tree(scale=8)
    url = stores.upload(t.dir)
    with stores.Proxy(fault="drip", ranges=True, only="rank_", every=5) as proxy:
        env = stores.environment(proxy.url)
        same_folders(export(f"{url}/src", strategies(url) + ",timeout=3", "got", env),
                     export(t.src, t.options(), "want", env))
        proxy.plan(fault="drip", ranges=True, only="rank_")
        text = export(f"{url}/src", strategies(url) + ",timeout=3,tries=2", "none", env, status=1)
        check("too slow" in text and "tried 2 times" in text, f"the message is {text!r}")


class Lists(socketserver.StreamRequestHandler):
    """Answers each GET with what server.answer gives for its number, a type and a text; there are folders alone."""

    def handle(self):
        try:
            while line := self.rfile.readline():
                while self.rfile.readline().strip():
                    pass
                if line.startswith(b"HEAD"):
                    found = b"404 Not Found" if b"bucket" in line else b"301 Moved\r\nLocation: /a/"
                    self.wfile.write(b"HTTP/1.1 " + found + b"\r\nContent-Length: 0\r\n\r\n")
                    continue
                self.server.count += 1
                kind, body = self.server.answer(self.server.count)
                head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
                self.wfile.write(head.encode() + body)
        except ConnectionError:
            pass


def listed(answer, url, *more):
    """What `reshard info` says of a store that gives such lists, and how many of them it has asked for."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Lists) as server:
        server.daemon_threads, server.answer, server.count = True, answer, 0
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{server.server_address[1]}"
        got = run(reshard, "info", url or where + "/a", "-o", f"endpoint={where},anonymous", *more, env=stores.environment())
        server.shutdown()
    equal(got.returncode, 1, f"the status, with {got.stderr!r}")
    return got.stderr, server.count


def page(token):
    return "application/xml", (f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{token}"
                               "</NextContinuationToken></ListBucketResult>").encode()


def test_lists_that_never_end():
    text, count = listed(lambda _: page("the-same"), "s3://bucket/a")
    check("goes on with the same page" in text and count < 10, f"{text!r} after {count} pages")
    text, count = listed(lambda n: page(f"token-{n}"), "s3://bucket/a")
    check("more than 10000 pages; try: a longer prefix" in text and count < 30000, f"{text!r} after {count} pages")


def test_lists_that_take_much_memory():
    """Of a web server, 45 MB of links that would take six times as much."""
    links = b"".join(b"<a href='%07d'>\n" % n for n in range(2_500_000))
    text, _ = listed(lambda _: ("text/html", links), None)
    check("would take more than 256 MiB of memory; try: a longer prefix, or files=MAP" in text, f"the message is {text!r}")


def test_after_a_failure_the_next_read_may_succeed():
    t = tree(scale=8)
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy:
        with Mount(f"{url}/src", t.options("tries=1,cache=1M"), env=stores.environment(proxy.url)) as m:
            os.stat(m.file(0))
            proxy.plan(fault="503")
            try:
                m.read(0)
                raise AssertionError("it was read from a store that refuses all")
            except OSError as error:
                equal(error.strerror, "Input/output error", "what reading says")
            proxy.plan()
            same_bytes(m.read(0), t.expected(0), "once the store is well again")


def test_a_reader_can_be_killed_and_the_mount_unmounted_while_the_store_stalls():
    t = tree(scale=8)
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy:
        with Mount(f"{url}/src", t.options(), env=stores.environment(proxy.url)) as m:
            os.stat(m.file(0))
            proxy.plan(fault="stall", ranges=True)
            reader = subprocess.Popen(["cat", m.file(0)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            eventually(lambda: any(r[3] == "stall" for r in proxy.requests()), "the store stalls")
            time.sleep(0.3)
            reader.send_signal(signal.SIGKILL)
            begin = time.monotonic()
            reader.wait(PATIENCE)
            check(time.monotonic() - begin < SOON, "a killed reader waits for the store")
            reader = subprocess.Popen(["cat", m.file(1)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.5)
            begin = time.monotonic()
            equal(run("fusermount3", "-uz", m.mnt).returncode, 0, "fusermount3 -uz")
            reader.kill()
            reader.wait(PATIENCE)
            eventually(lambda: not os.path.exists(f"/proc/{m.pid}"), "the server ends")
            check(time.monotonic() - begin < SOON, "the unmount waits for the store")
            m.stop = lambda: None


def test_many_readers_at_once():
    t = tree(scale=4)
    url = stores.upload(t.dir)
    failures = []

    def read(m, rank):
        try:
            same_bytes(m.read(rank), t.expected(rank), f"rank {rank}")
        except Exception as error:
            failures.append(error)

    with stores.Proxy(fault="any", every=7) as proxy:
        with Mount(f"{url}/src", t.options("cache=1M"), env=stores.environment(proxy.url)) as m:
            threads = [threading.Thread(target=read, args=(m, i % 2)) for i in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    equal(failures, [], "failures")
