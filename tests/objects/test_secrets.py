# SPDX-License-Identifier: Apache-2.0
"""Who asks the store is told to the store alone, and signatures are right."""
import errno
import json
import os
import re
import shutil
import signal
import socketserver
import subprocess
import threading
import urllib.parse
import urllib.request

from harness import *
from test_access import NOBODY
from test_sandbox import SANITIZED, need_landlock, shim
from test_content import export, same_folders, strategies, tree
import stores


def search(text, where, words=(stores.SECRET, stores.TOKEN)):
    for word in words:
        check(word.encode() not in text, f"a credential is in {where}")


def kept_in_a_core(pid):
    """What a core file would hold: all that can be written or is anonymous, and was not left out of it."""
    with open(f"/proc/{pid}/smaps") as file:
        text = file.read()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for part in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", text)[1:]:
            begin, end = (int(n, 16) for n in part.split(" ", 1)[0].split("-"))
            flags = re.search(r"VmFlags: (.*)", part)[1].split()
            if "dd" in flags or "rd" not in flags or "[v" in part.split("\n", 1)[0]:
                continue
            memory.seek(begin)
            try:
                yield memory.read(end - begin)
            except OSError:
                pass


def search_core(pid):
    """Not of a program with AddressSanitizer: its library has a copy of the environment."""
    if os.geteuid() != 0 or sanitized("asan"):
        return
    parts = list(kept_in_a_core(pid))
    check(sum(map(len, parts)) > 1 << 20, "the memory was not read")
    for part in parts:
        search(part, "what a core would hold", (stores.SECRET,))


def test_no_output_has_a_credential():
    t = tree()
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy:
        with Foreground(f"{url}/src", strategies(url) + ",log_level=debug,tries=2", "--debug",
                        env=stores.environment(proxy.url)) as m:
            m.read(0)
            proxy.plan(fault="403")
            try:
                m.read(1)
            except OSError:
                pass
            pid = m.process.pid
            search(m.log().encode(), "the log")
            # With a secret, only root may look into the process.
            for name in ("cmdline", *(["environ"] if os.geteuid() == 0 else [])):
                search(read_all(f"/proc/{pid}/{name}"), name)
            check(b"\0" in read_all(f"/proc/{pid}/cmdline"), "cmdline can be read")
            hidden = os.path.join(m.mnt, ".reshardfs")
            for name in os.listdir(hidden):
                if os.path.isfile(os.path.join(hidden, name)):
                    search(read_all(os.path.join(hidden, name)), name)
            for name in os.listxattr(m.file(0)) + os.listxattr(m.mnt):
                try:
                    search(os.getxattr(m.file(0), name), name)
                except OSError:
                    pass
            with open(f"/proc/{pid}/limits") as limits:
                check(re.search(r"core file size +0 +0", limits.read()), "core files are possible")
            search_core(pid)


def test_a_store_that_repeats_the_token():
    """It has it from the requests; its messages go to logs."""
    t = tree()
    url = stores.upload(t.dir)
    with stores.Proxy(fault="repeats") as proxy:
        text = export(f"{url}/src", strategies(url), "none", stores.environment(proxy.url), status=1)
    check("InvalidToken: no **" in text, f"the store's message is missing: {text!r}")
    search(text.encode(), "the message", [stores.TOKEN[i:i + 8] for i in range(len(stores.TOKEN) - 7)])


def test_a_command_that_reads_objects_is_guarded():
    """As a mount is: no core file, wherever it would go; nothing in the environment."""
    needs_programs_of_all()
    t = tree()
    url = stores.upload(t.dir)
    with stores.Proxy(fault="stall", ranges=True) as proxy:
        command = [reshard, "verify", f"{url}/src", "-o", strategies(url)]
        if os.geteuid() == 0:
            command[:0] = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        process = subprocess.Popen(command, env=stores.environment(proxy.url), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: any(r[3] == "stall" for r in proxy.requests()), "it reads")
            equal(os.stat(f"/proc/{process.pid}/mem").st_uid, 0, "who may look into its memory")
            with open(f"/proc/{process.pid}/limits") as limits:
                check(re.search(r"core file size +0 +0", limits.read()), "core files are possible")
            if os.geteuid() == 0:
                search(read_all(f"/proc/{process.pid}/environ"), "environ")
            search_core(process.pid)
        finally:
            process.kill()
            process.wait()


def test_settings_of_a_program_with_more_rights():
    """Its user does not choose the store that it asks."""
    needs_programs_of_all()
    need(os.geteuid() == 0, "only root can make a program set-user-ID")
    program = os.path.join(folder("bin"), "reshardfs")
    shutil.copy(reshardfs, program)
    os.chmod(program, 0o4755)
    t = tree()
    url = stores.upload(t.dir, acl="public-read")
    with stores.Proxy() as proxy:
        # AWS itself is out of reach.
        env = stores.environment(proxy.url, https_proxy="http://127.0.0.1:9")
        for file, mode, asked in ((reshardfs, 0o755, True), (program, 0o4755, False)):
            equal(os.stat(file).st_mode & 0o7777, mode, "the program's mode")
            proxy.forget()
            run("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", file, "--check", f"{url}/src", "-o",
                strategies(url) + ",anonymous,tries=1,index_cache=no", env=env)
            equal(bool(proxy.requests()), asked, f"requests of a program with mode {mode:o}")


def acts(url, options, env, how, path="/nothing"):
    """How a server ends that does something else (tests/mount/misbehave.c), after it has shown a rank."""
    with Foreground(f"{url}/src", f"{options},sandbox=on,index_cache=no",
                    env={**env, **shim(RFS_MISBEHAVE=how, RFS_MISBEHAVE_PATH=path), "HOME": env["HOME"]}) as m:
        m.read(0)
        m.process.send_signal(signal.SIGUSR1)
        end = m.process.wait(PATIENCE)
        eventually(lambda: not mounted(m.mnt), f"{how}: the mount is gone with its server")
        return end


def test_connections_in_the_sandbox():
    """To stores alone: to no socket of this machine, and to nothing else of the kernel than addresses and routes."""
    if SANITIZED:
        return
    need_landlock()
    t = tree()
    url = stores.upload(t.dir)
    env = {**stores.environment(), "HOME": folder("home")}
    for how, want in (("socketpair", 0), ("socketpair of datagrams", -signal.SIGSYS), ("netlink", 0),
                      ("netlink of events", -signal.SIGSYS), ("execve", -signal.SIGSYS)):
        equal(acts(url, strategies(url), env, how), want, f"the end of a server that calls {how}")


def test_files_of_credentials_in_the_sandbox():
    """Those of a profile are read once, and no other file beside them can be read."""
    if SANITIZED:
        return
    need_landlock()
    t = tree(scale=4)
    url = stores.upload(t.dir)
    home = folder("home")
    os.makedirs(os.path.join(home, ".aws", "sso", "cache"))
    for name in ("credentials", "config", "sso/cache/token.json"):
        with open(os.path.join(home, ".aws", name), "w") as file:
            file.write(f"[default]\naws_access_key_id = {stores.KEY}\naws_secret_access_key = {stores.SECRET}\n"
                       f"endpoint_url = http://127.0.0.1:{stores.s3_port}\n")
    gone = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_CONFIG_FILE",
            "AWS_SHARED_CREDENTIALS_FILE")
    env = stores.environment(**{name: None for name in gone}, HOME=home)
    with Mount(f"{url}/src", strategies(url) + ",index_cache=no,sandbox=on", env=env) as m:
        for rank in range(2):
            same_bytes(m.read(rank), t.expected(rank), f"rank {rank}")
    for name in ("credentials", "config", "sso/cache/token.json"):
        equal(acts(url, strategies(url), env, "read", os.path.join(home, ".aws", name)), errno.EACCES, f"reading {name}")


def test_the_index_and_the_manifest_have_none():
    t = tree()
    url = stores.upload(t.dir)
    env = {**stores.environment(), "XDG_CACHE_HOME": folder("cache")}
    got = export(f"{url}/src", strategies(url), "got", env)
    for where in (got, env["XDG_CACHE_HOME"]):
        for base, _, names in os.walk(where):
            for name in names:
                search(read_all(os.path.join(base, name)), name)


class Count(socketserver.BaseRequestHandler):
    def handle(self):
        self.server.asked += 1


class Nobody:
    """A host that nobody may ask: counts who does, and answers nothing."""

    def __enter__(self):
        self.server = socketserver.TCPServer(("127.0.0.1", 0), Count)
        self.server.asked = 0
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def asked(self):
        return self.server.asked > 0


def commands(t, url, out):
    """Each command that reads URLs, with what it takes options by: -o, or nothing."""
    src, strategy = f"{url}/src", f"{url}/src_strategy.ckpt"
    both = (f"src_strategy={strategy}", f"dst_strategy={url}/dst_strategy.ckpt")
    yield "export", [src, f"{out}/export"], "-o", both
    yield "export", [t.src, f"{out}/local"], "-o", both
    yield "info", [src], "-o", both[:1]
    yield "info", [strategy], "-o", ()
    yield "explain", [src], "-o", both
    yield "verify", [f"{url}/src", "-s", strategy], "-o", ()
    yield "verify", [f"{out}/export", "--against", src, "-s", strategy, "-d", f"{url}/dst_strategy.ckpt"], "-o", ()
    yield "diff", [src, t.src, "-s", strategy, "-d", strategy], "-o", ()
    yield "diff", [t.src, src, "-s", f"{t.dir}/src_strategy.ckpt", "-d", strategy], "-o", ()
    yield "stats", [src, "-s", strategy], "-o", ()
    yield "get", [src, "rows", f"{out}/w.npy", "-s", strategy], "-o", ()
    yield "strategy", ["show", strategy], "-o", ()
    yield "strategy", ["show", f"{t.dir}/src_strategy.ckpt", "--tree", src], "-o", ()
    yield "strategy", ["convert", strategy, f"{out}/s.json"], "-o", ()
    yield "strategy", ["merge", f"{out}/m.ckpt", strategy], "-o", ()
    yield "strategy", ["check", strategy, src], "-o", ()
    yield "strategy", ["new", f"{out}/n.ckpt", "--rules", "*: whole", "--ranks", "2", "-s", strategy], "-o", ()
    yield "strategy", ["show", strategy, "rows"], None, ()
    yield "ranks", ["-s", strategy, "-d", f"{url}/dst_strategy.ckpt"], None, ()


def test_no_store_is_asked_before_the_options_are_in_force():
    t = tree()
    url = stores.upload(t.dir)
    out = folder("out")
    with Nobody() as nobody:
        env = stores.environment(nobody.url)
        by_variable = {**env, "RESHARDFS_ENDPOINT": f"http://127.0.0.1:{stores.s3_port}", "RESHARDFS_TRIES": "3"}
        for command, arguments, flag, options in commands(t, url, out):
            if flag:
                given = [flag, ",".join((*options, f"endpoint=http://127.0.0.1:{stores.s3_port}"))]
                got = run(reshard, command, *arguments, *given, env=env)
                equal(got.returncode, 0, f"the status of {command} {arguments}, which says {got.stderr!r}")
                check(not nobody.asked(), f"{command} {arguments} {given} asks the store of the environment")
            more = ["--force"] * (command in ("export", "get") or arguments[0] in ("convert", "merge", "new"))
            given = [flag, ",".join(options)] if options else []
            got = run(reshard, command, *arguments, *given, *more, env=by_variable)
            equal(got.returncode, 0, f"the status of {command} {arguments} by a variable, which says {got.stderr!r}")
            check(not nobody.asked(), f"{command} {arguments} does not heed RESHARDFS_ENDPOINT")
        for name, value, word in (("TRIES", "x", "tries=x"), ("PATH_STYLE", "perhaps", "on or off")):
            got = run(reshard, "strategy", "show", f"{url}/src_strategy.ckpt", env={**by_variable, f"RESHARDFS_{name}": value})
            check(got.returncode == 2 and f"RESHARDFS_{name}: " in got.stderr and word in got.stderr, f"{name}: {got}")
        with Mount(f"{url}/src", strategies(url) + f",endpoint=http://127.0.0.1:{stores.s3_port}", env=env) as m:
            same_bytes(m.read(0), t.expected(0), "rank 0")
        check(not nobody.asked(), "a mount asks the store of the environment")


def iam(action, **arguments):
    body = urllib.parse.urlencode({"Action": action, "Version": "2010-05-08", **arguments}).encode()
    what = urllib.request.Request(
        f"http://127.0.0.1:{stores.s3_port}/", data=body,
        headers={"Authorization": "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/iam/aws4_request, "
                                  "SignedHeaders=host, Signature=0", "Host": "iam.amazonaws.com",
                 "Content-Type": "application/x-www-form-urlencoded"})
    with urllib.request.urlopen(what) as answer:
        return answer.read().decode()


def count_of_requests_before_signatures_count(n):
    stores.request("/moto-api/reset-auth", str(n).encode(), "POST")


@alone
def test_signatures_are_right():
    """moto computes them anew, by botocore, once it is told to."""
    t = tree()
    url = stores.upload(t.dir, prefix="a b/c+d=~ä&'!*()")
    everything = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
    iam("CreateUser", UserName="reader")
    iam("PutUserPolicy", UserName="reader", PolicyName="all", PolicyDocument=json.dumps(everything))
    text = iam("CreateAccessKey", UserName="reader")
    key, secret = (re.search(f"<{n}>(.*?)</{n}>", text)[1] for n in ("AccessKeyId", "SecretAccessKey"))
    env = stores.environment(AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret, AWS_SESSION_TOKEN=None)
    count_of_requests_before_signatures_count(0)
    try:
        got = export(f"{url}/src", strategies(url), "got", env)
        wrong = export(f"{url}/src", t.options(), "wrong", {**env, "AWS_SECRET_ACCESS_KEY": secret[::-1]}, status=1)
    finally:
        count_of_requests_before_signatures_count(1 << 40)
    same_folders(got, export(t.src, t.options(), "want", env))
    check("SignatureDoesNotMatch" in wrong or "status 403" in wrong, f"a wrong secret is told by {wrong!r}")
