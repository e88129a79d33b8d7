# SPDX-License-Identifier: Apache-2.0
"""The package as it is installed: `reshard example` and `reshard export` make what it is compared with."""
import filecmp
import gc
import glob
import io
import json
import logging
import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
import time
import weakref

import fsspec
import numpy
import torch

import reshard
from cases import Skip, path, place, raises, run, seeded, strategies, tool, view

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.append(os.path.join(TOP, "tests", "mount"))
sys.path.append(os.path.join(TOP, "tests", "support"))
import safetensors_file  # pylint: disable=wrong-import-position
import seal  # pylint: disable=wrong-import-position


def writable(name):
    """An example's file, which only root could write."""
    os.chmod(name, 0o600)
    return open(name, "r+b")


def exported(rank):
    with open(path("exported", f"rank_{rank}", f"checkpoint_{rank}.ckpt"), "rb") as file:
        return file.read()


def test_versions_agree():
    assert reshard.__version__ == reshard.library_version(), (reshard.__version__, reshard.library_version())
    assert "ckpt" in reshard.features()


def test_reads_what_export_writes():
    with view() as v:
        assert v.listdir() == ["rank_0", "rank_1", "rank_2", "rank_3"]
        assert sorted(v.walk()) == [f"rank_{r}/checkpoint_{r}.ckpt" for r in range(4)]
        for rank, name in enumerate(sorted(v.walk())):
            with reshard.open(v, name) as file:
                assert file.read() == exported(rank), name
            assert v.stat(name).st_size == len(exported(rank))
        got = v.summary()
        assert (got.source_ranks, got.target_ranks, got.parameters) == (8, 4, 12), got
        assert v.statistics()["bytes_replied"] == sum(len(exported(r)) for r in range(4))


def test_positions():
    want = exported(2)
    rng = seeded()
    with view() as v, v.open("rank_2/checkpoint_2.ckpt") as file:
        model = io.BytesIO(want)
        for _ in range(500):
            offset, size = rng.randrange(len(want) + 10), rng.choice([0, 1, 7, 4096, 100000])
            how = rng.randrange(4)
            if how == 0:
                assert file.seek(offset) == model.seek(offset)
            elif how == 1:
                assert file.seek(-min(offset, len(want)), os.SEEK_END) == model.seek(-min(offset, len(want)), os.SEEK_END)
            elif how == 2:
                assert file.raw.pread(size, offset) == want[offset:offset + size]
            else:
                assert file.read(size) == model.read(size)
            assert file.tell() == model.tell()
        raises(ValueError, file.raw.seek, -1)
        raises(ValueError, file.raw.pread, -1, 0)
        raises(io.UnsupportedOperation, file.write, b"x")
        buffer = numpy.zeros(100, numpy.uint8)
        file.seek(10)
        assert file.readinto(buffer) == 100 and buffer.tobytes() == want[10:110]
        assert file.seekable() and file.readable() and not file.writable()


def test_threads():
    with view() as v, v.open("rank_1/checkpoint_1.ckpt") as file:
        want, wrong = exported(1), []

        def read(start):
            for offset in range(start, len(want), 5000):
                if file.raw.pread(3000, offset) != want[offset:offset + 3000]:
                    wrong.append(offset)

        threads = [threading.Thread(target=read, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong


def test_closing():
    v = view()
    file = v.open("rank_0/checkpoint_0.ckpt")
    v.close()
    v.close()
    assert v.closed and file.raw.closed
    raises(ValueError, v.listdir)
    raises(ValueError, file.read, 1)
    v = view()
    file, name = v.open("rank_0/checkpoint_0.ckpt"), weakref.ref(v)
    del v
    gc.collect()
    assert file.read() == exported(0), "a file keeps its view"
    file.close()
    del file
    gc.collect()
    assert name() is None, "and no longer"


def test_closing_while_others_read():
    for _ in range(20):
        v = view()
        file = v.open("rank_0/checkpoint_0.ckpt")
        ended = []

        def read():
            try:
                while True:
                    file.raw.pread(50000, 0)
            except ValueError:
                ended.append(True)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        v.close()
        for thread in threads:
            thread.join(60)
        assert len(ended) == 3


def test_closing_while_another_opens():
    """The file is closed as well: it would read from memory that was freed."""
    v, files, begun, go = view(), [], threading.Event(), threading.Event()
    library = v._library

    class Slow:
        def __getattr__(self, called):
            return getattr(library, called)

        def reshard_reader_open(self, *given):
            begun.set()
            go.wait(60)
            return library.reshard_reader_open(*given)

    v._library = Slow()
    opening = threading.Thread(target=lambda: files.append(v.open("rank_0/checkpoint_0.ckpt")))
    closing = threading.Thread(target=v.close)
    opening.start()
    begun.wait(60)
    closing.start()
    time.sleep(0.1)
    go.set()
    opening.join(60)
    closing.join(60)
    assert v.closed and files[0].raw._gate.closed


def test_errors():
    error = raises(reshard.ReshardError, reshard.View, path("e", "src"))
    assert error.usage and "neither src_strategy nor dst_strategy is given" in str(error), error
    error = raises(reshard.ReshardError, view, cache="much")
    assert error.usage and "cache=much" in str(error), error
    error = raises(reshard.ReshardError, view, src_stratgy="x")
    assert error.usage and str(error).endswith("unknown option 'src_stratgy'; try: src_strategy=VALUE"), error
    error = raises(FileNotFoundError, reshard.View, path("gone"), **strategies())
    assert error.errno == 2 and "gone" in str(error) and not error.usage and isinstance(error, reshard.ReshardError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.usage) == (type(error), str(error), False), again
    raises(ValueError, view, prefix="a\0b")
    with view() as v:
        error = raises(FileNotFoundError, v.stat, "rank_9/x")
        assert (error.errno, error.filename) == (2, "rank_9/x") and isinstance(error, reshard.ReshardError), error
        assert raises(IsADirectoryError, v.open, "rank_0").errno == 21
        assert raises(NotADirectoryError, v.stat, "rank_0/checkpoint_0.ckpt/x").errno == 20
        assert not v.exists("rank_0/nothing") and v.exists("rank_0") and v.isdir("/") and not v.isdir("x")


def test_messages_name_keywords():
    error = raises(reshard.ReshardError, reshard.View, path("e", "src"))
    assert "; try: src_strategy=FILE, dst_strategy=FILE; " in str(error), error
    error = raises(reshard.ReshardError, view, format="pt", crc=True)
    assert str(error).endswith("; try: zip_crc=True"), error
    error = raises(reshard.ReshardError, view, file_size="1G")
    assert str(error).endswith("; try: view=huggingface or view=unified"), error
    error = raises(reshard.ReshardError, view, cache="16M", key_file=path("e", "-o strict; try: x", "key"))
    assert "e/-o strict; try: x/key" in str(error), error


OTHER = """
import pickle, sys
with pickle.load(sys.stdin.buffer) as view:
    sys.stdout.buffer.write(view.open("rank_2/checkpoint_2.ckpt").read())
"""


def test_a_pickled_view_is_opened_anew():
    with view(cache="16M") as v:
        kept = pickle.dumps(v)
        with pickle.loads(kept) as other:
            assert other.open("rank_1/checkpoint_1.ckpt").read() == v.open("rank_1/checkpoint_1.ckpt").read() == exported(1)
            assert other.options == v.options and other._gate is not v._gate
        got = subprocess.run([sys.executable, "-B", "-c", OTHER], input=kept, capture_output=True, check=True)
        assert got.stdout == exported(2)
        fs = fsspec.filesystem("reshard", source=path("e", "src"), **strategies())
        assert pickle.loads(pickle.dumps(fs)).cat("/rank_3/checkpoint_3.ckpt") == exported(3)
    raises(ValueError, pickle.dumps, v)


def test_a_pickled_view_has_no_key():
    sealed, key = path("sealed-1"), path("key-1")
    shutil.copytree(path("e", "src"), sealed)
    for name in glob.glob(os.path.join(sealed, "rank_*", "*.ckpt")):
        with writable(name) as file:
            content = seal.seal(file.read())
            file.seek(0)
            file.write(content)
    with open(key, "wb") as file:
        os.chmod(key, 0o600)
        file.write(seal.KEY)
    with reshard.View(sealed, key_file=key, **strategies()) as v:
        kept = pickle.dumps(v)
        assert seal.KEY not in kept and key.encode() in kept
        with pickle.loads(kept) as other:
            assert other.open("rank_0/checkpoint_0.ckpt").read() == exported(0)
    for opened in (lambda fd: reshard.View(sealed, key_fd=fd, **strategies()),
                   lambda fd: fsspec.filesystem("reshard", source=sealed, key_fd=fd, **strategies())):
        error = raises(TypeError, pickle.dumps, opened(os.open(key, os.O_RDONLY)))
        assert "key_fd" in str(error) and "try: key_file=FILE" in str(error), error


def damaged():
    """A view of which some files need a source that is cut off: rank 5 and what holds the same."""
    tool("example", path("broken"), "--force")
    for rank in (1, 3, 5, 7):
        with writable(path("broken", "src", f"rank_{rank}", f"checkpoint_{rank}.ckpt")) as file:
            file.truncate(100000)
    return reshard.View(path("broken", "src"), src_strategy=path("broken", "src_strategy.ckpt"),
                        dst_strategy=path("broken", "dst_strategy.ckpt"))


def test_a_damaged_source():
    read, refused = [], []
    with damaged() as v:
        for rank, name in enumerate(sorted(v.walk())):
            try:
                with v.open(name) as file:
                    assert file.read() == exported(rank), name
                read.append(rank)
            except reshard.ReshardError as error:
                assert "rank_" in str(error) and "try: " in str(error) and error.filename == name, error
                refused.append(rank)
    assert read and refused, (read, refused)


def test_a_changed_source():
    tool("example", path("changing"))
    with reshard.View(path("changing", "src"), src_strategy=path("changing", "src_strategy.ckpt"),
                      dst_strategy=path("changing", "dst_strategy.ckpt")) as v, \
            v.open("rank_0/checkpoint_0.ckpt") as file:
        os.utime(path("changing", "src", "rank_0", "checkpoint_0.ckpt"), (1, 1))
        assert raises(reshard.ReshardError, file.read).errno == 116  # ESTALE


def test_logging():
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
    logging.getLogger("reshard").addHandler(handler)
    try:
        with damaged() as v:
            v.stat("rank_0/checkpoint_0.ckpt")
    finally:
        logging.getLogger("reshard").removeHandler(handler)
    assert any(level == "WARNING" and "damaged" in line for level, line in lines), lines


def test_torch_reads_a_file():
    tensors = {"a": torch.arange(12.0).reshape(3, 4), "b": torch.arange(5)}
    torch.save(tensors, path("state.pt"))
    with reshard.View(path("state.pt"), format="pt", names=None) as v:
        (name,) = v.walk()
        with v.open(name) as file:
            got = torch.load(file)
    assert set(got) == set(tensors) and all(torch.equal(got[k], tensors[k]) for k in tensors), got


def test_numpy_reads_a_whole_checkpoint():
    with reshard.View(path("e", "src"), src_strategy=path("e", "src_strategy.ckpt"), format="safetensors") as v:
        (name,) = v.walk()
        data = v.open(name).read()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + size])
    shape = head["layer1.weight"]["shape"]
    begin, end = head["layer1.weight"]["data_offsets"]
    got = numpy.frombuffer(data[8 + size:][begin:end], numpy.float32).reshape(shape)
    assert got.shape == (768, 48), got.shape


def trained():
    """A small Qwen3 as MindSpore Transformers keeps it: the tensors, and how a view shows them as HuggingFace's."""
    rng = numpy.random.default_rng(1)
    layer = "decoder.layers.0."
    shapes = {"embedding.word_embeddings.weight": (12, 6), "decoder.final_layernorm.weight": (6,),
              f"{layer}input_layernorm.weight": (6,), f"{layer}pre_mlp_layernorm.weight": (6,),
              f"{layer}self_attention.linear_qkv.weight": (16, 6), f"{layer}self_attention.linear_proj.weight": (6, 8),
              f"{layer}self_attention.q_layernorm.weight": (2,), f"{layer}self_attention.k_layernorm.weight": (2,),
              f"{layer}mlp.linear_fc1.weight": (10, 6), f"{layer}mlp.linear_fc2.weight": (6, 5)}
    tensors = {name: rng.random(shape, numpy.float32) for name, shape in shapes.items()}
    if not os.path.exists(path("trained")):
        os.mkdir(path("trained"))
        safetensors_file.write(path("trained", "model.safetensors"),
                               [(name, "F32", data.shape, data.tobytes()) for name, data in tensors.items()])
        with open(path("config.json"), "w", encoding="ascii") as file:
            json.dump({"model_type": "qwen3", "num_hidden_layers": 1, "hidden_size": 6, "vocab_size": 12, "head_dim": 2,
                       "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 5,
                       "tie_word_embeddings": True}, file)
    return tensors, {"convert": "qwen3", "hf_config": path("config.json"), "view": "huggingface"}


def test_rules_come_with_the_library():
    tensors, options = trained()
    with reshard.View(path("trained"), **options) as v, reshard.open(v, "model.safetensors") as file:
        with open(path("shown.safetensors"), "wb") as copy:
            copy.write(file.read())
    with open(path("shown.safetensors"), "rb") as file:
        got = {name: numpy.frombuffer(bytes(data), numpy.float32).reshape(shape)
               for name, _, shape, data in safetensors_file.entries(file.name)}
    qkv, fc1 = (tensors[f"decoder.layers.0.{name}.weight"] for name in ("self_attention.linear_qkv", "mlp.linear_fc1"))
    for name, want in {"self_attn.q_proj": numpy.concatenate([qkv[0:4], qkv[8:12]]),
                       "self_attn.k_proj": numpy.concatenate([qkv[4:6], qkv[12:14]]),
                       "self_attn.v_proj": numpy.concatenate([qkv[6:8], qkv[14:16]]),
                       "mlp.gate_proj": fc1[0::2], "mlp.up_proj": fc1[1::2]}.items():
        assert numpy.array_equal(got[f"model.layers.0.{name}.weight"], want), name
    error = raises(reshard.ReshardError, reshard.View, path("trained"), **{**options, "convert": "qwen9"})
    assert "convert=deepseek_v3" in str(error) and "qwen3_moe" in str(error), error


def test_fsspec():
    fs = fsspec.filesystem("reshard", source=path("e", "src"), **strategies())
    assert fs.ls("/", detail=False) == ["/rank_0", "/rank_1", "/rank_2", "/rank_3"]
    assert fs.ls("/rank_3")[0]["size"] == len(exported(3)) and fs.ls("/")[0]["type"] == "directory"
    assert fs.info("rank_3/checkpoint_3.ckpt")["name"] == "/rank_3/checkpoint_3.ckpt"
    assert fs.find("/") == [f"/rank_{r}/checkpoint_{r}.ckpt" for r in range(4)]
    assert fs.glob("/rank_*/*.ckpt") == fs.find("/")
    assert fs.cat_file("/rank_3/checkpoint_3.ckpt", start=5, end=-5) == exported(3)[5:-5]
    assert fs.cat("/rank_1/checkpoint_1.ckpt") == exported(1)
    assert fs.exists("/rank_0") and not fs.exists("/rank_4") and fs.isdir("/rank_0") and fs.isfile(fs.find("/")[0])
    assert raises(OSError, fs.open, "/rank_0/new", "wb").errno == 30
    raises(FileNotFoundError, fs.info, "/nothing")
    fs.get("/", path("got"), recursive=True)
    for rank in range(4):
        name = f"rank_{rank}/checkpoint_{rank}.ckpt"
        assert filecmp.cmp(path("got", name), path("exported", name), shallow=False), name
    with fsspec.open("reshard://rank_2/checkpoint_2.ckpt", "rb", source=path("e", "src"), **strategies()) as file:
        assert file.read() == exported(2)


def test_chained_urls():
    name = f"rank_2/checkpoint_2.ckpt::file://{path('e', 'src')}"
    with fsspec.open(f"reshard://{name}", "rb", **strategies()) as file:
        assert file.read() == exported(2)
    with fsspec.open(f"reshard://{name}", "rb", reshard=strategies()) as file:
        assert file.read() == exported(2)
    fs, inside = fsspec.core.url_to_fs(f"reshard://{name}", **strategies())
    assert fs.cat_file(inside) == exported(2) and fs.view.source == path("e", "src"), (fs.view, inside)
    assert fs.cat_file(inside) == pickle.loads(pickle.dumps(fs)).cat_file(inside)
    with fsspec.open(f"simplecache::reshard://{name}", "rb", reshard=strategies()) as file:
        assert file.read() == exported(2)
    found = fsspec.open_files(f"reshard://rank_*/*.ckpt::{path('e', 'src')}", "rb", **strategies())
    assert [one.path for one in found] == [f"/rank_{r}/checkpoint_{r}.ckpt" for r in range(4)], found
    error = raises(ValueError, fsspec.open, "reshard://x::memory://src")
    assert "memory://" in str(error) and "try: " in str(error), error
    error = raises(ValueError, fsspec.filesystem, "reshard", fo="b/src", target_protocol="s3", target_options={"secret": "x"})
    assert "option secret" in str(error), error
    error = raises(ValueError, fsspec.filesystem, "reshard", fo="acme/net@main", target_protocol="hf", target_options={"token": "x"})
    assert "hf:// has the option token" in str(error), error
    raises(ValueError, fsspec.filesystem, "reshard")


def test_no_library():
    got = subprocess.run([sys.executable, "-B", "-c", "import reshard; reshard.View('x')"], text=True,
                         env={**os.environ, "RESHARD_LIBRARY": "/nowhere/libreshard.so.1"}, capture_output=True)
    assert "ImportError: libreshard cannot be loaded" in got.stderr and "try: " in got.stderr, got.stderr


def test_a_view_left_open_ends_with_the_interpreter():
    script = f"import reshard\nv = reshard.View({path('e', 'src')!r}, **{strategies()!r})\n" \
             "f = v.open('rank_0/checkpoint_0.ckpt')\nf.read(10)\nprint('read')"
    got = subprocess.run([sys.executable, "-B", "-c", script], text=True, capture_output=True, timeout=60)
    # A parameter that each rank has for itself is told of.
    told = got.stderr.splitlines()
    assert (got.returncode, got.stdout) == (0, "read\n") and len(told) == 1 and "rng_state [4]" in told[0], got


def test_a_package_takes_the_library_of_its_tree():
    os.makedirs(path("tree", "build", "quickstart", ".libs"))
    shutil.copytree(os.path.join(TOP, "python"), path("tree", "python"), ignore=shutil.ignore_patterns("build", "*.egg-info"))
    shutil.copy(os.environ["RESHARD_LIBRARY"], path("tree", "build", "quickstart", ".libs", "libreshard.so.1"))
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--no-build-isolation", "--target", path("taken"), path("tree", "python")], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "RESHARD_LIBRARY"}
    got = subprocess.run([sys.executable, "-B", "-c", "from reshard._library import library; print(library()._name)"],
                         env={**environment, "PYTHONPATH": path("taken")}, text=True, capture_output=True, check=False)
    assert got.stdout == path("taken", "reshard", "libreshard.so.1") + "\n", got


MINDSPORE = """
import sys
import mindspore, numpy, reshard
from mindspore.train.checkpoint_pb2 import Checkpoint
source, src, dst, exported = sys.argv[1:]
for rank in range(4):
    name = f"rank_{rank}/checkpoint_{rank}.ckpt"
    want = mindspore.load_checkpoint(f"{exported}/{name}")
    with reshard.View(source, src_strategy=src, dst_strategy=dst) as view, reshard.open(view, name) as file:
        message = Checkpoint()
        message.ParseFromString(file.read())
    assert [v.tag for v in message.value] == list(want), rank
    for value in message.value:
        array = want[value.tag].asnumpy()
        got = numpy.frombuffer(value.tensor.tensor_content, array.dtype)
        assert numpy.array_equal(got.reshape(array.shape), array), value.tag
print("equal")
"""


def test_the_real_mindspore_in_the_same_process():
    if os.environ.get("RFS_NO_MINDSPORE"):
        raise Skip(os.environ["RFS_NO_MINDSPORE"])
    got = subprocess.run([os.environ["RFS_INTEROP_PYTHON"], "-c", MINDSPORE, path("e", "src"),
                          *strategies().values(), path("exported")], text=True, capture_output=True, check=False)
    assert got.stdout == "equal\n", got


def set_up():
    tool("example", path("e"))
    tool("export", path("e", "src"), path("exported"), "-s", strategies()["src_strategy"], "-d",
         strategies()["dst_strategy"])


if __name__ == "__main__":
    sys.exit(run(globals(), set_up))
