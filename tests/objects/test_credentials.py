# SPDX-License-Identifier: Apache-2.0
"""Credentials that services give for a while, and buckets in other regions than one thinks."""
import errno
import http.server
import json
import os
import shutil
import threading
import time
import urllib.parse

from harness import *
from test_sandbox import SANITIZED, need_landlock
from test_secrets import acts
from test_content import export, exports_through, needs_nginx, publish, same_folders, strategies, tree
import stores

SOON = 302  # seconds until they end: of these, 300 are kept back


class Service(http.server.BaseHTTPRequestHandler):
    """What instances (IMDSv2), containers (ECS, EKS) and web identities (STS) ask for credentials, which it numbers."""
    protocol_version = "HTTP/1.1"

    def answer(self, text, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def credentials(self, write=json.dumps, token="Token"):
        if self.server.away:
            self.answer("", 500)
            return
        self.server.given += 1
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.server.seconds))
        self.answer(write({"Code": "Success", "AccessKeyId": f"AKIA{self.server.name}{self.server.given}", "SecretAccessKey": "s" * 40,
                           token: "t" * 200, "Expiration": ends}))

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if form.get("WebIdentityToken") == [self.server.secret()] and form.get("RoleArn", [""])[0].endswith(f"/{self.server.name}"):
            self.credentials(lambda given: "".join(f"<{k}>{v}</{k}>" for k, v in given.items()), "SessionToken")
        else:
            self.answer("", 403)

    def do_PUT(self):
        good = self.path == "/latest/api/token" and int(self.headers["X-aws-ec2-metadata-token-ttl-seconds"]) > 0
        self.answer("the-token" if good else "", 200 if good else 400)

    def do_GET(self):
        role = "/latest/meta-data/iam/security-credentials/"
        if self.path.startswith(role):
            if self.headers["X-aws-ec2-metadata-token"] != "the-token":
                self.answer("", 401)
            elif self.path == role:
                self.answer("the-role")
            elif self.path == role + "the-role":
                self.credentials()
            else:
                self.answer("", 404)
        elif self.path == "/container" and self.headers["Authorization"] == self.server.secret():
            self.credentials()
        else:
            self.answer("", 403)

    def log_message(self, *_):
        pass


class Metadata:
    def __init__(self, seconds=3600, secret=lambda: None, name="GIVEN"):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
        self.server.given, self.server.seconds, self.server.secret = 0, seconds, secret
        self.server.away, self.server.name = False, name
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def nobody(url, **more):
    """An environment without credentials of its own."""
    home = folder("home")
    return stores.environment(url, AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, AWS_SESSION_TOKEN=None, HOME=home, **more)


def keys(proxy):
    return [r[6] for r in proxy.requests() if len(r) > 6 and r[6] != "-"]


def is_renewed(t, url, env, proxy, service):
    """A mount that reads for longer than its credentials last asks for others, and uses them."""
    with Mount(f"{url}/src", t.options("index_cache=no,cache=1M"), env=env) as m:
        same_bytes(m.read(0), t.expected(0), "rank 0")
        first = set(keys(proxy))
        check(first and all(k.startswith("AKIAGIVEN") for k in first), f"the keys are {first}")
        given = service.server.given
        time.sleep(SOON - 300 + 1)
        proxy.forget()
        same_bytes(m.read(1), t.expected(1), "rank 1")
        check(service.server.given > given, f"they were given {given} times, and not again")
        later = set(keys(proxy))
        check(later and not later & first, f"the keys are {first}, then {later}")


def test_an_instance():
    t = tree(scale=8)
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy, Metadata(SOON) as service:
        env = nobody(proxy.url, AWS_EC2_METADATA_DISABLED=None, AWS_EC2_METADATA_SERVICE_ENDPOINT=service.url)
        is_renewed(t, url, env, proxy, service)


def test_a_container_with_a_token():
    t = tree(scale=8)
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy, Metadata(SOON, lambda: "the-secret") as service:
        env = nobody(proxy.url, AWS_CONTAINER_CREDENTIALS_FULL_URI=service.url + "/container",
                     AWS_CONTAINER_AUTHORIZATION_TOKEN="the-secret")
        is_renewed(t, url, env, proxy, service)


def test_a_container_whose_address_only_looks_near():
    """What comes before an @ is no host."""
    t = tree()
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy, Metadata(3600, lambda: "the-secret") as service:
        port = service.server.server_address[1]
        env = nobody(proxy.url, AWS_CONTAINER_AUTHORIZATION_TOKEN="the-secret")
        for uri in (f"http://localhost:1@0.0.0.0:{port}/container", f"http://0.0.0.0:{port}/container"):
            text = export(f"{url}/src", strategies(url), "none", {**env, "AWS_CONTAINER_CREDENTIALS_FULL_URI": uri}, status=1)
            check("there are no credentials for s3://" in text, f"{uri}: {text!r}")
        equal(service.server.given, 0, "the token was sent")


def test_the_file_of_a_token_in_the_sandbox():
    """It can be read again, and nothing beside it."""
    if SANITIZED:
        return
    need_landlock()
    t = tree()
    url = stores.upload(t.dir)
    path, other = (os.path.join(folder("tokens"), name) for name in ("token", "other"))
    for file in (path, other):
        with open(file, "w") as out:
            out.write("the-secret")
    with stores.Proxy() as proxy, Metadata(3600, lambda: "the-secret") as service:
        env = nobody(proxy.url, AWS_CONTAINER_CREDENTIALS_FULL_URI=service.url + "/container",
                     AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=path)
        equal(acts(url, strategies(url), env, "read", path), 0, "reading the token")
        equal(acts(url, strategies(url), env, "read", other), errno.EACCES, "reading another")


def test_a_container_with_a_file_that_changes():
    t = tree(scale=8)
    url = stores.upload(t.dir)
    path = os.path.join(folder("tokens"), "token")
    turns = []

    def write():
        """As Kubernetes does: the name is a link, which leads to another file each time."""
        turns.append(f"secret-{len(turns)}")
        target = f"{path}-{len(turns)}"
        with open(target, "w") as file:
            file.write(turns[-1])
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(target, path)
        return turns[-1]

    write()

    def secret():
        return turns[-1]

    with stores.Proxy() as proxy, Metadata(SOON, secret) as service:
        env = nobody(proxy.url, AWS_CONTAINER_CREDENTIALS_FULL_URI=service.url + "/container",
                     AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=path)
        timer = threading.Timer(1.0, write)
        timer.start()
        is_renewed(t, url, env, proxy, service)
        timer.join()


def test_a_web_identity():
    """moto's STS gives a role for any token."""
    t = tree()
    url = stores.upload(t.dir)
    path = os.path.join(folder("tokens"), "token")
    with open(path, "w") as file:
        file.write("the.web/identity+token\n")
    with stores.Proxy() as proxy:
        env = nobody(proxy.url, AWS_WEB_IDENTITY_TOKEN_FILE=path, AWS_ROLE_ARN="arn:aws:iam::123456789012:role/reader",
                     AWS_ENDPOINT_URL_STS=f"http://127.0.0.1:{stores.s3_port}")
        same_folders(export(f"{url}/src", strategies(url), "got", env), export(t.src, t.options(), "want", env))
        check(keys(proxy) and all(k.startswith("ASIA") for k in keys(proxy)), f"the keys are {set(keys(proxy))}")


def write_profile(home, text, name="credentials"):
    os.makedirs(os.path.join(home, ".aws"), exist_ok=True)
    with open(os.path.join(home, ".aws", name), "w") as file:
        file.write(text)


DEFAULT = "[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = s\n"


def test_credentials_that_do_not_end_are_never_exchanged_for_others():
    """A store that calls them expired gets no others: not those of a profile, nor the instance's."""
    t = tree(scale=8)
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy, Metadata() as service:
        of_profile = nobody(proxy.url, AWS_EC2_METADATA_DISABLED=None, AWS_EC2_METADATA_SERVICE_ENDPOINT=service.url,
                            AWS_SHARED_CREDENTIALS_FILE=None)
        write_profile(of_profile["HOME"], DEFAULT)
        by_variables = {**of_profile, "AWS_ACCESS_KEY_ID": stores.KEY, "AWS_SECRET_ACCESS_KEY": stores.SECRET}
        for given, key in ((by_variables, stores.KEY), (of_profile, "AKIADEFAULT")):
            proxy.plan()
            proxy.forget()
            with Mount(f"{url}/src", t.options("index_cache=no,cache=1M"), env=given) as m:
                same_bytes(m.read(0), t.expected(0), "rank 0")
                proxy.plan(fault="expired")
                try:
                    m.read(1)
                    raise AssertionError("it was read with credentials that are refused")
                except OSError as error:
                    equal(error.strerror, "Input/output error", "what reading says")
            equal(set(keys(proxy)), {key}, "who has asked")
        equal(service.server.given, 0, "credentials that the instance gave")


def test_credentials_that_end_are_exchanged_for_others_of_their_kind():
    t = tree(scale=8)
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy, Metadata() as service:
        env = nobody(proxy.url, AWS_EC2_METADATA_DISABLED=None, AWS_EC2_METADATA_SERVICE_ENDPOINT=service.url,
                     AWS_SHARED_CREDENTIALS_FILE=None)
        write_profile(env["HOME"], "")
        with Mount(f"{url}/src", t.options("index_cache=no,cache=1M"), env=env) as m:
            same_bytes(m.read(0), t.expected(0), "rank 0")
            write_profile(env["HOME"], DEFAULT)
            first = set(keys(proxy))
            proxy.plan(fault="expired", ranges=True, every=2)
            same_bytes(m.read(1), t.expected(1), "rank 1")
            asked = set(keys(proxy))
        check(first < asked and all(k.startswith("AKIAGIVEN") for k in asked), f"the keys are {first}, then {asked}")


def test_what_is_asked_for_and_gives_none_is_an_error():
    """Whatever other credentials there are: those would be somebody else's."""
    t = tree()
    url = stores.upload(t.dir)
    profile = "[default]\n{}\n"
    kinds = {
        "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not": {"AWS_ACCESS_KEY_ID": "A"},
        "the file of AWS_WEB_IDENTITY_TOKEN_FILE cannot be read":
            {"AWS_WEB_IDENTITY_TOKEN_FILE": "/none", "AWS_ROLE_ARN": "arn:aws:iam::1:role/r"},
        "AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not": {"AWS_WEB_IDENTITY_TOKEN_FILE": "/etc/hostname"},
        "AWS_ROLE_ARN was not given to AWS_WEB_IDENTITY_TOKEN_FILE":
            {"AWS_WEB_IDENTITY_TOKEN_FILE": "/etc/hostname", "AWS_ROLE_ARN": "arn:aws:iam::1:role/r",
             "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:1"},
        "the container's service, which the environment names, gave none": {"container": True},
        "the profile 'default' has sso_session, which is not read": {"profile": profile.format("sso_session = x")},
        "the profile 'default' has aws_access_key_id and no aws_secret_access_key":
            {"profile": profile.format("aws_access_key_id = x")},
    }
    with stores.Proxy() as proxy, Metadata(secret=lambda: "another") as service:
        for said, how in kinds.items():
            env = nobody(proxy.url, AWS_EC2_METADATA_DISABLED=None, AWS_EC2_METADATA_SERVICE_ENDPOINT=service.url,
                         AWS_SHARED_CREDENTIALS_FILE=None, AWS_CONFIG_FILE=None)
            write_profile(env["HOME"], how.pop("profile", DEFAULT if "AWS_ACCESS_KEY_ID" in how else ""))
            if how.pop("container", False):
                env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = service.url + "/container"
            text = export(f"{url}/src", strategies(url), "none", {**env, **how}, status=1)
            check(f"there are no credentials for s3://: {said}" in text, f"{said}: {text!r}")
            equal((proxy.requests(), service.server.given), ([], 0), f"who was asked after: {said}")


def test_a_bucket_in_another_region():
    plans = {how: {"region": "eu-west-7", "how": how} for how in ("301", "400")}
    for how, requests in exports_through(plans):
        wrong = [r for r in requests if r[3] == how]
        check(0 < len(wrong) <= 4, f"{len(wrong)} requests went to the wrong region")


def named(proxy, host):
    """The proxy's URL by a name of this machine's."""
    return proxy.url.replace("127.0.0.1", host)


def test_redirections_of_a_store_are_followed_to_its_provider_alone():
    t = tree()
    url = stores.upload(t.dir)
    with stores.Proxy(host=True) as first, stores.Proxy(host=True) as second:
        env = stores.environment(named(first, "s3.localhost"))
        want = export(t.src, t.options(), "want", env)
        for status in (301, 302, 307, 308):
            first.plan(fault="leads", status=status, to=named(second, "eu.s3.localhost"))
            first.forget()
            second.forget()
            same_folders(export(f"{url}/src", strategies(url) + ",path_style", f"got-{status}", env), want)
            check(0 < len(first.requests()) <= 4, f"{len(first.requests())} requests were led elsewhere")
            equal(set(keys(second)), {stores.KEY}, "signed for the other host")
        second.forget()
        for to in (named(second, "s3.other.localhost"), second.url, "https:" + second.url.removeprefix("http:")):
            first.plan(fault="leads", status=307, to=to)
            text = export(f"{url}/src", strategies(url) + ",path_style", "none", env, status=1)
            check("where no signature is sent" in text and "try: region= and endpoint= of the bucket" in text, f"to {to}: {text!r}")
        equal(second.requests(), [], "requests to another provider")


def test_redirections_of_a_web_server_are_followed_without_credentials():
    needs_nginx()
    t = tree(scale=4)
    name, where = publish(t.dir)
    with stores.Proxy(upstream=stores.nginx_port) as first, stores.Proxy(upstream=stores.nginx_port) as second:
        for status in (301, 302, 307, 308):
            first.plan(fault="leads", status=status, to=named(second, "web.localhost"))
            second.forget()
            url = f"{first.url}/{name}"
            with Mount(f"{url}/src", strategies(url) + ",index_cache=no", env=stores.environment()) as m:
                for rank in range(2):
                    same_bytes(m.read(rank), t.expected(rank), f"rank {rank} by status {status}")
            asked = second.requests()
            check(any(r[2].startswith("bytes=") for r in asked), f"the requests are {asked}")
            equal({r[6] for r in asked}, {"-"}, "keys in requests")
    shutil.rmtree(where)
