# SPDX-License-Identifier: Apache-2.0
"""What is read from object storage is what is read from a disk, byte for byte, with few requests."""
import filecmp
import json
import os
import re
import shutil
import time

from forge import Tree, usual
from harness import *
import stores


SETTLED = 4.5  # seconds, until objects count as left alone and their headers are kept


def tree(**how):
    return Tree(folder("tree"), usual(**how), 4, 2)


def strategies(url):
    return f"src_strategy={url}/src_strategy.ckpt,dst_strategy={url}/dst_strategy.ckpt"


def export(source, options, name, env, *more, status=0):
    target = os.path.join(folder("to"), name)
    got = run(reshard, "export", source, target, "-o", options, *more, env=env)
    equal(got.returncode, status, f"status, with {got.stderr!r}")
    return target if status == 0 else got.stderr


def files_of(where):
    return sorted(os.path.relpath(os.path.join(base, n), where) for base, _, names in os.walk(where) for n in names
                  if not n.startswith("reshard-manifest"))


def same_folders(got, want):
    equal(files_of(got), files_of(want), "the files")
    for name in files_of(want):
        check(filecmp.cmp(os.path.join(got, name), os.path.join(want, name), shallow=False), f"{name} is another")


def exports_through(plans):
    """Exports the same through a proxy with each of these plans; yields their names and the requests."""
    t = tree()
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy:
        env = stores.environment(proxy.url)
        want = export(t.src, t.options(), "want", env)
        for name, plan in plans.items():
            proxy.plan(**plan)
            proxy.forget()
            same_folders(export(f"{url}/src", strategies(url), name, env), want)
            yield name, proxy.requests()


def test_a_mount_shows_the_same_bytes():
    t = tree(scale=4)
    url = stores.upload(t.dir, prefix="run 7/a+b~ä=&%")
    with Mount(f"{url}/src", strategies(url), env=stores.environment()) as m:
        for rank in range(2):
            same_bytes(m.read(rank), t.expected(rank), f"rank {rank}")
        with open(m.file(1), "rb") as file:
            for at in (0, 7, 4096, 70001):
                file.seek(at)
                same_bytes(file.read(1000), t.expected(1)[at:at + 1000], f"offset {at}")


def test_exports_in_every_format():
    t = tree()
    local, env = t.src, stores.environment()
    for form in ("ckpt", "safetensors", "pt"):
        want = export(local, t.options(f"format={form}"), f"want-{form}", env)
        # What comes out is a source of another format.
        for source in (t.src, want):
            url = stores.upload(os.path.dirname(source) if source == t.src else want, prefix=f"{form}")
            inner = f"{url}/src" if source == t.src else url
            if source == t.src:
                got = export(inner, strategies(url) + f",format={form}", f"got-{form}", env)
            else:
                both = f"src_strategy={t.dir}/dst_strategy.ckpt"
                want = export(source, both, f"whole-want-{form}", env)
                got = export(inner, both, f"whole-got-{form}", env)
            same_folders(got, want)


def publish(source):
    """A copy that nginx serves: its name, and where it is."""
    where = os.path.join(stores.web, f"web-{os.getpid()}-{time.monotonic_ns()}")
    shutil.copytree(source, where)
    for base, _, names in os.walk(where):
        os.chmod(base, 0o755)
        for name in names:
            os.chmod(os.path.join(base, name), 0o644)
    return os.path.basename(where), where


def status(pid, name):
    return int(re.search(rf"{name}:\s+(\d+)", read_all(f"/proc/{pid}/status").decode())[1])


def needs_nginx():
    need(stores.nginx_port, "nginx is missing")


def test_items_that_are_compressed():
    """torch's own (tests/fixtures/make_dcp.py): each is asked for as a whole, and once."""
    source = os.path.join(os.environ.get("top_srcdir", "."), "tests", "fixtures", "dcp", "packed")
    url = stores.upload(source)
    with stores.Proxy() as proxy:
        env = stores.environment(proxy.url)
        for options in ("format=pt", "view=huggingface", "view=dcp,dst_ranks=3"):
            proxy.forget()
            same_folders(export(url, options, options, env), export(source, options, options + " of a disk", env))
            ranges = [r for r in proxy.requests() if r[0] == "GET" and ".distcp" in r[1]]
            check(len(ranges) <= 5, f"{options}: {ranges}")


def test_a_web_server_with_an_index():
    needs_nginx()
    t = tree(scale=4)
    name, where = publish(t.dir)
    for way in ("", "/json"):
        url = f"http://127.0.0.1:{stores.nginx_port}{way}/{name}"
        env = stores.environment(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
        with Mount(f"{url}/src", strategies(url), env=env) as m:
            for rank in range(2):
                same_bytes(m.read(rank), t.expected(rank), f"rank {rank} by {url}")
            equal(os.stat(m.file(0)).st_mode & 0o777, 0o444, "the mode of what everybody can read")
    shutil.rmtree(where)


def test_a_map_instead_of_an_index():
    needs_nginx()
    t = tree()
    name, where = publish(t.dir)
    url = f"http://127.0.0.1:{stores.nginx_port}/{name}"
    path = os.path.join(where, "map.json")
    with open(path, "w") as file:
        json.dump({str(r): f"src/rank_{r}/net-1_{r}.ckpt" for r in range(4)}, file)
    os.chmod(path, 0o644)
    with Mount(f"{url}/src", strategies(url) + f",files={url}/map.json", env=stores.environment()) as m:
        same_bytes(m.read(1), t.expected(1), "rank 1")
    shutil.rmtree(where)


def test_a_map_where_the_source_itself_is_not_there():
    """A store of files without folders answers 404 for them."""
    needs_nginx()
    t = tree()
    name, where = publish(t.dir)
    url = f"http://127.0.0.1:{stores.nginx_port}/{name}"
    path = os.path.join(folder("maps"), "map.json")
    env = stores.environment()
    with open(path, "w") as file:
        json.dump({str(r): f"rank_{r}/net-1_{r}.ckpt" for r in range(4)}, file)
    shutil.copy(path, os.path.join(where, "src", "map.json"))
    os.chmod(os.path.join(where, "src", "map.json"), 0o644)
    options = strategies(url) + f",files={url}/src/map.json"
    for source in (f"{url}/none", f"{url}/none/"):
        with Mount(source, options, env=env) as m:
            same_bytes(m.read(1), t.expected(1), f"rank 1 of {source}")
        same_folders(export(source, options, f"got-{len(source)}", env), export(t.src, t.options(), f"want-{len(source)}", env))
    text = export(f"{url}/none", strategies(url), "none", env, status=1)
    check("the source does not exist" in text, f"without a map: {text!r}")
    shutil.rmtree(where)


def test_strategies_alone_from_a_store():
    t = tree()
    url = stores.upload(t.dir)
    with Mount(t.src, strategies(url), env=stores.environment()) as m:
        same_bytes(m.read(0), t.expected(0), "rank 0")


def test_info_names_the_tensors():
    t = tree()
    url = stores.upload(t.dir)
    env = stores.environment()
    for inner in ("src", "src/rank_1/net-1_1.ckpt", "src_strategy.ckpt"):
        want, got = (run(reshard, "info", f"{base}/{inner}", env=env) for base in (t.dir, url))
        equal((got.returncode, got.stdout), (0, want.stdout.replace(t.dir, url)), f"info of {inner}, {got.stderr!r}")


def test_suggest_says_the_same_of_a_store():
    t = tree()
    url = stores.upload(t.dir)
    env = stores.environment()
    for inner in ("src", "src_strategy.ckpt"):
        want, got = (run(reshard, "suggest", f"{base}/{inner}", env=env) for base in (t.dir, url))
        equal((want.returncode, got.returncode), (0, 0), f"status, with {got.stderr!r}")
        equal(got.stdout, want.stdout.replace(t.dir, url), f"what is suggested for {inner}")


def test_one_listing_and_no_header_the_second_time():
    t = Tree(folder("tree"), usual(), 1, 2)  # one rank, which is compared with no other
    url = stores.upload(t.dir)
    time.sleep(SETTLED)
    with stores.Proxy() as proxy:
        env = stores.environment(proxy.url)
        for turn in range(2):
            proxy.forget()
            with Mount(f"{url}/src", t.options(), env=env) as m:
                sizes = [os.stat(m.file(r)).st_size for r in range(2)]
            equal(sizes, [len(t.expected(r)) for r in range(2)], "sizes")
            asked = proxy.requests()
            ranges = [r for r in asked if r[2].startswith("bytes")]
        equal(ranges, [], "ranges that the second mount has read")
        check(len(asked) <= 4, f"the second mount has made the requests {asked}")


def test_keys_over_several_pages():
    t = tree()
    url = stores.upload(t.dir)
    bucket = url.split("/")[2]
    for i in range(1005):
        stores.put(bucket, f"run/src/others/{i}", b"")
    with stores.Proxy() as proxy:
        with Mount(f"{url}/src", t.options(), env=stores.environment(proxy.url)) as m:
            same_bytes(m.read(0), t.expected(0), "rank 0")
        check(any("continuation-token" in r[1] for r in proxy.requests()), "there was one page only")


def test_a_changed_object_is_stale():
    t = tree(scale=8)
    url = stores.upload(t.dir)
    bucket = url.split("/")[2]
    with Mount(f"{url}/src", t.options("cache=1M,index_cache=no"), env=stores.environment()) as m:
        with open(m.file(0), "rb") as file:
            same_bytes(file.read(1000), t.expected(0)[:1000], "before")
        newer = Tree(folder("newer"), usual(scale=8), 4, 2, version=1)
        for rank in range(4):
            stores.put(bucket, f"run/src/rank_{rank}/net-1_{rank}.ckpt", newer.source(rank))
        try:
            got = m.read(1)
            raise AssertionError(f"{len(got)} bytes were read of a source that was changed")
        except OSError as error:
            equal(error.strerror, "Stale file handle", "what reading says")
    with Mount(f"{url}/src", t.options(), env=stores.environment()) as m:
        same_bytes(m.read(1), newer.expected(1), "after a new mount")


def is_never_mixed(t, url, options, env, change):
    """A mount that has read a part of its source, which then changes, reads no more of it."""
    with Mount(f"{url}/src", f"{options},cache=1M,index_cache=no", env=env) as m:
        with open(m.file(0), "rb") as file:
            same_bytes(file.read(1000), t.expected(0)[:1000], "before")
        change()
        for rank in range(2):
            try:
                got = m.read(rank)
                raise AssertionError(f"{len(got)} bytes were read of a source that was changed")
            except OSError as error:
                equal(error.strerror, "Stale file handle", "what reading says")


def test_a_web_server_without_etags():
    """The time of the last change stands for the version, whether the server knows conditions or not."""
    needs_nginx()
    t = tree(scale=16)  # a file does not fit into cache=1M, from which reads may be answered
    newer = Tree(folder("newer"), usual(scale=16), 4, 2, version=1)
    for blind, when in ((False, 2e9), (False, 1e9), (True, 2e9)):
        name, where = publish(t.dir)

        def change():
            for rank in range(4):
                path = os.path.join(where, "src", f"rank_{rank}", f"net-1_{rank}.ckpt")
                with open(path, "wb") as file:
                    file.write(newer.source(rank))
                os.utime(path, (when, when))

        with stores.Proxy(upstream=stores.nginx_port, blind=blind) as proxy:
            url, env = f"{proxy.url}/plain/{name}", stores.environment()
            same_folders(export(f"{url}/src", strategies(url), f"got-{blind}-{when}", env),
                         export(t.src, t.options(), f"want-{blind}-{when}", env))
            is_never_mixed(t, url, strategies(url), env, change)
            with Mount(f"{url}/src", strategies(url), env=env) as m:
                same_bytes(m.read(1), newer.expected(1), "after a new mount")
        shutil.rmtree(where)


def test_answers_that_do_not_say_of_which_version_they_are():
    needs_nginx()
    t = tree()
    name, where = publish(t.dir)
    bucket = stores.upload(t.dir)
    with stores.Proxy(upstream=stores.nginx_port) as web, stores.Proxy() as store:
        for proxy, url, drop, said in ((web, f"{web.url}/plain/{name}", ["Last-Modified"], "it may be of another version"),
                                       (web, f"{web.url}/{name}", ["ETag", "Last-Modified"], "it may be of another version"),
                                       (web, f"{web.url}/{name}", ["ETag"], "the object was changed"),
                                       (store, bucket, ["ETag"], "the object was changed")):
            proxy.plan(drop=drop)
            env = stores.environment(store.url)
            text = export(f"{url}/src", t.options(), f"got-{drop}", env, status=1)
            check(said in text, f"without {drop}: {text!r}")
    shutil.rmtree(where)


def test_what_is_not_there():
    t = tree()
    url = stores.upload(t.dir)
    env = stores.environment()
    for source, word in ((url + "/none", "does not exist"), ("s3://no-such-bucket-here/a", "does not exist")):
        text = export(source, t.options(), "x", env, status=1)
        check(word in text, f"the message is {text!r}")
    none = stores.environment(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, AWS_SESSION_TOKEN=None, HOME="/none")
    got = run(reshardfs, f"{url}/src", folder("m"), "-o", t.options(), env=none)
    check(got.returncode == 1 and "no credentials" in got.stderr, f"without credentials: {got.stderr!r}")


def test_profiles():
    t = tree()
    url = stores.upload(t.dir)
    home = folder("home")
    os.mkdir(os.path.join(home, ".aws"))
    with open(os.path.join(home, ".aws", "credentials"), "w") as file:
        file.write(f"[train]\naws_access_key_id = {stores.KEY}\naws_secret_access_key = {stores.SECRET}\n")
    with open(os.path.join(home, ".aws", "config"), "w") as file:
        file.write(f"[profile train]\nendpoint_url = http://127.0.0.1:{stores.s3_port}\nregion = us-east-1\n")
    env = stores.environment(AWS_ENDPOINT_URL=None, AWS_ACCESS_KEY_ID=None, AWS_CONFIG_FILE=None,
                             AWS_SHARED_CREDENTIALS_FILE=None, HOME=home)
    env = {k: v for k, v in env.items() if k != "AWS_ENDPOINT_URL"}
    same_folders(export(f"{url}/src", t.options("profile=train"), "profile", env), export(t.src, t.options(), "w", env))


def test_a_public_bucket():
    t = tree()
    url = stores.upload(t.dir, acl="public-read")
    env = stores.environment("http://127.0.0.1:1", AWS_ACCESS_KEY_ID=None)
    export(f"{url}/src", t.options(f"anonymous,path_style,endpoint=http://127.0.0.1:{stores.s3_port}"), "public", env)
