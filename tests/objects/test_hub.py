# SPDX-License-Identifier: Apache-2.0
"""Models on a hub: of one commit, right bytes or an error, and the token for the hub alone."""
import itertools
import json
import os
import re
import shutil
import subprocess
import time

from forge import Tree, usual
from harness import *
from hub import LARGE, Hub
from test_content import export, same_folders, strategies, tree
from test_secrets import Nobody, search
import stores

MODEL = "acme/tiny-net"
client = os.environ.get("RFS_HUB_PYTHON") or "python3"  # with huggingface_hub


def environment(hub, token=None, **more):
    env = stores.environment(**{"HF_ENDPOINT": hub.url, "HF_TOKEN": token, "HF_HOME": folder("no-home"), **more})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        env.pop(name, None)  # a hub needs none of these
    return env


def url_of(revision=None, inner=""):
    return f"hf://{MODEL}{'@' + revision if revision else ''}{inner}"


def tokens(log):
    return {token for _, _, token in log}


def refused(source, options, env, *words):
    text = export(source, options, f"refused-{time.monotonic_ns()}", env, status=1)
    for word in words:
        check(word in text, f"{word!r} is not in {text!r}")
    return text


def test_a_model_on_a_hub():
    """Branches, tags with a slash, references and commits; folders and files; lists of several pages."""
    t = tree(scale=4)
    with Hub() as hub:
        commit = hub.push_folder(MODEL, t.dir)
        for ref in ("feature/x", "refs/pr/7"):
            hub.refs[MODEL, ref] = commit
        env = environment(hub)
        for revision in (None, "main", "feature%2Fx", "refs/pr/7", commit):
            url = url_of(revision)
            with Mount(f"{url}/src/", strategies(url), env=env) as m:
                for rank in range(2):
                    same_bytes(m.read(rank), t.expected(rank), f"rank {rank} of {url}")
                equal(os.getxattr(m.mnt, "user.reshardfs.source").decode(), f"hf://{MODEL}@{commit}/src", "the source")
        check(any("tree" in path for _, path, _ in hub.asked) and hub.fetched, "the list or the CDN was not asked")
        for inner in ("/src", "/src/rank_1/net-1_1.ckpt", "/src_strategy.ckpt"):
            want, got = (run(reshard, "info", f"{base}{inner}", env=env) for base in (t.dir, url_of(commit)))
            equal((got.returncode, got.stdout), (0, want.stdout.replace(t.dir, url_of(commit))), f"info of {inner}, {got.stderr!r}")


def test_what_the_hubs_own_library_downloads():
    """huggingface_hub reads this server as it reads the real one, and gives what ReshardFS gives."""
    t = tree(scale=4)
    with Hub(page=1000) as hub:
        hub.push_folder(MODEL, t.dir)
        hub.private = True
        env = environment(hub, hub.token)
        got = subprocess.run(
            [client, "-c", "import sys, huggingface_hub as h\n"
             f"print(h.snapshot_download('{MODEL}', cache_dir=sys.argv[1]))\n"
             f"print(h.hf_hub_download('{MODEL}', 'src/rank_1/net-1_1.ckpt', cache_dir=sys.argv[2]))\n",
             folder("all"), folder("one")], env={**env, "HF_HUB_DISABLE_XET": "1"}, capture_output=True, text=True, timeout=120)
        equal(got.returncode, 0, f"huggingface_hub, which says {got.stderr}")
        snapshot, one = got.stdout.split()
        same_bytes(read_all(one), t.source(1), "one file")
        equal(tokens(hub.fetched), {None}, "what huggingface_hub tells the CDN")
        hub.asked.clear(), hub.fetched.clear()
        same_folders(export(f"{url_of()}/src", strategies(url_of()), "ours", env),
                     export(f"{snapshot}/src", strategies(snapshot), "theirs", env, "-o", "follow_links"))
        check(hub.fetched, "the CDN was not asked")


def test_a_branch_that_moves():
    """The mount stays at its commit, whatever it reads later; the next mount is at the new one."""
    t, newer = tree(scale=16), Tree(folder("newer"), usual(scale=16), 4, 2, version=1)
    with Hub() as hub:
        hub.push_folder(MODEL, t.dir)
        env, url = environment(hub), url_of()
        maps = {str(r): f"src/rank_{r}/net-1_{r}.ckpt" for r in range(4)}
        with open(os.path.join(t.dir, "map.json"), "w") as file:
            json.dump(maps, file)
        shutil.copy(os.path.join(t.dir, "map.json"), os.path.join(newer.dir, "map.json"))
        hub.push_folder(MODEL, t.dir)
        for more in ("", f",files={url}/map.json"):
            options = f"{strategies(url)},cache=1M,index_cache=no{more}"
            hub.push_folder(MODEL, t.dir)
            with Mount(f"{url}/src", options, env=env) as m:
                with open(m.file(0), "rb") as file:
                    same_bytes(file.read(1000), t.expected(0)[:1000], "before")
                hub.push_folder(MODEL, newer.dir)
                for rank in range(2):
                    same_bytes(m.read(rank), t.expected(rank), f"rank {rank} with {more}")
            with Mount(f"{url}/src", options, env=env) as m:
                same_bytes(m.read(1), newer.expected(1), "after a new mount")


def test_two_views_of_one_process():
    """Each stays at the commit that the branch had when it was opened, though the branch moves meanwhile."""
    trees = [Tree(folder(f"v{v}"), usual(scale=4), 4, 2, version=v) for v in range(3)]
    strategy = os.path.join(trees[0].dir, "src_strategy.ckpt")
    words = (reshard, "diff", url_of(None, "/src"), url_of(None, "/src"), "-s", strategy, "-d", strategy)
    with Hub() as hub:
        hub.push_folder(MODEL, trees[0].dir)
        equal(run(*words, env=environment(hub)).returncode, 0, "the same commit twice")
        turns = itertools.cycle(trees)
        hub.on_revision = lambda: hub.push_folder(MODEL, next(turns).dir)
        got = run(*words, env=environment(hub))
        equal((got.returncode, got.stderr), (1, ""), f"two commits, of which it says {got.stdout!r}")


def test_a_whole_model_on_a_hub():
    """A folder of safetensors, as most models are there, cut for ranks and as it is."""
    t = tree(scale=4)
    env = stores.environment()
    whole = export(t.src, f"src_strategy={t.dir}/src_strategy.ckpt,view=huggingface,file_size=64K", "whole", env)
    with Hub() as hub:
        commit = hub.push_folder(MODEL, whole)
        env = environment(hub)
        for options in (f"dst_strategy={t.dir}/dst_strategy.ckpt", "view=huggingface", "view=unified"):
            same_folders(export(url_of(), options, f"got-{len(options)}", env), export(whole, options, f"want-{len(options)}", env))
        want, got = (run(reshard, "suggest", source, env=env) for source in (whole, url_of(commit)))
        equal((got.returncode, got.stdout), (0, want.stdout.replace(whole, url_of(commit))), f"suggest, with {got.stderr!r}")


def test_datasets_on_a_hub():
    t = tree()
    with Hub() as hub:
        hub.push_folder(f"datasets/{MODEL}", t.dir)
        url = f"hf://datasets/{MODEL}"
        same_folders(export(f"{url}/src", strategies(url), "got", environment(hub)), export(t.src, t.options(), "want", environment(hub)))


def test_the_token_of_a_hub():
    """For its host alone, from where its own tools have it, read once; the CDN never gets it."""
    t = tree(scale=4)
    with Hub() as hub:
        hub.push_folder(MODEL, t.dir)
        hub.private = True
        home, token = folder("home"), hub.token
        paths = {"HF_TOKEN_PATH": os.path.join(home, "a"), "HF_HOME": os.path.join(home, "b"),
                 "XDG_CACHE_HOME": os.path.join(home, "c"), "HOME": os.path.join(home, "d")}
        files = [paths["HF_TOKEN_PATH"], f"{home}/b/token", f"{home}/c/huggingface/token", f"{home}/d/.cache/huggingface/token"]
        for file in files:
            os.makedirs(os.path.dirname(file), exist_ok=True)
        url, none = url_of(), dict.fromkeys(["HF_TOKEN_PATH", "HF_HOME", "XDG_CACHE_HOME"])
        for (name, value), file in zip(paths.items(), files):
            with open(file, "w") as out:
                out.write(f"  {token}\r\n")
            env = {k: v for k, v in environment(hub, **{**none, name: value}).items() if v is not None}
            with Mount(f"{url}/src", strategies(url) + ",index_cache=no", env=env) as m:
                os.unlink(file)
                for signature in hub.signed:  # all have ended, so that the hub is asked again
                    hub.signed[signature] = 0
                for rank in range(2):
                    same_bytes(m.read(rank), t.expected(rank), f"rank {rank}, by {name}")
        for variable in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            export(f"{url}/src", strategies(url), variable, environment(hub, **{variable: token}))
        equal(tokens(hub.asked), {f"Bearer {token}"}, "what the hub was told")
        equal(tokens(hub.fetched), {None}, "what the CDN was told")
        # HF_TOKEN comes first, and no token with anonymous.
        with open(files[0], "w") as out:
            out.write("hf_another")
        export(f"{url}/src", strategies(url), "first", environment(hub, token, HF_TOKEN_PATH=files[0]))
        hub.private = False
        hub.asked.clear()
        export(f"{url}/src", strategies(url) + ",anonymous", "anonymous", environment(hub, token))
        equal(tokens(hub.asked), {None}, "what the hub was told with anonymous")
        for content, why in (("two words", "has no token of a hub"), ("x" * 5000, "")):
            with open(files[0], "w") as out:
                out.write(content)
            refused(f"{url}/src", strategies(url), environment(hub, HF_TOKEN_PATH=files[0]), "there is no token for hf://", why,
                    "try: HF_TOKEN, or anonymous for public models")


def test_a_token_goes_nowhere_without_tls():
    """The hub's name is of no host, so that a proxy is asked for it: only with a name of this machine is that safe."""
    t = tree()
    with Hub() as hub:
        hub.push_folder(MODEL, t.dir)
        env = environment(hub, hub.token, HF_ENDPOINT="http://hub.invalid", http_proxy=hub.url, no_proxy="127.0.0.1")
        url = url_of()
        export(f"{url}/src", strategies(url), "public", env)
        equal(tokens(hub.asked), {None}, "what a hub without TLS was told")
        hub.private = True
        refused(f"{url}/src", strategies(url), env, "status 401, RepoNotFound", "HF_ENDPOINT=https://HOST, as no token is sent")
        # This machine itself is asked past proxies.
        with Nobody() as nobody:
            env = environment(hub, hub.token, http_proxy=nobody.url)
            equal(run(reshard, "info", f"{url}/none", env=env).stderr,
                  f"reshard: error: {url}/none: the source does not exist; try: check the path\n", "past a proxy")
            check(not nobody.asked(), "a proxy was asked for a hub on this machine")


def test_a_hub_that_leads_elsewhere():
    """Renamed models are on the same host. Another host gets no token, and is asked all the same."""
    t = tree()
    with Hub() as hub, Hub() as other:
        hub.push_folder("acme/new", t.dir)
        hub.private = True
        hub.renamed[MODEL] = "acme/new"
        url, env = url_of(), environment(hub, hub.token)
        export(f"{url}/src", strategies(url), "renamed", env)
        equal(tokens(hub.asked), {f"Bearer {hub.token}"}, "what the hub was told")
        hub.renamed[MODEL] = MODEL
        refused(f"{url}/src", strategies(url), env, "more than 5 redirections")
        other.push_folder(MODEL, t.dir)
        hub.mirrors = other.url
        export(f"{url}/src", strategies(url), "mirror", env)
        equal(tokens(other.asked) | tokens(other.fetched), {None}, "what another hub was told")


def test_what_a_hub_refuses():
    t = tree()
    with Hub() as hub:
        hub.push_folder(MODEL, t.dir)
        url, options = url_of(), strategies(url_of())
        at = f"(tried 1 time, at {hub.url})"
        account = "check the name of the model, and HF_TOKEN: its account must be allowed to read it"
        hub.private = True
        refused(f"{url}/src", options, environment(hub), "status 401, RepoNotFound: Repository not found " + at, account)
        refused(f"{url}/src", options, environment(hub, "hf_another"), "status 404, RepoNotFound", account)
        hub.private = False
        env = environment(hub, hub.token)
        refused("hf://acme/none/src", t.options(), env, "status 404, RepoNotFound: Repository not found", account)
        refused(url_of("none", "/src"), t.options(), env, "status 404, RevisionNotFound: Invalid rev id",
                "try: a branch, a tag or a commit of that model")
        refused(url_of("0" * 40, "/src"), t.options(), env, "status 404, RevisionNotFound")
        refused(url_of(None, "/none"), t.options(), env, "the source does not exist; try: check the path")
        hub.gated = True
        for token, status in ((hub.token, 403), (None, 401)):
            refused(f"{url}/src", options, environment(hub, token), f"status {status}, GatedRepo: Access to model {MODEL} is restricted",
                    "try: ask for access on the model's page, then HF_TOKEN of that account")


def test_urls_that_name_no_model():
    t = tree()
    with Hub() as hub:
        for url, why in (("hf://tiny-net", "it names no model: hf://ORG/MODEL@REVISION/PATH"), ("hf://", "it names no model"),
                         ("hf://acme/../src", "it names no model"), ("hf://acme/a:b/src", "it names no model"),
                         ("hf://acme/net@/src", "there is no revision behind '@'"),
                         ("hf://acme/net@a%0/src", "its revision is not encoded as in '@a%2Fb'"),
                         ("hf://buckets/acme/net/src", "of a hub, models and datasets are read"),
                         ("hf://spaces/acme/net", "of a hub, models and datasets are read")):
            refused(url, t.options(), environment(hub), f"{url}: the source cannot be reached", why)
        for endpoint in ("hub.acme.com", "https://a@hub.acme.com", "https://hub.acme.com?x", "https://"):
            refused(url_of(None, "/src"), t.options(), environment(hub, HF_ENDPOINT=endpoint),
                    "HF_ENDPOINT is https://HOST or http://HOST:PORT")
        equal(hub.asked, [], "requests")


def test_a_hub_that_limits_requests():
    t = tree()
    with Hub() as hub:
        hub.push_folder(MODEL, t.dir)
        url, env = url_of(), environment(hub)
        hub.plan = {"limited": 2, "retry_after": 1}
        begin = time.monotonic()
        export(f"{url}/src", strategies(url), "limited", env)
        check(time.monotonic() - begin >= 2, "the hub was asked again before the time that it told")
        hub.plan = {"limited": 1 << 30, "retry_after": 0}
        refused(f"{url}/src", strategies(url) + ",tries=2", env, "status 429: We had to rate limit you (tried 2 times",
                "try: HF_TOKEN for a higher limit, fewer connections=, or later")


def test_urls_of_a_cdn_that_end():
    """They are asked for anew, and seldom else."""
    t = tree(scale=64)
    with Hub() as hub:
        hub.push_folder(MODEL, t.dir)
        url, env = url_of(), environment(hub)

        def resolved():
            return sum("/resolve/" in path for method, path, _ in hub.asked)

        with Mount(f"{url}/src", strategies(url) + ",cache=1M,index_cache=no,connections=4", env=env) as m:
            for rank in range(2):
                same_bytes(m.read(rank), t.expected(rank), f"rank {rank}")
            few = resolved()
            check(few <= 24, f"the hub was asked {few} times where files are")
            before = len(hub.fetched)
            for turn in range(4):
                for signature in hub.signed:
                    hub.signed[signature] = 0
                same_bytes(m.read(turn % 2), t.expected(turn % 2), f"turn {turn}")
            check(len(hub.fetched) > before, "nothing was read from the CDN again")
            check(few < resolved(), "the hub was not asked again")
        hub.uses = 0
        refused(f"{url}/src", strategies(url), env, "status 403", f"at {hub.cdn})")


def test_answers_of_another_version():
    """What a hub and its CDN tell is compared with the commit and its list; what differs, or is missing, is refused."""
    t = tree(scale=16)
    with Hub() as hub:
        hub.push_folder(MODEL, t.dir)
        url, env = url_of(), environment(hub)
        for plan, why in (
                ({"headers": {"X_Repo_Commit": "1" * 40}}, f"the hub answered for commit {'1' * 40}"),
                ({"headers": {"X_Repo_Commit": None}}, ""),
                ({"headers": {"X_Linked_Etag": '"1234"'}}, 'the hub\'s answer has the ETag "1234", and its list "'),
                ({"headers": {"X_Linked_Etag": None}}, "the hub's answer has the ETag (none), and its list"),
                ({"headers": {"X_Linked_Size": "7"}}, "the hub's answer has another size than its list"),
                ({"longer": 1}, "the wrong range was sent"),
                ({"mixed": True}, "the object was changed while in use"),
                ({"cut": "once"}, "the object was changed while in use")):
            hub.plan = plan
            refused(f"{url}/src", t.options("tries=2"), env, why)
        # Small files are on the hub's own host.
        check(os.path.getsize(os.path.join(t.dir, "src_strategy.ckpt")) < LARGE, "the strategy is no small file")
        for plan in ({"ETag": '"1234"'}, {"ETag": None}, {"X_Repo_Commit": "1" * 40}):
            hub.plan = {"small": plan}
            got = run(reshard, "strategy", "show", f"{url}/src_strategy.ckpt", env=env)
            check(got.returncode == 1 and "the object was changed while in use" in got.stderr, f"{plan}: {got}")
        hub.plan = {"no_etag": True}
        same_folders(export(f"{url}/src", t.options(), "without", env), export(t.src, t.options(), "want", env))
        hub.plan = {"long": "x" * 5000}
        refused(f"{url}/src", t.options(), env, "the hub's list of files is in an unknown form")
        hub.plan = {"circle": True}
        refused(f"{url}/src", t.options(), env, "the store's list of objects goes on with the same page")


def test_no_output_has_the_token_of_a_hub():
    t = tree(scale=32)
    with Hub() as hub:
        hub.push_folder(MODEL, t.dir)
        hub.private = True
        url, cache, words = url_of(), folder("cache"), (hub.token,)
        with Foreground(f"{url}/src", strategies(url) + ",log_level=debug,tries=2,cache=1M", "--debug",
                        env=environment(hub, hub.token, XDG_CACHE_HOME=cache)) as m:
            m.read(0)
            hub.plan = {"headers": {"X_Repo_Commit": f"of {hub.token} it is"}}
            hub.signed.clear()
            try:
                m.read(1)
            except OSError:
                check("the hub answered for commit of ***" in m.log(), "the hub's answer is not in the log")
            else:
                raise AssertionError("bytes of another commit were read")
            pid = m.process.pid
            search(m.log().encode(), "the log", words)
            for name in ("cmdline", *(["environ"] if os.geteuid() == 0 else [])):
                search(read_all(f"/proc/{pid}/{name}"), name, words)
            hidden = os.path.join(m.mnt, ".reshardfs")
            for name in os.listdir(hidden):
                if os.path.isfile(os.path.join(hidden, name)):
                    search(read_all(os.path.join(hidden, name)), name, words)
            with open(f"/proc/{pid}/limits") as limits:
                check(re.search(r"core file size +0 +0", limits.read()), "core files are possible")
        for base, _, names in os.walk(cache):
            for name in names:
                search(read_all(os.path.join(base, name)), name, words)


def test_googles_storage():
    """By its S3-compatible interface: an endpoint, and HMAC keys, which have no session token."""
    t = tree()
    url = stores.upload(t.dir)
    with stores.Proxy() as proxy:
        env = stores.environment(AWS_ACCESS_KEY_ID="GOOG1EXAMPLE", AWS_SECRET_ACCESS_KEY="hmac", AWS_SESSION_TOKEN=None,
                                 AWS_ENDPOINT_URL=None)
        got = export(f"{url}/src", strategies(url) + f",endpoint={proxy.url},region=auto", "got", env)
        equal({request[6] for request in proxy.requests()}, {"GOOG1EXAMPLE"}, "who signed")
    same_folders(got, export(t.src, t.options(), "want", env))
    text = export(url.replace("s3:", "gs:"), t.options(), "gs", env, status=1)
    check(text.endswith("; try: s3://BUCKET/PREFIX with endpoint=https://storage.googleapis.com and HMAC keys\n"), f"gs://: {text!r}")
