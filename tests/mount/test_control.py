# SPDX-License-Identifier: Apache-2.0
"""The hidden folder .reshardfs, and extended attributes."""
import ctypes
import errno
import json
import mmap
import os
import re
import stat
import struct
import sys
import threading

from forge import Param, Tree, WHOLE, cut, usual
from harness import *
from seal import KEY, key_file, seal_tree

HIDDEN = ".reshardfs"
DESCR = {"Float32": "<f4", "Float16": "<f2", "Int32": "<i4", "Int8": "|i1", "Float64": "<f8", "Bool": "|b1"}


def inside(m, *names):
    return os.path.join(m.mnt, HIDDEN, *names)


def text(m, name):
    return read_all(inside(m, name)).decode()


def stats(m):
    return json.loads(text(m, "stats.json"))


def tensor(m, where, name):
    return read_all(inside(m, "tensors", where, name + ".npy"))


def slices(tree, rank):
    """(name, dtype, shape, bytes) of a destination rank's parameters."""
    for p in tree.params:
        local = rank if p.dst is not None else rank % tree.dst_n % tree.src_n
        axis, n = (p.dst, tree.dst_n) if p.dst is not None else (p.src, tree.src_n)
        yield (p.name, p.dtype, *cut(p, axis, n, local, tree.full[p.name]))


def of_npy(data):
    """(descr, shape, content), by the format's definition."""
    equal(data[:8], b"\x93NUMPY\x01\x00", "magic")
    end = 10 + int.from_bytes(data[8:10], "little")
    equal(end % 64, 0, "alignment")
    head = eval(data[10:end].decode(), {})
    equal(head["fortran_order"], False, "order")
    return head["descr"], head["shape"], data[end:]


def right_tensors(m, tree):
    for rank in range(tree.dst_n):
        where = f"rank_{rank}"
        names = []
        for name, dtype, shape, data in slices(tree, rank):
            equal(of_npy(tensor(m, where, name)), (DESCR[dtype], tuple(shape), data), f"{where} {name}")
            names += [name + ".npy", name + ".json"]
        equal(sorted(os.listdir(inside(m, "tensors", where))), sorted(names), where)
    for p in tree.params:
        if p.src is not None:
            want = (DESCR[p.dtype], tuple(p.shape), tree.full[p.name])
            equal(of_npy(tensor(m, "full", p.name)), want, f"full {p.name}")


def test_control_tensors():
    tree = Tree(folder("tree"), usual(), 4, 2)
    for format in ("ckpt", "safetensors", "pt"):
        with Mount(tree.src, tree.options("format=" + format), mnt=folder("mnt-" + format)) as m:
            equal(sorted(os.listdir(inside(m, "tensors"))), ["full", "rank_0", "rank_1"], "tensors")
            right_tensors(m, tree)


def with_numpy(script, *arguments):
    """What a script says, in a Python that has numpy."""
    for python in (sys.executable, "/usr/bin/python3"):
        if run(python, "-c", "import numpy").returncode == 0:
            got = run(python, "-c", script, *arguments)
            equal((got.returncode, got.stderr), (0, ""), "the script")
            return json.loads(got.stdout)
    raise Skip("no Python with numpy; try: apt-get install python3-numpy")


LOAD = """
import hashlib, json, os, sys
import numpy
out = {}
for path in sys.argv[1:]:
    a, b = numpy.load(path, mmap_mode="r"), numpy.load(path)
    assert isinstance(a, numpy.memmap) and not a.flags.writeable and (a.tobytes() == b.tobytes())
    if a.ndim == 2:  # pages here and there, through the mapping alone
        assert a[-1].tobytes() == b[-1].tobytes() and a[:, 1].tobytes() == b[:, 1].tobytes()
    out[path] = [a.dtype.str, list(a.shape), hashlib.md5(b.tobytes()).hexdigest()]
    copy = os.path.join(os.environ["PLACE"], "copy.npy")
    if a.dtype.kind != "V":  # byte for byte what numpy writes
        numpy.save(copy, b)
        assert open(copy, "rb").read() == open(path, "rb").read(), path
print(json.dumps(out))
"""


def test_control_numpy():
    """numpy maps a slice in one line, whatever is said of the page cache."""
    import hashlib

    tree = Tree(folder("tree"), [*usual(8), Param("scalar", (), WHOLE, WHOLE)], 4, 2)
    os.environ["PLACE"] = folder("copies")
    for io in ("auto", "direct", "cached"):
        with Mount(tree.src, tree.options("io=" + io), mnt=folder("mnt-" + io)) as m:
            want = {}
            for rank in range(2):
                for name, dtype, shape, data in slices(tree, rank):
                    path = inside(m, "tensors", f"rank_{rank}", name + ".npy")
                    want[path] = [DESCR[dtype], list(shape), hashlib.md5(data).hexdigest()]
            for p in tree.params:
                path = inside(m, "tensors", "full", p.name + ".npy")
                want[path] = [DESCR[p.dtype], list(p.shape), hashlib.md5(tree.full[p.name]).hexdigest()]
            equal(with_numpy(LOAD, *want), want, f"io={io}")


def test_got_is_what_is_shown():
    """reshard get writes the same files without a mount."""
    tree, out = Tree(folder("tree"), [*usual(8), Param("scalar", (), WHOLE, WHOLE)], 4, 2), folder("got") + "/it.npy"
    with Mount(tree.src, tree.options()) as m:
        for p in tree.params:
            for group, more in (("full", ()), ("rank_1", ("--rank", "1"))):
                got = run(reshard, "get", tree.src, p.name, out, "--force", "-o", tree.options(), *more)
                equal((got.returncode, got.stdout, got.stderr), (0, "", ""), f"get of {p.name}")
                same_bytes(read_all(out), read_all(inside(m, "tensors", group, p.name + ".npy")), f"{group}/{p.name}")


def test_control_bfloat16():
    """numpy has no bfloat16: raw elements of two bytes, never taken for numbers."""
    tree = Tree(folder("tree"), [Param("w", (8, 6), 0, 1, "Float32")], 4, 2)
    os.environ["PLACE"] = folder("copies")
    with Mount(tree.src, tree.options("dtype=bfloat16")) as m:
        path = inside(m, "tensors", "rank_1", "w.npy")
        (got,) = with_numpy(LOAD, path).values()
        equal(got[:2], ["|V2", [8, 3]], "as numpy has it")
        about = json.loads(read_all(path[:-4] + ".json"))
        equal((about["dtype"], about["numpy"], about["really"]), ("BFloat16", "<V2", "bfloat16"), "as told")


def test_control_json():
    tree = Tree(folder("tree"), [Param("w", (8, 6), 0, 1), Param("b", (4,), WHOLE, WHOLE)], 4, 2)
    with Mount(tree.src, tree.options()) as m:
        files = [os.path.realpath(tree.path(rank)) for rank in range(4)]
        equal(json.loads(read_all(inside(m, "tensors", "rank_1", "w.json"))), {
            "name": "w", "rank": 1, "dtype": "Float32", "numpy": "<f4", "shape": [8, 3], "bytes": 96,
            "whole": [8, 6], "source_pieces": [4, 1], "pieces": [1, 2], "boxes": [[[0, 8], [3, 6]]],
            "source_ranks": [0, 1, 2, 3], "source_files": files,
        }, "rank_1/w.json")
        equal(json.loads(read_all(inside(m, "tensors", "full", "w.json"))), {
            "name": "w", "dtype": "Float32", "numpy": "<f4", "shape": [8, 6], "bytes": 192,
            "whole": [8, 6], "source_pieces": [4, 1], "pieces": [1, 1], "boxes": [[[0, 8], [0, 6]]],
            "source_ranks": [0, 1, 2, 3], "source_files": files,
        }, "full/w.json")
        size = os.stat(inside(m, "tensors", "full", "w.json")).st_size
        equal(size, len(read_all(inside(m, "tensors", "full", "w.json"))), "size")


def test_control_is_hidden():
    """What walks the tree does not see it; who knows the name does."""
    tree = Tree(folder("tree"), usual(), 4, 2)
    with Mount(tree.src, tree.options(), mnt=folder("hide")) as m:
        equal(sorted(os.listdir(m.mnt)), ["rank_0", "rank_1"], "ls -a")
        got = run("find", m.mnt, "-name", "*.npy", "-o", "-name", HIDDEN)
        equal((got.stdout, got.stderr), ("", ""), "find")
        plain = run("du", "-s", "--apparent-size", "-B1", m.mnt).stdout.split()[0]
        equal(int(plain), sum(len(tree.expected(r)) for r in range(2)), "du")
        for flag in ("-r", "-a"):
            copy = folder("copy" + flag)
            got = run("cp", flag, m.mnt + "/.", copy)
            equal((got.returncode, got.stderr), (0, ""), f"cp {flag}")
            equal(sorted(os.listdir(copy)), ["rank_0", "rank_1"], "the copy")
        out = folder("out")
        got = run(reshard, "export", tree.src, out, "-o", tree.options())
        equal(got.returncode, 0, got.stderr)
        check(HIDDEN not in os.listdir(out), "export")
        check(os.path.isdir(inside(m)), "it is there by its name")
        equal(sorted(os.listdir(inside(m))), ["config.json", "log", "metrics", "stats.json", "tensors"], "in it")
        equal(os.stat(m.mnt).st_nlink, 4, "links")
    with Mount(tree.src, tree.options("control=show"), mnt=folder("show")) as m:
        equal(sorted(os.listdir(m.mnt)), [HIDDEN, "rank_0", "rank_1"], "control=show")
        equal(os.stat(m.mnt).st_nlink, 5, "links")
        got = run("find", m.mnt, "-name", "*.npy", "-printf", "x")
        equal((len(got.stdout), got.stderr), (3 * len(tree.params), ""), "find")
        got = run("ls", "-laR", inside(m))
        equal((got.returncode, got.stderr), (0, ""), "ls -lR")
        inodes = run("find", m.mnt, "-printf", "%i\\n").stdout.split()
        equal(len(inodes), len(set(inodes)), "inode numbers")
    with Mount(tree.src, tree.options("control=no"), mnt=folder("no")) as m:
        check(not os.path.exists(inside(m)), "control=no")
        for call in (lambda: os.listxattr(m.mnt), lambda: os.getxattr(m.mnt, "user.reshardfs.version")):
            try:
                call()
                raise AssertionError("there are attributes")
            except OSError as error:
                equal(error.errno, errno.ENOTSUP, "control=no")
    fails(2, "option control=maybe: not one that is known; try: control=hide, show or no",
          tree.src, folder("x"), "-o", tree.options("control=maybe"))


def test_control_stats():
    tree = Tree(folder("tree"), usual(8), 4, 2)
    with Mount(tree.src, tree.options("cache=2M")) as m:
        before = stats(m)
        equal(before["reads"], 0, "reads")
        equal(before["cache_budget"], 2 << 20, "cache_budget")
        for _ in range(2):
            for rank in range(2):
                same_bytes(m.read(rank), tree.expected(rank), "a file")
        after = stats(m)
        want = 2 * sum(len(tree.expected(rank)) for rank in range(2))
        equal(after["bytes_replied"], want, "bytes_replied")
        check(after["reads"] > 0 and after["source_bytes"] > 0 and after["cache_misses"] > 0, after)
        equal(sum(after["latency"]["reads"]), after["reads"], "reads by latency")
        equal(len(after["latency"]["reads"]), len(after["latency"]["below_us"]), "latencies")
        # One open file is one moment; the next is another.
        with open(inside(m, "stats.json")) as file:
            first = file.read(10)
            m.read(0)
            rest = file.read()
        equal(json.loads(first + rest), {**json.loads(first + rest), "reads": after["reads"]}, "one moment")
        check(stats(m)["reads"] > after["reads"], "the next moment")
        tree.write(0, b"")
        try:
            m.read(0)
            raise AssertionError("a truncated source was read")
        except OSError as error:
            equal(error.errno, errno.ESTALE, "a truncated source")
        gone = stats(m)
        check(gone["source_errors"] > 0 and gone["reads_failed"] > 0, gone)


def test_control_config():
    tree = Tree(folder("a,b"), usual(), 4, 2)
    with Mount(tree.src, tree.options("cache=3M,strict,io=cached,max_threads=3,prefix=x_")) as m:
        config = json.loads(text(m, "config.json"))
        equal(config["source"], tree.src, "source")
        equal(config["mountpoint"], m.mnt, "mountpoint")
        equal(config["pid"], m.pid, "pid")
        equal((config["source_ranks"], config["target_ranks"]), (4, 2), "ranks")
        version = run(reshardfs, "--version").stdout
        want = [f"reshardfs {config['version']}", f"libfuse {config['libfuse']}", config["features"]]
        equal(version.splitlines()[:3], want, "versions")
        equal(config["view"], {
            "src_strategy": os.path.join(tree.dir, "src_strategy.ckpt"),
            "dst_strategy": os.path.join(tree.dir, "dst_strategy.ckpt"),
            "format": "ckpt", "view": "ranks", "order": "program", "prefix": "x_", "cache": str(3 << 20), "strict": True,
            **{k: v for k, v in config["view"].items() if k == "index_cache"},
        }, "view")
        equal({k: config["mount"][k] for k in ("io", "control", "max_threads", "allow_other")},
              {"io": "cached", "control": "hide", "max_threads": 3, "allow_other": False}, "mount")


def listed(mnt, *before):
    """What reshard mounts says of a mount, for scripts and for people."""
    rows = [row for row in json.loads(run(*before, reshard, "mounts", "--json").stdout) if row["mount"] == mnt]
    equal(len(rows), 1, f"rows of {mnt}")
    lines = run(*before, reshard, "mounts").stdout.split("\n")
    at = [i for i, line in enumerate(lines) if line == f"{mnt}: of {rows[0]['source']}"]
    equal(len(at), 1, f"lines of {mnt} in {lines}")
    return rows[0], lines[at[0] + 1:at[0] + 4]


@alone  # other mounts may be stopped, and do not answer then
def test_control_listed():
    """By reshard mounts: what it is, and what was read; nothing of a mount that tells nothing."""
    tree = Tree(folder("tree"), usual(8), 4, 2)
    with Mount(tree.src, tree.options("prefix=x\\,y")) as m:
        size = len(read_all(m.file(1, "x,y")))
        row, lines = listed(m.mnt)
        equal((row["source"], row["source_ranks"], row["target_ranks"]), (os.path.realpath(tree.src), 4, 2), "mount")
        equal((row["bytes"], row["pid"]), (size, json.loads(text(m, "config.json"))["pid"]), "read")
        check("prefix=x\\,y" in row["options"] and lines[2] == "  options: " + row["options"], row)
        check(lines[1].startswith("  read: "), lines)
        if os.geteuid() == 0:
            needs_programs_of_all()
            other, lines = listed(m.mnt, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
            equal({k for k, v in other.items() if v is not None}, {"mount", "source"}, "what others are told")
            check("tells no more" in lines[0], lines)
    with Mount(tree.src, tree.options("control=no")) as m:
        equal(listed(m.mnt)[0]["options"], None, "without the folder")
    check(m.mnt not in run(reshard, "mounts").stdout, "after it was unmounted")


PARSE = """
import json, sys
from prometheus_client.parser import text_fd_to_metric_families
families = list(text_fd_to_metric_families(open(sys.argv[1], encoding="utf-8")))
assert len({family.name for family in families}) == len(families), "a name begins twice"
assert all(family.documentation and family.samples for family in families)
print(json.dumps([[family.name, family.type, [[s.name, s.labels, s.value] for s in family.samples]] for family in families]))
"""


def families(path):
    """{name: (type, [[name, labels, value] of a sample])}, by Prometheus' own parser."""
    python = os.environ.get("RFS_NUMBERS_PYTHON", "")
    need(os.path.exists(python), "prometheus_client is missing; try: scripts/test numbers-packages")
    got = run(python, "-c", PARSE, path)
    equal((got.returncode, got.stderr), (0, ""), "the parser")
    return {name: (kind, samples) for name, kind, samples in json.loads(got.stdout)}


def test_control_metrics():
    """Each number of stats.json, with its type, and the durations of reads as a histogram."""
    tree = Tree(folder("tree"), usual(8), 4, 2)
    with Mount(tree.src, tree.options(), mnt=folder('a "mount"\n\\ of é')) as m:
        m.read(0)
        m.read(1)
        told = stats(m)
        got = families(inside(m, "metrics"))
        point = m.mnt.replace("\n", "\\x0a")
        _, [[_, labels, one]] = got.pop("reshardfs_info")
        version = json.loads(text(m, "config.json"))["version"]
        equal((labels, one), ({"mountpoint": point, "source": os.path.realpath(tree.src), "version": version}, 1), "info")
        kind, samples = got.pop("reshardfs_read_duration_seconds")
        equal(kind, "histogram", "durations")
        buckets = [(s[1]["le"], s[2]) for s in samples if s[0].endswith("_bucket")]
        bounds = [us / 1e6 for us in told["latency"]["below_us"][:-1]]
        equal([float(b) for b, _ in buckets], [*bounds, float("inf")], "bounds")
        equal([n for _, n in buckets], [sum(told["latency"]["reads"][:i + 1]) for i in range(len(buckets))], "sums")
        equal([s[2] for s in samples if s[0].endswith("_count")], [told["reads"]], "reads")
        (total,) = [s[2] for s in samples if s[0].endswith("_sum")]
        check(abs(total - told["latency"]["sum_ns"] / 1e9) < 1e-8, f"{total} s")
        check(got.pop("reshardfs_uptime_seconds")[1][0][2] >= told["seconds"], "seconds")
        for name in set(told) - {"seconds", "latency", "sandbox"}:
            kind, [[sample, labels, value]] = got.pop("reshardfs_" + name)
            gauge = name in ("index_bytes", "cache_budget", "cache_bytes")
            equal((kind, sample.endswith("_total")), ("gauge", False) if gauge else ("counter", True), name)
            equal((labels, value), ({"mountpoint": point}, told[name]), name)
        equal(got, {}, "what stats.json has not")


@alone
def test_control_metrics_of_all_mounts():
    """A file with the samples of all mounts that tell them, each name once; it is there whole, or as it was."""
    tree = Tree(folder("tree"), usual(8), 4, 2)
    path = os.path.join(folder("prometheus"), "reshardfs.prom")
    with Mount(tree.src, tree.options(), mnt=folder("one")) as one, \
            Mount(tree.src, tree.options(), mnt=folder("two")) as two, \
            Mount(tree.src, tree.options("control=no"), mnt=folder("three")) as three:
        size = len(one.read(0))
        for _ in range(2):  # the second takes the place of the first
            got = run(reshard, "mounts", "--metrics-file", path)
            equal((got.returncode, got.stdout, got.stderr), (0, "", ""), "reshard mounts")
        samples = {labels["mountpoint"]: value for _, labels, value in families(path)["reshardfs_bytes_replied"][1]}
        equal((samples.get(one.mnt), samples.get(two.mnt), three.mnt in samples), (size, 0, False), "bytes of the mounts")
    equal(os.listdir(os.path.dirname(path)), ["reshardfs.prom"], "files")
    missing = os.path.join(os.path.dirname(path), "none", "reshardfs.prom")
    got = run(reshard, "mounts", "--metrics-file", missing)
    equal((got.returncode, got.stderr), (1, f"reshard: error: {missing}: cannot create: No such file or directory; try: a folder "
                                            "that is there and that you may write to\n"), "no folder")


@alone
def test_control_metrics_of_a_bind_mount():
    """Those of a mount that is at two places are there once: Prometheus takes no sample twice."""
    need(os.geteuid() == 0, "only root can make a bind mount")
    tree, other = Tree(folder("tree"), usual(8), 4, 2), folder("other")
    with Mount(tree.src, tree.options()) as m:
        equal(run("mount", "--bind", m.mnt, other).returncode, 0, "mount --bind")
        got = run(reshard, "mounts", "--metrics-file", "-")
        unmount(other)
        equal(got.stdout.count(f'reshardfs_reads_total{{mountpoint="{m.mnt}"}}'), 1, "samples of one counter")


def serve(device, metrics):
    """Answers the kernel as a file system of which each name leads to a folder, and metrics to a file, until it is gone."""
    while True:
        try:
            request = os.read(device, 1 << 18)
        except OSError:
            return
        _, code, unique, node = struct.unpack_from("=IIQQ", request)
        name, error, reply = request[40:].rstrip(b"\0"), 0, b""
        node = {1: 3 if name == b"metrics" else 2}.get(code, node)  # LOOKUP
        mode = stat.S_IFREG | 0o444 if node == 3 else stat.S_IFDIR | 0o555
        attributes = struct.pack("=6Q10I", node, len(metrics), 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
        if code == 26:  # INIT
            reply = struct.pack("=4I2HI", 7, 23, 0, 0, 0, 0, 4096) + bytes(40)
        elif code == 1:
            reply = struct.pack("=4Q2I", node, 0, 0, 0, 0, 0) + attributes
        elif code == 3:  # GETATTR
            reply = struct.pack("=Q2I", 0, 0, 0) + attributes
        elif code in (14, 27):  # OPEN, OPENDIR
            reply = struct.pack("=Q2I", 0, 1, 0)
        elif code == 15:  # READ
            _, offset, size = struct.unpack_from("=QQI", request, 40)
            reply = metrics[offset:offset + size]
        elif code not in (18, 29):  # RELEASE, RELEASEDIR
            error = -errno.ENOSYS
        os.write(device, struct.pack("=IiQ", 16 + len(reply), error, unique) + reply)


def mounted_as(mnt, more=""):
    """Mounts as another program does, under our name; the descriptor of /dev/fuse."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,group_id=0,{more}".encode()
    equal(ctypes.CDLL(None).mount(b"other", mnt.encode(), b"fuse.reshardfs", 0, options), 0, "mount")
    return device


@alone
def test_control_mounts_of_others_are_not_asked():
    """A server that never answers holds nobody up who asks for all mounts, not even if it is above one of ours."""
    need(os.geteuid() == 0, "only root can mount without fusermount3")
    tree, places = Tree(folder("tree"), usual(8), 4, 2), [folder("other"), folder("covered")]
    with Mount(tree.src, tree.options(), mnt=places[1]) as covered, Mount(tree.src, tree.options(), mnt=folder("ours")) as m:
        devices = [mounted_as(mnt, "user_id=65534,allow_other") for mnt in places]
        try:
            got = run(reshard, "mounts", "--metrics-file", "-", timeout=PATIENCE)
            equal([mount.mnt in got.stdout for mount in (m, covered)], [True, False], "metrics of ours")
            rows = json.loads(run(reshard, "mounts", "--json", timeout=PATIENCE).stdout)
            equal({row["mount"]: row["pid"] is not None for row in rows if row["mount"] in (*places, m.mnt)},
                  {m.mnt: True, places[0]: False, places[1]: False}, "mounts that are listed, and tell more")
        finally:
            for mnt, device in zip(places, devices):
                unmount(mnt)
                os.close(device)


@alone
def test_control_metrics_of_others():
    """What another program may mount under our name spoils the file for no other mount."""
    need(os.geteuid() == 0, "only root can mount without fusermount3")
    tree, mnt = Tree(folder("tree"), usual(8), 4, 2), folder("other")
    good = b"# HELP reshardfs_reads_total x\n# TYPE reshardfs_reads_total counter\nreshardfs_reads_total{mountpoint=\"other\"} 1\n"
    spoilt = (b"", b"#", good[:-1], good + b"up 1\n", good + b"\n", good + b"\0", good + b"# other\n", good * 1000)
    for metrics in (good, *spoilt):
        device = mounted_as(mnt, "user_id=0")
        server = threading.Thread(target=serve, args=(device, metrics))
        server.start()
        with Mount(tree.src, tree.options(), mnt=folder("ours")) as m:
            got = run(reshard, "mounts", "--metrics-file", "-")
            check(f'reshardfs_reads_total{{mountpoint="{m.mnt}"}} 0\n' in got.stdout, f"ours, beside {metrics[-30:]}")
            equal('mountpoint="other"' in got.stdout, metrics == good, f"the other one's, which ends with {metrics[-30:]}")
        unmount(mnt)
        server.join()
        os.close(device)


def test_control_log():
    tree = Tree(folder("tree"), usual(), 4, 2)
    with Mount(tree.src, tree.options()) as m:
        m.read(0)
        before = text(m, "log")
        os.truncate(tree.path(1), 10)
        try:
            m.read(1)
            raise AssertionError("a truncated source was read")
        except OSError:
            pass
        new = text(m, "log")
        check(new.startswith(before), "lines stay")
        line = new[len(before):].splitlines()[0]
        check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (error|warning): .*rank_1/net-1_1\.ckpt.*", line), line)
        equal(os.stat(inside(m, "log")).st_size, len(new), "size")


def test_control_attributes():
    tree = Tree(folder("tree"), usual(), 4, 2)
    with Mount(tree.src, tree.options()) as m:
        got = lambda path, name: os.getxattr(path, "user.reshardfs." + name).decode()
        names = lambda path: sorted(n.removeprefix("user.reshardfs.") for n in os.listxattr(path))
        equal(names(m.mnt), ["format", "options", "parameters", "ranks", "source", "source_ranks", "version"], "root")
        equal(got(m.mnt, "version"), json.loads(text(m, "config.json"))["version"], "version")
        equal(got(m.mnt, "source"), os.path.realpath(tree.src), "source")
        equal((got(m.mnt, "source_ranks"), got(m.mnt, "ranks")), ("0-3", "2"), "ranks")
        equal(names(m.file(0)), ["format", "parameters", "source_ranks"], "a file")
        equal(got(m.file(0), "format"), "ckpt", "format")
        equal(got(m.file(0), "source_ranks"), "0-3", "source_ranks")
        equal(got(m.file(0), "parameters"), str(len(tree.params)), "parameters")
        path = inside(m, "tensors", "rank_1", "rows.npy")
        equal(names(path), ["dtype", "format", "parameter", "source_ranks"], "a tensor")
        equal(got(path, "source_ranks"), "2-3", "source_ranks of the lower half")
        equal(os.listxattr(inside(m, "stats.json")), [], "stats.json")
        equal(os.listxattr(os.path.join(m.mnt, "rank_0")), [], "a folder")
        for path, name in ((m.mnt, "user.other"), (m.file(0), "user.reshardfs.version"), (m.file(0), "security.selinux")):
            try:
                os.getxattr(path, name)
                raise AssertionError(f"{path} has {name}")
            except OSError as error:
                equal(error.errno, errno.ENODATA, name)
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        small = ctypes.create_string_buffer(2)
        for call in (lambda: libc.getxattr(m.file(0).encode(), b"user.reshardfs.format", small, 2),
                     lambda: libc.listxattr(m.file(0).encode(), small, 2)):
            equal((call(), ctypes.get_errno()), (-1, errno.ERANGE), "too small a buffer")
        equal(libc.getxattr(m.file(0).encode(), b"user.reshardfs.format", None, 0), 4, "a length")
        try:
            os.setxattr(m.file(0), "user.reshardfs.format", b"x")
            raise AssertionError("set")
        except OSError as error:
            equal(error.errno, errno.EROFS, "setxattr")


def test_control_odd_names():
    odd = {"a/b.c": "a%2Fb.c", ".dot": "%2Edot", "100%": "100%25", "tab\there": "tab%09here",
           "权重": "权重", "x.npy": "x.npy", "..": "%2E."}
    long = ["layer." * 60 + end for end in "ab"]
    tree = Tree(folder("tree"), [Param(name, (4, 2), 0, 1) for name in [*odd, *long]], 2, 2)
    with Mount(tree.src, tree.options()) as m:
        for where, axis in (("full", WHOLE), ("rank_1", 1)):
            listed = sorted(n for n in os.listdir(inside(m, "tensors", where)) if n.endswith(".npy"))
            equal(len(listed), len(odd) + 2, "names")
            found = {}
            for name in listed:
                path = inside(m, "tensors", where, name)
                found[os.getxattr(path, "user.reshardfs.parameter").decode()] = (name, path)
                check(len(name.encode()) <= 255, name)
            for p in tree.params:
                name, path = found[p.name]
                equal(of_npy(read_all(path))[2], cut(p, axis, 2, 1, tree.full[p.name])[1], p.name)
                equal(json.loads(read_all(path[:-4] + ".json"))["name"], p.name, "the name in its JSON file")
                if p.name in odd:
                    equal(name, odd[p.name] + ".npy", "file name")
                else:
                    check(re.fullmatch(r"(layer\.){36}%~[0-9a-f]{32}\.npy", name), name)
        for wrong in ("a%2fb.c.npy", "%61.npy", "nothing.npy", "100%.npy", "权重"):
            check(not os.path.lexists(inside(m, "tensors", "full", wrong)), wrong)


def test_control_mapped_pages_are_dropped():
    """A source that changes: no page of before is shown to who opens it anew."""
    tree = Tree(folder("tree"), [Param("w", (256, 64), 0, 0)], 2, 1)
    with Mount(tree.src, tree.options()) as m:
        path = inside(m, "tensors", "full", "w.npy")
        with open(path, "rb") as file:
            with mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
                same_bytes(mapped[-100:], tree.full["w"][-100:], "mapped")
        os.truncate(tree.path(1), 10)
        for _ in range(2):
            try:
                read_all(path)
                fresh = read_all(os.path.join(m.mnt, "rank_0", "checkpoint_0.ckpt"))
                raise AssertionError(f"read {len(fresh)} bytes")
            except OSError as error:
                equal(error.errno, errno.ESTALE, "a changed source")


def test_control_with_a_key():
    """For the owner alone, past the page cache, and without the key."""
    tree = Tree(folder("tree"), usual(), 4, 2)
    seal_tree(tree, KEY, "AES-GCM")
    path = key_file(tree, KEY)
    with Mount(tree.src, tree.options(f"key_file={path}")) as m:
        right_tensors(m, tree)
        for name in ("stats.json", "config.json", "log", "tensors/full/rows.npy", "tensors/full/rows.json"):
            equal(os.stat(inside(m, name)).st_mode & 0o777, 0o400, name)
            data = read_all(inside(m, name))
            for secret in (KEY, KEY.hex().encode(), read_all(path).strip()):
                check(secret not in data, f"the key is in {name}")
        equal(json.loads(text(m, "config.json"))["view"]["key_file"], path, "where the key is from")
        check(read_all(path).strip() not in os.getxattr(m.mnt, "user.reshardfs.options"), "the key in an attribute")
        with open(inside(m, "tensors", "full", "rows.npy"), "rb") as file:
            try:
                mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
                raise AssertionError("decrypted pages are shared")
            except OSError as error:
                equal(error.errno, errno.ENODEV, "a shared mapping")


def test_control_of_saves_and_whole_files():
    from test_trees import two_saves

    want, tree = two_saves()
    with Mount(tree.src, tree.options("step=all,cache=64M"), mnt=folder("saves")) as m:
        equal(sorted(os.listdir(inside(m, "tensors"))), ["10_5", "9_5"], "saves")
        equal(sorted(os.listdir(inside(m, "tensors", "9_5"))), ["full", "rank_0", "rank_1"], "of one")
        a, b = (tensor(m, os.path.join(save, "rank_1"), "rows") for save in ("9_5", "10_5"))
        check(a != b and a[-20:] in want["9_5"][1] and b[-20:] in want["10_5"][1], "each has its own")
        above = os.stat(os.path.join(inside(m, "tensors", "9_5"), "..")).st_ino
        equal(above, os.stat(inside(m, "tensors")).st_ino, "..")
        check(not os.path.exists(os.path.join(m.mnt, "9_5", HIDDEN)), "one hidden folder")
    tree = Tree(folder("flat"), usual(), 4, 2)
    for view in ("huggingface", "unified"):
        options = tree.options().split(",")[0] + f",view={view}"
        with Mount(tree.src, options, mnt=folder("mnt-" + view)) as m:
            equal(os.listdir(inside(m, "tensors")), ["full"], view)
            for p in tree.params:
                equal(of_npy(tensor(m, "full", p.name))[2], tree.full[p.name], f"{view} {p.name}")
