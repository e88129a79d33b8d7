# SPDX-License-Identifier: Apache-2.0
"""Exports into a bucket: what boto3 reads there is what an export writes to a disk, and nothing incomplete is ever seen."""
import collections
import hashlib
import json
import os
import signal
import subprocess
import time
import urllib.error

from forge import Tree, usual
import harness
from harness import *
from test_content import files_of, strategies, tree
import stores

PART = 5 << 20  # with so many threads that parts are the smallest that a store takes
THREADS = ("-j", "13")
MANIFEST = "reshard-manifest.json"
SAME = ",index_cache=no"  # a kept index may list the names of .metadata in another order


def bucket():
    """An empty one."""
    need(stores.s3_port, "the S3 server is missing")
    name = "up-" + os.path.basename(harness.place).lower().replace("_", "-")[-50:].strip("-")
    try:
        stores.request(f"/{name}")
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it is there
            raise
    return name


def example(ranks=2):
    """A tree with files of several parts: 23 MB together."""
    where = folder("example")
    got = run(reshard, "example", where, "--src", "4", "--dst", str(ranks), "--cut", "rows", "--size", "23M")
    equal(got.returncode, 0, got.stderr)
    return os.path.join(where, "src"), f"src_strategy={where}/src_strategy.ckpt,dst_strategy={where}/dst_strategy.ckpt"


def words(source, target, options, *more):
    return [reshard, "export", source, target, "-o", options, *more]


def export(source, target, options, *more, env=None, status=0):
    got = run(*words(source, target, options, *more), env=env or stores.environment())
    equal(got.returncode, status, f"status of {target}, with {got.stderr!r}")
    return got


def seen_by_prefix(name):
    """Of a bucket: {first part of the key: ({rest: sha256} without manifests, keys of open uploads)}."""
    env = stores.environment()
    got = run(stores.python, os.path.join(stores.HERE, "bucket.py"), env["AWS_ENDPOINT_URL"], name, env=env)
    equal(got.returncode, 0, got.stderr)
    answer = json.loads(got.stdout)
    out = collections.defaultdict(lambda: ({}, []))
    for key, value in answer["objects"].items():
        first, _, rest = key.partition("/")
        if not rest.rpartition("/")[2].startswith("reshard-manifest"):
            out[first][0][rest] = value
    for key in answer["uploads"]:
        out[key.partition("/")[0]][1].append(key.partition("/")[2])
    return out


def on_disk(source, options, *more):
    target = os.path.join(folder("disk"), str(time.monotonic_ns()))
    export(source, target, options, *more)
    return {path: hashlib.sha256(read_all(os.path.join(target, path))).hexdigest() for path in files_of(target)}


def is_whole(seen, want, what="the export", uploads=()):
    got, left = seen
    equal(got, want, f"{what}: the objects")
    equal(sorted(left), sorted(uploads), f"{what}: open uploads")


def is_part(seen, want, what="the export"):
    """What is there is complete; not all is."""
    got, _ = seen
    equal(got, {k: want[k] for k in got}, f"{what}: the objects")
    check(len(got) < len(want), f"{what}: nothing is missing")


def verified(url, count, status=0):
    got = run(reshard, "export", "--verify", url, env=stores.environment())
    equal(got.returncode, status, f"--verify: {got.stdout!r}, {got.stderr!r}")
    if status == 0:
        check(f"{url}: {count} files" in got.stdout and "all as the manifest says" in got.stdout, got.stdout)
    return got


def counts(requests, fault=None):
    """How many parts, single objects and completions were sent, without manifests."""
    sent = [r for r in requests if (fault is None or r[3] == fault) and MANIFEST not in r[1]]
    return (sum(r[0] == "PUT" and "uploadId" in r[1] for r in sent), sum(r[0] == "PUT" and "uploadId" not in r[1] for r in sent),
            sum(r[0] == "POST" and "uploadId" in r[1] for r in sent))


def test_an_export_into_a_bucket_is_that_to_a_disk():
    t, name = tree(), bucket()
    source, options = example()
    wanted = {}
    for number, (src, how, more) in enumerate((
            (t.src, t.options(), ()), (t.src, t.options("format=safetensors"), ()), (t.src, t.options("format=pt,zip_crc"), ()),
            (source, options, ()), (source, options + ",crc", THREADS), (source, options + ",format=safetensors", THREADS),
            (source, f"{options.partition(',')[0]},view=huggingface,file_size=7M", THREADS),
            (source, options + ",view=dcp", ()), (source, options + ",view=mindformers", ()))):
        how += SAME
        want = on_disk(src, how, *more)
        url = f"s3://{name}/out {number}+~ä=&%"
        got = export(src, url, how, *more)
        check(f"{url}: {len(want)} files written" in got.stdout, got.stdout)
        wanted[f"out {number}+~ä=&%"] = want
        verified(url, len(want))
        again = export(src, url + "/", how, *more)
        check(f"0 files written, 0 bytes" in again.stdout and f"{len(want)} were there" in again.stdout, again.stdout)
    seen = seen_by_prefix(name)
    for prefix, want in wanted.items():
        is_whole(seen[prefix], want, prefix)


def test_a_bucket_is_exported_into_the_bucket():
    t, name = tree(scale=8), bucket()
    url = stores.upload(t.dir, name, "from")
    export(f"{url}/src", f"s3://{name}/to", strategies(url))
    is_whole(seen_by_prefix(name)["to"], on_disk(t.src, t.options()))
    # A bucket alone is a destination, too.
    whole = bucket() + "-2"
    stores.request(f"/{whole}")
    export(t.src, f"s3://{whole}/", t.options())
    verified(f"s3://{whole}", 2)
    # What was written is a source.
    back = run(reshard, "info", f"s3://{name}/to/rank_0/checkpoint_0.ckpt", env=stores.environment())
    check(back.returncode == 0 and "bias" in back.stdout, back.stderr)


def test_files_of_checkpoints_of_other_programs():
    """Views of one whole checkpoint, made of and into several kinds."""
    t, name = tree(), bucket()
    safetensors, whole = (os.path.join(folder("kinds"), n) for n in ("safetensors", "whole"))
    export(t.src, safetensors, t.options("format=safetensors"))
    export(t.src, whole, f"src_strategy={t.dir}/src_strategy.ckpt,view=huggingface")
    wanted = {}
    for number, (source, how) in enumerate(((safetensors, f"src_strategy={t.dir}/dst_strategy.ckpt"),
                                            (whole, f"dst_strategy={t.dir}/dst_strategy.ckpt"),
                                            (whole, "view=dcp,dst_ranks=3"), (whole, "view=unified"))):
        export(source, f"s3://{name}/{number}", how + SAME)
        wanted[str(number)] = on_disk(source, how + SAME)
    seen = seen_by_prefix(name)
    for prefix, want in wanted.items():
        is_whole(seen[prefix], want, prefix)


def test_parts_and_requests():
    """A file of 11.5 MB in parts of 5 MiB; small ones by one request; each compared by its MD5 on both sides."""
    source, options = example()
    name, t = bucket(), tree()
    with stores.Proxy() as proxy:
        env = stores.environment(proxy.url)
        export(source, f"s3://{name}/large", options, *THREADS, env=env)
        equal(counts(proxy.requests()), (6, 0, 2), "parts, single objects and completions of two files")
        proxy.forget()
        export(source, f"s3://{name}/large", options, *THREADS, "--trust", env=env)
        equal(counts(proxy.requests()), (0, 0, 0), "the same when all is there")
        check(not any(r[0] == "GET" and r[2] != "-" and "rank_" in r[1] for r in proxy.requests()), "--trust has read objects")
        proxy.forget()
        export(t.src, f"s3://{name}/small", t.options(), env=env)
        equal(counts(proxy.requests()), (0, 2, 0), "of two small files")


def test_faults_that_pass_while_writing():
    on_small = ("lost", "md5")
    faults = ("503", "reset", "half", "lost", "md5", "late")
    source, options = example()
    t, name = tree(), bucket()
    want, small = on_disk(source, options), on_disk(t.src, t.options())
    with stores.Proxy() as proxy:
        env = stores.environment(proxy.url)
        for fault in faults:
            how = {"late": {"only": "uploadId", "method": "POST"}, "md5": {"method": "PUT"}}.get(fault, {})
            proxy.forget()
            proxy.plan(fault=fault, every=2, **how)
            export(source, f"s3://{name}/{fault}", options, *THREADS, env=env)
            check(any(r[3] == fault for r in proxy.requests()), f"no request met with {fault}")
            if fault in on_small:
                export(t.src, f"s3://{name}/small-{fault}", t.options(), env=env)
        seen = seen_by_prefix(name)
        proxy.plan()
        for fault in faults:
            # An upload whose first answer was lost stays open; the next run finds it.
            check(seen[fault][1] == [] or fault in ("lost", "reset"), f"{fault}: open uploads: {seen[fault][1]}")
            is_whole(seen[fault], want, fault, seen[fault][1])
            if fault in on_small:
                is_whole(seen[f"small-{fault}"], small, f"small-{fault}")
            if seen[fault][1]:
                export(source, f"s3://{name}/{fault}", options, *THREADS, "--trust", env=env)
        check(not any(uploads for _, uploads in seen_by_prefix(name).values()), "an upload stays open")


def test_faults_that_stay_leave_complete_files_alone():
    source, options = example()
    t, name = tree(), bucket()
    want, small = on_disk(source, options), on_disk(t.src, t.options())
    words_of = {
        "503": ("rank_1", "status 503, SlowDown"),
        "half": ("rank_1", "tried 2 times"),
        "403": ("rank_1", "status 403, AccessDenied: Access Denied by the proxy (tried 1 time"),
        "md5": ("rank_1", "the store has other bytes than were sent"),
        "swallow": ("partNumber=2", "status 400, InvalidPart"),
        "late": ("rank_1", "InternalError: late"),
    }
    with stores.Proxy() as proxy:
        env = stores.environment(proxy.url)
        for fault, (only, message) in words_of.items():
            how = {"method": "POST", "only": "uploadId"} if fault == "late" else {"method": "PUT", "only": only}
            proxy.plan(fault=fault, **how)
            got = export(source, f"s3://{name}/{fault}", options + ",tries=2", *THREADS, env=env, status=1)
            check(message in got.stderr and f"s3://{name}/{fault}/rank_" in got.stderr and "; try: " in got.stderr,
                  f"{fault}: {got.stderr!r}")
            equal(got.stderr.count("\n"), 1, f"{fault}: lines of {got.stderr!r}")
        # A small object is there at once: what the store has of it is removed if it says that it has other bytes.
        proxy.plan(fault="md5", method="PUT", only="rank_1")
        got = export(t.src, f"s3://{name}/small", t.options("tries=2"), env=env, status=1)
        check("the store has other bytes than were sent; they were removed" in got.stderr, got.stderr)
    seen = seen_by_prefix(name)
    is_part(seen["small"], small)
    for fault in words_of:
        is_part(seen[fault], want, fault)
        equal(seen[fault][1], [], f"{fault}: open uploads")
        export(source, f"s3://{name}/{fault}", options, *THREADS)
    seen = seen_by_prefix(name)
    for fault in words_of:
        is_whole(seen[fault], want, fault)


def test_bytes_that_are_damaged_on_the_way_are_refused():
    """By a store that compares MD5s; else by the ETag of its answer."""
    source, options = example()
    name = bucket()
    want = on_disk(source, options)
    with stores.Proxy(fault="damage", method="PUT", only="partNumber", every=2) as proxy:
        export(source, f"s3://{name}/out", options, *THREADS, env=stores.environment(proxy.url))
        check(any(r[3] == "damage" for r in proxy.requests()), "nothing was damaged")
    is_whole(seen_by_prefix(name)["out"], want)


def test_etags_that_are_no_md5s():
    """As of a bucket that encrypts by keys of a service. The size and the ETag of the answer count."""
    t, name = tree(), bucket()
    with stores.Proxy(fault="kms", only="checkpoint") as proxy:
        export(t.src, f"s3://{name}/out", t.options(), env=stores.environment(proxy.url))
        heads = sum(r[0] == "HEAD" and "checkpoint" in r[1] for r in proxy.requests())
        check(heads >= 2, f"{heads} objects were looked at")
    is_whole(seen_by_prefix(name)["out"], on_disk(t.src, t.options()))


def killed_at(proxy, command, env, condition):
    """Kills an export once the requests so far fulfil a condition."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    eventually(lambda: condition(proxy.requests()) or process.poll() is not None, "the export is on its way")
    equal(process.poll(), None, "the export has ended before it was killed")
    process.kill()
    process.wait(PATIENCE)


def test_a_killed_export_goes_on():
    """At each of its steps. Only complete objects are seen; the next run aborts what is open, and writes what lacks."""
    source, options = example()
    name = bucket()
    want = on_disk(source, options)
    steps = {
        "manifest": lambda rs: any(MANIFEST in r[1] for r in rs),
        "upload": lambda rs: any(r[0] == "POST" and "uploads" in r[1] for r in rs),
        "parts": lambda rs: sum("partNumber" in r[1] for r in rs) >= 3,
        "file": lambda rs: any(r[0] == "POST" and "uploadId" in r[1] for r in rs),
    }
    with stores.Proxy(latency=0.2) as proxy:
        env = stores.environment(proxy.url)
        for step, condition in steps.items():
            proxy.forget()
            killed_at(proxy, words(source, f"s3://{name}/{step}", options, "-j", "1"), env, condition)
    seen = seen_by_prefix(name)
    check(any(seen[step][1] for step in steps), "no upload was open")
    with stores.Proxy() as proxy:
        for step in steps:
            is_part(seen[step], want, step)
            missing = len(want) - len(seen[step][0])
            proxy.forget()
            got = export(source, f"s3://{name}/{step}", options, *THREADS, env=stores.environment(proxy.url))
            check(f": {missing} file" in got.stdout, got.stdout)
            equal(counts(proxy.requests())[2], missing, f"{step}: files that were written again")
    seen = seen_by_prefix(name)
    for step in steps:
        is_whole(seen[step], want, step)
        verified(f"s3://{name}/{step}", 2)


def test_a_signal_leaves_no_upload_open():
    source, options = example()
    name = bucket()
    want = on_disk(source, options)
    with stores.Proxy(latency=0.3) as proxy:
        process = subprocess.Popen(words(source, f"s3://{name}/out", options, "-j", "1"), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=stores.environment(proxy.url), text=True)
        eventually(lambda: any("partNumber" in r[1] for r in proxy.requests()), "a part is sent")
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=PATIENCE)[1]
        check("stopped by a signal" in text, text)
    seen = seen_by_prefix(name)["out"]
    is_part(seen, want)
    equal(seen[1], [], "open uploads")


def test_uploads_of_others_stay():
    """Of other keys, also below the prefix."""
    t, name = tree(), bucket()
    for key in ("out/mine.bin", "other/rank_0/checkpoint_0.ckpt", "out/rank_0/checkpoint_0.ckpt"):
        stores.request(f"/{name}/{key}?uploads=", method="POST")
    export(t.src, f"s3://{name}/out", t.options())
    seen = seen_by_prefix(name)
    equal(seen["out"][1], ["mine.bin"], "uploads below the prefix")
    equal(seen["other"][1], ["rank_0/checkpoint_0.ckpt"], "uploads elsewhere")


def test_what_is_there_is_not_overwritten():
    t, name = tree(), bucket()
    want = on_disk(t.src, t.options())
    url = f"s3://{name}/out"
    stores.put(name, "out/notes", b"mine")
    text = export(t.src, url, t.options(), status=1).stderr
    check(f"{url}: the folder to write to is not empty, and no export is in it" in text, text)
    stores.request(f"/{name}/out/notes", method="DELETE")
    stores.put(name, "out/rank_0/checkpoint_0.ckpt", b"another")
    stores.put(name, "out/reshard-manifest.json", b'{"format": "reshard-manifest", "version": 1, "files": []}')
    text = export(t.src, url, t.options(), status=1).stderr
    check(f"it is in {url} already, and has another size than the new content" in text, text)
    export(t.src, url, t.options(), "--force")
    is_whole(seen_by_prefix(name)["out"], want)
    # Of another export: refused with its name, removed by --force.
    text = export(t.src, url, t.options("format=safetensors"), status=1).stderr
    check("2 files of another export are in it" in text and "rank_0/checkpoint_0.ckpt" in text, text)
    got = export(t.src, url, t.options("format=safetensors"), "--force")
    check("2 of another export removed" in got.stdout, got.stdout)
    is_whole(seen_by_prefix(name)["out"], on_disk(t.src, t.options("format=safetensors")))


def test_verify_finds_changed_and_missing_objects():
    t, name = tree(), bucket()
    url, key = f"s3://{name}/out", "out/rank_0/checkpoint_0.ckpt"
    export(t.src, url, t.options())
    data = t.expected(0)
    stores.put(name, key, data[:-1] + bytes([data[-1] ^ 1]))
    got = verified(url, 2, status=1)
    equal(got.stdout, "rank_0/checkpoint_0.ckpt: its bytes differ from the manifest\n", "what is printed")
    text = export(t.src, url, t.options(), status=1).stderr
    check("has other bytes than its manifest says" in text, text)
    stores.put(name, key, data + b"x")
    equal(verified(url, 2, status=1).stdout, "rank_0/checkpoint_0.ckpt: its size differs from the manifest\n", "what is printed")
    stores.request(f"/{name}/{key}", method="DELETE")
    equal(verified(url, 2, status=1).stdout, "rank_0/checkpoint_0.ckpt: it is missing\n", "what is printed")
    export(t.src, url, t.options())
    verified(url, 2)
    got = run(reshard, "export", t.src, url, "-o", t.options(), "--verify", env=stores.environment())
    equal(got.returncode, 0, got.stderr)
    # The options of the store alone need no source.
    plain = stores.environment(AWS_ENDPOINT_URL=None)
    endpoint = stores.environment()["AWS_ENDPOINT_URL"]
    got = run(reshard, "export", "--verify", url, "-o", f"endpoint={endpoint},path_style", env=plain)
    equal(got.returncode, 0, got.stderr)
    got = run(reshard, "export", "--verify", url, "-o", "format=pt", env=plain)
    check("options of a source are given, and no source" in got.stderr, got.stderr)
    equal(run(reshard, "export", "--verify", f"s3://{name}/nothing", env=stores.environment()).stderr,
          f"reshard: error: s3://{name}/nothing: there is no manifest to verify it by; try: the folder of an export\n", "of nothing")


def test_tasks_divide_a_bucket():
    """At once, one of them killed, and then with another number of tasks."""
    source, options = example(4)
    name = bucket()
    url, want = f"s3://{name}/out", on_disk(source, options)
    with stores.Proxy(latency=0.2) as proxy:
        env = stores.environment(proxy.url)
        tasks = [subprocess.Popen(words(source, url, options, *THREADS, "--task", f"{k}/3"), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env, text=True) for k in range(3)]
        eventually(lambda: any("partNumber" in r[1] for r in proxy.requests()), "a part is sent")
        tasks[0].kill()
        for task in tasks:
            text = task.communicate(timeout=PATIENCE)[1]
            equal(task.returncode, -signal.SIGKILL if task is tasks[0] else 0, f"a task's status, with {text!r}")
    is_part(seen_by_prefix(name)["out"], want)
    check("files are in the manifest" in verified(url, 4, status=1).stderr, "an incomplete export was verified")
    for k in range(2):
        export(source, url, options, "--task", f"{k}/2")
    is_whole(seen_by_prefix(name)["out"], want)
    verified(url, 4)
    objects = stores.request(f"/{name}?list-type=2&prefix=out%2Freshard-manifest", method="GET").decode()
    equal(objects.count("<Key>"), 1, f"manifests after --verify: {objects}")
    verified(url, 4)


def test_two_exports_at_once_do_not_mix():
    """The later takes the manifest over, which stops the earlier; what is there is complete, and the next run ends it."""
    source, options = example()
    name = bucket()
    url, want = f"s3://{name}/out", on_disk(source, options)
    with stores.Proxy(latency=0.3) as proxy:
        first = subprocess.Popen(words(source, url, options + ",tries=2", "-j", "1"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, env=stores.environment(proxy.url), text=True)
        eventually(lambda: any("partNumber" in r[1] for r in proxy.requests()), "a part is sent")
        export(source, url, options, *THREADS)
        text = first.communicate(timeout=PATIENCE)[1]
    equal(first.returncode, 1, f"status of the earlier, with {text!r}")
    # moto answers 500 to parts of an upload that is gone.
    check(any(word in text for word in ("NoSuchUpload", f"another export to {url} is writing it", "cannot write: status 500")), text)
    is_whole(seen_by_prefix(name)["out"], want)
    verified(url, 2)


def test_what_appears_meanwhile_is_not_replaced():
    source, options = example()
    name = bucket()
    key = "out/rank_0/checkpoint_0.ckpt"
    for how in ({}, {"unconditional": True}):
        with stores.Proxy(latency=0.2, **how) as proxy:
            export_ = subprocess.Popen(words(source, f"s3://{name}/out", options, "-j", "1"), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=stores.environment(proxy.url), text=True)
            eventually(lambda: any("partNumber" in r[1] for r in proxy.requests()), "a part is sent")
            stores.put(name, key, b"of somebody else")
            text = export_.communicate(timeout=PATIENCE)[1]
        equal(text, f"reshard: error: s3://{name}/{key}: cannot be completed: an object was written there meanwhile; try: the same "
              "command again, once no other export writes there\n", f"the message, {how}")
        objects, uploads = seen_by_prefix(name)["out"]
        equal(objects["rank_0/checkpoint_0.ckpt"], hashlib.sha256(b"of somebody else").hexdigest(), "the object")
        equal(uploads, [], "open uploads")
        for rank in range(2):
            stores.request(f"/{name}/out/rank_{rank}/checkpoint_{rank}.ckpt", method="DELETE")


def test_stores_without_conditional_writes():
    """One that says so, and one that does not heed conditions."""
    source, options = example()
    t, name = tree(), bucket()
    want, small = on_disk(source, options), on_disk(t.src, t.options())
    for how in ("unconditional", "blind"):
        with stores.Proxy(**{how: True}) as proxy:
            env = stores.environment(proxy.url)
            export(source, f"s3://{name}/{how}", options, *THREADS, env=env)
            export(t.src, f"s3://{name}/small-{how}", t.options(), env=env)
    seen = seen_by_prefix(name)
    for how in ("unconditional", "blind"):
        is_whole(seen[how], want, how)
        is_whole(seen[f"small-{how}"], small, f"small-{how}")


def test_destinations_that_are_refused():
    t = tree()
    url = stores.upload(t.dir)
    env = stores.environment()
    server = url.partition("//")[2].partition("/")[0]
    for target, source, message in (
            ("gs://bucket/out", t.src, "gs://bucket/out: cannot be written to: it begins with none of s3://, hf://, https:// and http://; "
             "try: s3://BUCKET/PREFIX with endpoint=https://storage.googleapis.com and HMAC keys"),
            ("https://host/out", t.src, "https://host/out: a web server cannot be written to; try: s3://BUCKET/PREFIX, or a folder"),
            (f"{url}/src", f"{url}/src", f"{url}/src: the folder to write to is the source; try: a folder elsewhere"),
            (f"{url}/src/in", f"{url}/src", f"{url}/src/in: the folder to write to is inside the source {url}/src; try: a folder elsewhere"),
            (f"s3://{server}", f"{url}/src", f"s3://{server}: the source {url}/src is inside the folder to write to; try: a folder elsewhere")):
        options = strategies(url) if source == f"{url}/src" else t.options()
        got = run(*words(source, target, options), env=env)
        equal(got.returncode, 1, f"status for {target}, with {got.stderr!r}")
        check(got.stderr.splitlines()[-1].startswith(f"reshard: error: {message}"), f"{target}: {got.stderr!r}")
        equal(len(got.stderr.splitlines()), 1, f"lines of {got.stderr!r}")


def test_a_bucket_that_is_not_there():
    need(stores.s3_port, "the S3 server is missing")
    t, env = tree(), stores.environment()
    got = run(*words(t.src, "s3://no-such-bucket-here/out", t.options()), env=env)
    equal((got.returncode, got.stderr), (1, "reshard: error: s3://no-such-bucket-here/out/reshard-manifest.json: cannot write: status "
          f"404, NoSuchBucket: The specified bucket does not exist (tried 1 time, at {env['AWS_ENDPOINT_URL']}); try: the name of a "
          "bucket that is there\n"), "the status and the message")
    for command in ((reshard, "info", "s3://no-such-bucket-here/src"), (reshard, "info", "s3://no-such-bucket-here/src.ckpt"),
                    (reshardfs, "s3://no-such-bucket-here/src", folder("mnt"), "-o", t.options()),
                    (reshard, "info", t.src, "-s", "s3://no-such-bucket-here/src.ckpt")):
        got = run(*command, env=env)
        equal((got.returncode, got.stderr.count("\n")), (1, 1), f"the status and the lines of {command}: {got.stderr!r}")
        check(got.stderr.endswith("; try: the name of a bucket that is there\n"), f"{command}: {got.stderr!r}")
