# SPDX-License-Identifier: Apache-2.0
"""Views of one process that are reached by different options: each by its own, and by nothing of another's."""
import contextlib
import json
import os
import random
import re
import shutil
import sys
import time

from forge import Tree, usual
from harness import *
from hub import Hub
from loading import program
from test_content import SETTLED, export, needs_nginx, publish, same_folders, strategies, tree
from test_credentials import SOON, Metadata, keys, nobody
from test_sandbox import SANITIZED
from test_secrets import count_of_requests_before_signatures_count, iam
import stores


def write_profiles(**profiles):
    """A home with the keys of these profiles."""
    home = folder(f"home-{time.monotonic_ns()}")
    os.mkdir(os.path.join(home, ".aws"))
    with open(os.path.join(home, ".aws", "credentials"), "w") as file:
        for name, (key, secret) in profiles.items():
            file.write(f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    return home


def views(where, env, *views, last=0, pause=0, status=0):
    """Reads all views at once (views.c), the last one longest; returns what is printed."""
    seed = int(os.environ.get("RFS_SEED") or random.randrange(1000))
    got = run(program("tests/objects/views"), where, str(last), str(pause), str(seed), *(text for view in views for text in view), env=env)
    equal(got.returncode, status, f"the status with seed {seed}, with {got.stdout!r}, {got.stderr!r}")
    return got.stdout


class Locked(stores.Other):
    """A server of its own that knows one key, and computes all signatures anew by botocore. BUCKET has a tree."""

    def __init__(self, t, bucket="shared"):
        self.tree, self.bucket = t, bucket

    def __enter__(self):
        super().__enter__()
        stores.upload(self.tree.dir, bucket=self.bucket)
        everything = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
        iam("CreateUser", UserName="reader")
        iam("PutUserPolicy", UserName="reader", PolicyName="all", PolicyDocument=json.dumps(everything))
        text = iam("CreateAccessKey", UserName="reader")
        self.key = tuple(re.search(f"<{n}>(.*?)</{n}>", text)[1] for n in ("AccessKeyId", "SecretAccessKey"))
        count_of_requests_before_signatures_count(0)
        self.leave()
        return self


def two_trees(scale=2):
    """Of the same names and sizes, with other bytes."""
    return [Tree(folder(f"tree-{v}"), usual(scale=scale), 4, 2, version=v) for v in range(2)]


@contextlib.contextmanager
def two_stores(trees):
    """Two servers that have an object of each name, and know a key each; and the environment with both as profiles."""
    with Locked(trees[0]) as one, Locked(trees[1]) as two, stores.Proxy(one.port) as to_one, stores.Proxy(two.port) as to_two:
        home = write_profiles(one=one.key, two=two.key)
        # What no profile has is wrong, and so is the endpoint of the environment.
        env = stores.environment("http://127.0.0.1:1", AWS_SHARED_CREDENTIALS_FILE=None, AWS_SESSION_TOKEN=None, HOME=home)
        yield (one, to_one), (two, to_two), env


def view(t, proxy, *more, url="s3://shared/run/src"):
    return url, t.options(",".join((f"endpoint={proxy.url}", "region=us-east-1", *more)))


def want_of(t):
    return export(t.src, t.options(), f"want-{time.monotonic_ns()}", stores.environment())


def test_two_identities_at_once():
    """The same URL at two endpoints is two objects. Headers that one view kept are no other's, whoever is closed first."""
    trees = two_trees()
    wants = [want_of(t) for t in trees]
    with two_stores(trees) as ((one, to_one), (two, to_two), env):
        kept = folder("kept")
        sides = [view(trees[0], to_one, "profile=one", f"index_cache={kept}", "cache=1M"),
                 view(trees[1], to_two, "profile=two", f"index_cache={kept}", "cache=1M")]
        for turn, order in enumerate(((0, 1), (1, 0), (0, 1))):
            where = folder(f"views-{turn}")
            equal(views(where, env, *(sides[i] for i in order), last=turn % 2), "OK\n", "what it says")
            for at, i in enumerate(order):
                same_folders(os.path.join(where, str(at)), wants[i])
            time.sleep(SETTLED if turn == 0 else 0)  # until objects count as left alone, and headers are kept
        equal((set(keys(to_one)), set(keys(to_two))), ({one.key[0]}, {two.key[0]}), "who asked whom")
        # What was right above is refused with the other's identity, and with that of the environment.
        for wrong in ("profile=two", "cache=1M"):
            said = views(folder(f"wrong-{wrong}"), env, sides[1], view(trees[0], to_one, wrong), status=1)
            check("view 1: " in said and "status 403, InvalidAccessKeyId" in said, f"{wrong}: {said!r}")


def test_an_identity_of_the_environment():
    """It is the one that the environment has when a view is opened, though a view with equal options is open."""
    trees, users = two_trees(), ("AKIAFIRST", "AKIASECOND")
    urls = [stores.upload(t.dir, prefix=f"of-{user}") for t, user in zip(trees, users)]
    with stores.Proxy() as proxy:
        env = stores.environment(proxy.url, AWS_SESSION_TOKEN=None)
        where = folder("views")
        views(where, env, *((f"{url}/src", f"AWS_ACCESS_KEY_ID={user};{t.options()}") for url, t, user in zip(urls, trees, users)))
        for at, t in enumerate(trees):
            same_folders(os.path.join(where, str(at)), want_of(t))
        for user in users:
            equal({r[6] for r in proxy.requests() if f"of-{user}" in r[1]}, {user}, "who asks for objects")


def test_hubs_of_the_environment():
    """A view stays at the hub that it was opened at, whose token goes to no other one."""
    trees = two_trees()
    with Hub() as one, Hub() as two:
        sides = []
        for hub, t in ((one, trees[0]), (two, trees[1])):
            hub.push_folder("acme/net", t.dir)
            hub.private, hub.token = True, f"hf_{hub.url.rpartition(':')[2]}"
            sides.append(("hf://acme/net/src", f"HF_ENDPOINT={hub.url};HF_TOKEN={hub.token};{t.options('cache=1M')}"))
        where = folder("views")
        views(where, stores.environment(HF_HOME=folder("no-home")), *sides)
        for at, (hub, t) in enumerate(((one, trees[0]), (two, trees[1]))):
            same_folders(os.path.join(where, str(at)), want_of(t))
            equal({token for _, _, token in hub.asked}, {f"Bearer {hub.token}"}, "what a hub was told")


def test_kept_headers_are_of_one_endpoint():
    """Objects are other ones at another endpoint, though name, ETag and time are equal."""
    t = Tree(folder("tree"), usual(), 1, 2)  # one rank, which is compared with no other
    url = stores.upload(t.dir)
    kept = folder("kept")
    time.sleep(SETTLED)
    with stores.Proxy() as one, stores.Proxy() as two:
        for turn, (proxy, headers) in enumerate(((one, True), (one, False), (two, True))):
            proxy.forget()
            with Mount(f"{url}/src", t.options(f"index_cache={kept}"), env=stores.environment(proxy.url)) as m:
                equal([os.stat(m.file(r)).st_size for r in range(2)], [len(t.expected(r)) for r in range(2)], "sizes")
            ranged = [r for r in proxy.requests() if r[0] == "GET" and r[2] != "-"]
            equal(bool(ranged), headers, f"whether headers were read, the {turn + 1}. time")


def test_kept_headers_are_of_one_hub():
    """Another one may say of other bytes that they are of that commit."""
    t, kept = Tree(folder("tree"), usual(), 1, 2), folder("kept")
    with Hub() as one, Hub() as two:
        equal(one.push_folder("acme/net", t.dir), two.push_folder("acme/net", t.dir), "the commits")
        for turn, (hub, headers) in enumerate(((one, True), (one, False), (two, True))):
            hub.fetched.clear()
            env = stores.environment(HF_ENDPOINT=hub.url, HF_TOKEN=hub.token, HF_HOME=folder("no-home"))
            with Mount("hf://acme/net/src", t.options(f"index_cache={kept}"), env=env) as m:
                equal([os.stat(m.file(r)).st_size for r in range(2)], [len(t.expected(r)) for r in range(2)], "sizes")
            equal(bool(hub.fetched), headers, f"whether headers were read, the {turn + 1}. time")


def test_buckets_of_several_regions():
    """Views with equal options are of one store, and each bucket of it has its own region."""
    t = tree(scale=8)
    regions = {"in-europe": "eu-west-1", "in-asia": "ap-south-1", "in-america": "us-west-2"}
    urls = [stores.upload(t.dir, bucket=name) for name in regions]
    for how in ("301", "400"):
        with stores.Proxy(region=regions, how=how, latency=0.03) as proxy:
            where = folder(f"views-{how}")
            views(where, stores.environment(proxy.url), *((f"{url}/src", t.options("cache=1M", "index_cache=no")) for url in urls))
            for at in "012":
                same_folders(os.path.join(where, at), want_of(t))
            told = sum(r[3] == how for r in proxy.requests())
            check(told < 3 * len(regions), f"{told} of {len(proxy.requests())} requests were for another region")


def test_two_sides_of_a_command():
    """Each has its own options; a side without any has the other's."""
    trees = two_trees()
    with two_stores(trees) as ((_, to_one), (_, to_two), env):
        strategy = os.path.join(trees[0].dir, "src_strategy.ckpt")
        words = (reshard, "diff", "s3://shared/run/src", "s3://shared/run/src", "-s", strategy, "-d", strategy, "--json")
        options = [f"endpoint={proxy.url},region=us-east-1,profile={name}" for proxy, name in ((to_one, "one"), (to_two, "two"))]
        equal(run(*words, "-o", options[0], env=env).returncode, 0, "one store for both sides")
        equal(run(*words, "--options-b", options[1], env=env).returncode, 0, "the other store for both sides")
        got = run(*words, "-o", options[0], "--options-b", options[1], env=env)
        equal((got.returncode, got.stderr), (1, ""), f"two stores with other bytes, of which it says {got.stdout!r}")
        got = run(*words, "-o", options[0], "--options-b", options[1].replace("profile=two", "profile=one"), env=env)
        equal(got.returncode, 2, f"the wrong key for one side, of which it says {got.stderr!r}")


PROGRAM = """
import os, sys, threading, reshard
where, *sides = sys.argv[1:]
sides = [dict(pair.split("=", 1) for pair in side.split(",")) for side in sides]
views = [reshard.View(side.pop("source"), **side) for side in sides]
failed = []

def read(turn):
    try:
        for k in range(2 * len(views)):
            at, rank = (k + turn) % len(views), (k + turn) // len(views) % 2
            with views[at].open(f"rank_{rank}/checkpoint_{rank}.ckpt") as file:
                data = file.read()
            os.makedirs(f"{where}/{turn}/{at}/rank_{rank}", exist_ok=True)
            with open(f"{where}/{turn}/{at}/rank_{rank}/checkpoint_{rank}.ckpt", "wb") as out:
                out.write(data)
    except Exception as error:
        failed.append(error)

threads = [threading.Thread(target=read, args=(turn,)) for turn in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
views.pop(0).close()
sys.exit(str(failed) if failed else 0)
"""


def test_a_python_program():
    """Two views of two stores by keywords, read by threads."""
    if SANITIZED:
        return  # they have no shared library
    library = os.path.join(os.path.abspath(build), ".libs", "libreshard.so")
    need(os.path.exists(library), "this build has no shared library")
    trees = two_trees()
    wants = [want_of(t) for t in trees]
    with two_stores(trees) as ((_, to_one), (_, to_two), env):
        env = {**env, "RESHARD_LIBRARY": library, "PYTHONPATH": os.path.join(top, "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        sides = [",".join(("source=s3://shared/run/src", t.options(f"endpoint={proxy.url},region=us-east-1,profile={name},cache=1M")))
                 for t, proxy, name in ((trees[0], to_one, "one"), (trees[1], to_two, "two"))]
        where = folder("read")
        got = run(sys.executable, "-c", PROGRAM, where, *sides, env=env)
        equal((got.returncode, got.stderr), (0, ""), "what the program says")
        for turn in range(4):
            for at in range(2):
                same_folders(os.path.join(where, str(turn), str(at)), wants[at])


def test_an_open_bucket_beside_a_closed_one():
    """A view without an identity sends none, though another view has one."""
    t = tree()
    stores.upload(t.dir, bucket="open", acl="public-read")
    with Locked(t) as one, stores.Proxy(one.port) as closed, stores.Proxy() as opened:
        env = stores.environment("http://127.0.0.1:1", AWS_ACCESS_KEY_ID=one.key[0], AWS_SECRET_ACCESS_KEY=one.key[1],
                                 AWS_SESSION_TOKEN=None)
        where = folder("views")
        views(where, env, view(t, closed), view(t, opened, "anonymous", url="s3://open/run/src"))
        for at in "01":
            same_folders(os.path.join(where, at), want_of(t))
        equal({r[6] for r in opened.requests()}, {"-"}, "the keys that the open bucket saw")
        equal({r[6] for r in closed.requests()}, {one.key[0]}, "the keys that the other one saw")


def test_views_with_equal_options_have_one_identity():
    """The service is asked once for all of them, and anew for other options."""
    t = tree()
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy, Metadata() as service:
        env = nobody(proxy.url, AWS_EC2_METADATA_DISABLED=None, AWS_EC2_METADATA_SERVICE_ENDPOINT=service.url)
        same = (f"{url}/src", t.options())
        by_option = (f"{url}/src", t.options(f"endpoint={proxy.url}"))  # as the environment has it
        views(folder("same"), env, same, by_option, same, last=1)
        equal(service.server.given, 1, "how often credentials were given for equal views")
        views(folder("other"), env, same, (f"{url}/src", t.options("tries=7")))
        equal(service.server.given, 3, "how often with other options")


def test_credentials_of_one_view_are_renewed():
    """Those of another one stay as they are."""
    t = tree(scale=32)
    url = stores.upload(t.dir)
    for last in (0, 1):
        with stores.Proxy() as proxy, stores.Proxy() as plain, Metadata(SOON) as service:
            env = nobody(proxy.url, AWS_EC2_METADATA_DISABLED=None, AWS_EC2_METADATA_SERVICE_ENDPOINT=service.url,
                         AWS_SHARED_CREDENTIALS_FILE=None)
            env["HOME"] = write_profiles(train=("AKIATRAIN", "secret"))
            where = folder(f"views-{last}")
            views(where, env, (f"{url}/src", t.options("index_cache=no,cache=1M")),
                  (f"{url}/src", t.options(f"index_cache=no,cache=1M,profile=train,endpoint={plain.url}")),
                  last=last, pause=SOON - 300 + 1)
            for at in "01":
                same_folders(os.path.join(where, at), want_of(t))
            equal(set(keys(plain)), {"AKIATRAIN"}, "the keys of the view with a profile")
            given = set(keys(proxy))
            check(all(k.startswith("AKIAGIVEN") for k in given) and len(given) > (last == 0), f"the keys of the other are {given}")
            equal(service.server.given, len(given), "how often the service was asked")


def kinds_of_identity(name, service):
    """The variables that ask a service in each way for its credentials."""
    files = folder(f"tokens-{name}")
    for file in ("web", "container"):
        with open(os.path.join(files, file), "w") as out:
            out.write(service.server.secret())
    container = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": service.url + "/container"}
    return {
        "web": {"AWS_WEB_IDENTITY_TOKEN_FILE": f"{files}/web", "AWS_ROLE_ARN": f"arn:aws:iam::123456789012:role/{name}",
                "AWS_ENDPOINT_URL_STS": service.url},
        "container": {**container, "AWS_CONTAINER_AUTHORIZATION_TOKEN": service.server.secret()},
        "container-file": {**container, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": f"{files}/container"},
        "instance": {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url},
    }


def with_variables(variables, options):
    return "".join(f"{name}={value};" for name, value in variables.items()) + options


def test_identities_of_the_environment_are_renewed_as_themselves():
    """The variables are another view's by then. Each bucket sees its own keys."""
    trees, names = two_trees(16), ("FIRST", "SECOND")
    urls = [stores.upload(t.dir, prefix=f"of-{name}") for t, name in zip(trees, names)]
    wants = [want_of(t) for t in trees]
    # A container's address hides an instance's, so that the instances come first.
    for kind in ("instance", "container", "container-file", "web"):
        with stores.Proxy() as proxy, contextlib.ExitStack() as stack:
            services = [stack.enter_context(Metadata(SOON, lambda name=name: f"the-secret-of-{name}", name)) for name in names]
            sides = [(f"{url}/src", with_variables(kinds_of_identity(name, service)[kind], t.options("index_cache=no,cache=1M")))
                     for url, name, service, t in zip(urls, names, services, trees)]
            where = folder(f"views-{kind}")
            views(where, nobody(proxy.url, AWS_EC2_METADATA_DISABLED=None), *sides, last=0, pause=SOON - 300 + 1)
            for at in range(2):
                same_folders(os.path.join(where, str(at)), wants[at])
            for name, service in zip(names, services):
                given = {r[6] for r in proxy.requests() if f"of-{name}" in r[1]}
                check(all(re.fullmatch(f"AKIA{name}[0-9]+", key) for key in given), f"{kind}: the keys at {name}'s are {given}")
                check(len(given) > (name == "FIRST"), f"{kind}: {name} was not renewed")
                equal(service.server.given, len(given), f"{kind}: how often {name}'s service gave some")


def test_a_view_keeps_the_ways_to_its_store():
    """Proxies, and certificates that are trusted, are those of the moment when it was opened."""
    needs_nginx()
    t = tree(scale=8)
    url = stores.upload(t.dir)
    name, where = publish(t.dir)
    with stores.Proxy() as plain, stores.Proxy(host=True) as named:
        web = f"https://127.0.0.1:{stores.tls_port}/{name}"
        local = named.url.replace("127.0.0.1", "s3.localhost")
        sides = [(f"{web}/src", with_variables({"AWS_CA_BUNDLE": stores.certificate("server")}, t.options("cache=1M"))),
                 (f"{url}/src", t.options("cache=1M")),
                 (f"{url}/src", with_variables({"AWS_CA_BUNDLE": stores.certificate("other"), "no_proxy": "s3.localhost",
                                                "http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"},
                                               t.options(f"cache=1M,tries=1,endpoint={local},path_style")))]
        out = folder("views")
        equal(views(out, stores.environment(plain.url), *sides, last=0), "OK\n", "what it says")
        for at in "012":
            same_folders(os.path.join(out, at), want_of(t))
    shutil.rmtree(where)


def test_connections_count_for_each_store():
    """One view's requests take no turn of another's, nor hold them up."""
    t = tree(scale=8)
    url = stores.upload(t.dir)
    with stores.Proxy(latency=0.05) as one, stores.Proxy(latency=0.05) as two:
        views(folder("views"), stores.environment(), *((f"{url}/src", t.options(f"endpoint={proxy.url},connections=1,cache=1M"))
                                                       for proxy in (one, two)))
        spans = [sorted((float(r[4]), float(r[5])) for r in proxy.requests()) for proxy in (one, two)]
    for of_one in spans:
        check(len(of_one) > 10, f"there were {len(of_one)} requests")
        check(all(end <= begin for (_, end), (begin, _) in zip(of_one, of_one[1:])), "two requests of one store at once")
    check(any(a < d and c < b for a, b in spans[0] for c, d in spans[1]), "no request of one store during one of the other")
