# SPDX-License-Identifier: Apache-2.0
"""Who asks the store is told to the store alone, and signatures are right."""
import json
import os
import re
import subprocess
import urllib.parse
import urllib.request

from harness import *
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
    if os.geteuid() != 0 or b"__asan_init" in read_all(reshardfs):
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


def test_the_index_and_the_manifest_have_none():
    t = tree()
    url = stores.upload(t.dir)
    env = {**stores.environment(), "XDG_CACHE_HOME": folder("cache")}
    got = export(f"{url}/src", strategies(url), "got", env)
    for where in (got, env["XDG_CACHE_HOME"]):
        for base, _, names in os.walk(where):
            for name in names:
                search(read_all(os.path.join(base, name)), name)


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
