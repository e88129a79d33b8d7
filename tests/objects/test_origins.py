# SPDX-License-Identifier: Apache-2.0
"""Documents that name files lead below their own folder, and maps also where the user says: nothing else is asked for."""
import contextlib
import json
import os
import shutil
import time

from harness import *
from hub import Hub
from test_content import export, needs_nginx, publish, same_folders, strategies, tree
import stores

ELSEWHERE = "is not below the folder of the map"


@contextlib.contextmanager
def places(t):
    """A tree at five places, each of which has all files of a map: a web server's folders, a bucket, a hub, and this machine."""
    needs_nginx()
    name, where = publish(t.dir)
    secret = folder("secret")
    shutil.copytree(t.dir, secret, dirs_exist_ok=True)
    for base, _, names in os.walk(secret):
        for file in names:
            os.chmod(os.path.join(base, file), 0o600)
    bucket = stores.upload(t.dir)
    os.mkdir(os.path.join(where, "maps"), 0o755)
    shutil.copytree(os.path.join(where, "src"), os.path.join(where, "maps", "src"))
    with Hub() as hub, stores.Proxy() as s3, stores.Proxy(upstream=stores.nginx_port) as web, \
            stores.Proxy(upstream=stores.nginx_port) as other:
        hub.push_folder("acme/net", t.dir)
        hub.private = True
        env = stores.environment(s3.url, HF_ENDPOINT=hub.url, HF_TOKEN=hub.token, HF_HOME=folder("no-home"))
        yield {"web": f"{web.url}/{name}", "other": f"{other.url}/{name}", "s3": bucket, "hf": "hf://acme/net", "local": secret}, \
            where, env, lambda: (len(s3.requests()), len(other.requests()), len(hub.asked))
    shutil.rmtree(where)


def write_map(path, base):
    with open(path, "w") as file:
        json.dump({str(r): f"{base}rank_{r}/net-1_{r}.ckpt" for r in range(4)}, file)
    os.chmod(path, 0o644)


def test_a_map_of_a_web_server_leads_nowhere_else():
    """Neither to files of this machine, nor to other servers, buckets or hubs, nor out of its folder; but where origins= says so."""
    t = tree()
    with places(t) as (at, where, env, asked):
        want = export(t.src, t.options(), "want", env)
        url = f"{at['web']}/maps"
        host = at["web"].split("/")[2]
        options = f"src_strategy={t.dir}/src_strategy.ckpt,dst_strategy={t.dir}/dst_strategy.ckpt,files="

        def refused(base, *words, more="", source=url):
            write_map(os.path.join(where, "maps", "map.json"), base)
            text = export(source, f"{options}{url}/map.json{more}", f"refused-{time.monotonic_ns()}", env, status=1)
            for word in words:
                check(word in text, f"{base}: {word!r} is not in {text!r}")

        def leads(base, more="", source=url, at_url=url):
            write_map(os.path.join(where, "maps", "map.json"), base)
            name = f"got-{time.monotonic_ns()}"
            same_folders(export(source, f"{options}{at_url}/map.json{more}", name, env), want)

        elsewhere = {
            f"{at['local']}/src/": f"try: origins={at['local']}/src/rank_0, if the map may lead there",
            f"{at['s3']}/src/": f"try: origins={at['s3']}/src/rank_0, if the map may lead there",
            f"{at['hf']}/src/": f"try: origins={at['hf']}/src/rank_0, if the map may lead there",
            f"{at['other']}/src/": f"try: origins={at['other']}/src/rank_0, if the map may lead there",
            f"{at['web']}/src/": f"try: origins={at['web']}/src/rank_0, if the map may lead there",
            f"{url}/../src/": ELSEWHERE, f"https://{host}/maps/": ELSEWHERE, f"http://user@{host}/": ELSEWHERE,
            "../src/": "try: names in it, or whole URLs with origins=", "src/../../src/": ELSEWHERE, f"//{host}/src/": ELSEWHERE,
        }
        # A local SRC gives the map no right to files of this machine.
        for source in (url, t.src, at["local"]):
            before = asked()
            for base, said in elsewhere.items():
                refused(base, ELSEWHERE, said, source=source)
            equal(asked(), before, "requests to other servers")
        for base in ("%2e%2e/src/", "..%2fsrc/", "maps/%2E%2E/%2E%2E/src/", "..\\src/"):
            refused(base, "cannot be found")
        for base in ("src/", "./src/", f"{url}/src/"):
            leads(base)
        leads(f"{url.replace('127.0.0.1', 'LOCALHOST')}/src/", at_url=url.replace("127.0.0.1", "localhost"))
        for place, base in at.items():
            leads(f"{base}/src/", more=f",origins={base}/src")
            leads(f"{base}/src/", more=f",origins=s3://none:{base}")
            refused(f"{base}/src/", ELSEWHERE, more=f",origins={base}/sr")
        leads(f"{at['s3']}/src/", source=f"{at['s3']}/src")  # the user has named it


def test_maps_of_buckets_and_hubs():
    """Their own prefix is theirs alone."""
    t = tree()
    write_map(os.path.join(t.dir, "src", "map.json"), "")
    write_map(os.path.join(t.dir, "src", "out.json"), "../other/")
    with places(t) as (at, _, env, _):
        want = export(t.src, t.options(), "want", env)
        for place in ("s3", "hf"):
            base = f"src_strategy={at[place]}/src_strategy.ckpt,dst_strategy={at[place]}/dst_strategy.ckpt"
            for i, options in enumerate((f"files={at[place]}/src/map.json", f"files={at[place]}/src/map.json,origins={at['web']}")):
                same_folders(export(f"{at[place]}/src", f"{base},{options}", f"{place}-{i}", env), want)
            text = export(f"{at[place]}/src", f"{base},files={at[place]}/src/out.json", f"out-{place}", env, status=1)
            check(ELSEWHERE in text, f"{place}: {text!r}")


def test_a_map_of_this_machine():
    """It names files of this machine as it likes; URLs below SRC, or where origins= says so."""
    t = tree()
    with places(t) as (at, _, env, asked):
        want = export(t.src, t.options(), "want", env)
        path = os.path.join(folder("maps"), "map.json")
        options = t.options(f"files={path}")
        for base in (f"{at['local']}/src/", f"{os.path.relpath(at['local'], os.path.dirname(path))}/src/"):
            write_map(path, base)
            same_folders(export(t.src, options, f"got-{time.monotonic_ns()}", env), want)
        for place in ("web", "s3", "hf", "other"):
            write_map(path, f"{at[place]}/src/")
            before = asked()
            for source in (t.src, f"{at[place]}/src2"):
                text = export(source, options, f"none-{time.monotonic_ns()}", env, status=1)
                check(ELSEWHERE in text and f"try: origins={at[place]}/src/rank_0," in text, f"{place} of {source}: {text!r}")
            check(asked() == before or place == "hf", "requests to other servers")
            for source, more in ((t.src, f",origins={at[place]}"), (f"{at[place]}/src", "")):
                same_folders(export(source, options + more, f"got-{time.monotonic_ns()}", env), want)
        # In the sandbox of a mount, too: it may connect because of origins=.
        write_map(path, f"{at['s3']}/src/")
        with Mount(t.src, f"{options},origins={at['s3']}", env=env) as m:
            for rank in range(2):
                same_bytes(m.read(rank), t.expected(rank), f"rank {rank}")


def test_documents_of_a_web_server():
    """Indexes say where they may not lead, and nothing is asked for there."""
    t = tree()
    with places(t) as (at, where, env, asked):
        docs = os.path.join(where, "docs")
        os.mkdir(docs)
        names = ("../maps/a.safetensors", "/etc/a.safetensors", f"{at['s3']}/a.safetensors", "hf://acme/net/a.safetensors",
                 f"{at['other']}/a.safetensors", "//host/a.safetensors", "..")

        def write(name, text):
            for other in os.listdir(docs):
                os.unlink(os.path.join(docs, other))
            for file, content in ((name, text), ("a.safetensors", "")):
                with open(os.path.join(docs, file), "w") as out:
                    out.write(content)
                os.chmod(os.path.join(docs, file), 0o644)

        before = asked()
        for name in names:
            for index in ("model.safetensors.index.json", "param_name_map.json"):
                write(index, json.dumps({"metadata": {}, "weight_map": {"w": name}}))
                text = export(f"{at['web']}/docs", "dst_rules=*: whole,dst_ranks=1", f"none-{time.monotonic_ns()}", env, status=1)
                check(f"its file '{name}' is not one of the same folder" in text, f"{index} and {name}: {text!r}")
        equal(asked(), before, "requests to other servers")


def test_a_list_of_a_hub_goes_on_at_the_hub():
    t = tree()
    with Hub() as hub, Hub() as other:
        for each in (hub, other):
            each.push_folder("acme/net", t.dir)
        env = stores.environment(HF_ENDPOINT=hub.url, HF_HOME=folder("no-home"))
        options = strategies("hf://acme/net")
        export("hf://acme/net/src", options, "got", env)
        hub.plan["next"] = other.url.removeprefix("http://")
        text = export("hf://acme/net/src", options, "none", env, status=1)
        check("the hub's list of files goes on at another server" in text, f"it says {text!r}")
        equal(other.asked, [], "what the other hub was asked")
