# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save as sources and as outputs, apart from hfai's parts."""
import json
import logging
import os
import signal
import zipfile
from collections import OrderedDict

import hfai
import safetensors.torch
import states
import torch
from archive import Archive, repickled
from harness import *
from torch import nn


def tensors():
    """A state dict of all that there is; two names for one tensor, views, and values that are not tensors."""
    torch.manual_seed(5)
    out = OrderedDict((str(d).split(".")[1], torch.randint(-99, 99, (6, 8)).to(d)) for d in states.DTYPES[:-2])
    weight = torch.randn(40, 10)
    out.update({"weight": weight, "tied": weight, "rows": weight[3:9], "columns": weight[:, 2:7], "across": weight.t(),
                "every": torch.randn(30, 30)[::3, ::2], "spread": torch.randn(1, 5, 1).expand(4, 5, 3),
                "scalar": torch.tensor(7), "none": torch.zeros(3, 0), "one": torch.randn(1, 1, 1),
                "parameter": nn.Parameter(torch.randn(3)), "conv": torch.randn(2, 3, 4, 5).contiguous(
                    memory_format=torch.channels_last), "a.dotted.name": torch.arange(5)})
    return out


def written(value, name="a.pt"):
    path = os.path.join(folder("src"), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save(value, path)
    return path


def library(values, metadata):
    return safetensors.torch.save({k: v.detach().contiguous().clone() for k, v in values.items()}, metadata)


def shown(mnt, ending, rank=0):
    return os.path.join(mnt, f"rank_{rank}", f"checkpoint_{rank}.{ending}")


def same_tensors(got, want):
    equal(sorted(got), sorted(want), "names")
    for name, value in want.items():
        hfai.same(got[name], value.detach(), name)


def look_at_formats(src, want, options=""):
    """All three formats say the same; the .ckpt is read by way of another mount."""
    with Mount(src, "format=safetensors" + options) as m:
        same_bytes(read_all(shown(m.mnt, "safetensors")), library(want, {"format": "ms"}), "safetensors")
    with Mount(src, "format=pt" + options) as m:
        path = shown(m.mnt, "pt")
        same_tensors(hfai.torch_load(path), want)
        same_bytes(Archive(path).read("data.pkl"), repickled(path), "the pickle")
        check(type(hfai.torch_load(path)) is dict, "no dict")
    full = {k: v for k, v in want.items() if v.numel()}
    with Mount(src, "format=ckpt" + options) as m:
        again = folder("again")
        with Mount(shown(m.mnt, "ckpt"), "format=safetensors", mnt=again) as other:
            same_bytes(read_all(shown(other.mnt, "safetensors")), library(full, {"format": "ms"}), "ckpt")


def test_a_state_dict():
    src = written(tensors())
    look_at_formats(src, tensors())
    look_at_formats(os.path.dirname(src), tensors())


def test_entries():
    """entry= says where the tensors are; a name with dots is found as it is, too."""
    whole = {"epoch": 3, "state": {"model": tensors(), "a.b": {"w": torch.ones(2)}}, "a": {"b": {"w": torch.zeros(2)}},
             "lr": [0.1], "plain": torch.ones(1)}
    src = written(whole)
    look_at_formats(src, tensors(), ",entry=state.model")
    look_at_formats(src, {"w": torch.ones(2)}, ",entry=state.a.b")
    look_at_formats(src, {"w": torch.zeros(2)}, ",entry=a.b")
    look_at_formats(src, {"plain": torch.ones(1)})
    for entry, what in [("state.none", "it has nothing at entry=state.none; try: the name of a dict in it: 'model', 'a.b'"), ("lr", "is not a dict of tensors"),
                        ("state", "the dict in it has no tensors"), ("epoch.x", "it has nothing at entry=epoch.x")]:
        got = run(reshardfs, "--check", src, "-o", f"format=pt,entry={entry}")
        check(got.returncode == 1 and what in got.stderr and got.stderr.count("\n") == 1, got.stderr)


def test_anything_beside_an_entry():
    """Objects of any class may be there; as a value of the dict that is shown one is refused, as it may be a tensor."""
    sparse = torch.eye(3).to_sparse()
    whole = {"args": {"signal": signal.SIGINT, "when": logging.PlaceHolder(None)}, "x": sparse,
             "model": {**tensors(), "deep": [signal.SIGINT]}}
    look_at_formats(written(whole), tensors(), ",entry=model")
    for model, what in [({"w": torch.ones(2), "bad": sparse}, "'bad': is made by torch._utils._rebuild_sparse_tensor, which is"),
                        ({"w": torch.ones(2), "bad": signal.SIGINT}, "'bad': is made by signal.")]:
        got = run(reshardfs, "--check", written({"model": model}), "-o", "format=pt,entry=model")
        check(got.returncode == 1 and what in got.stderr and got.stderr.count("\n") == 1, got.stderr)


def test_what_is_no_tensor_is_told():
    src = written({"w": torch.ones(2), "epoch": 3, "lr": 0.1, 7: torch.ones(1)})
    with Foreground(src, "format=pt") as m:
        same_tensors(hfai.torch_load(shown(m.mnt, "pt")), {"w": torch.ones(2)})
        check(": 3 values that are not tensors are left out" in m.log(), m.log())


def tree(values, axes, ranks):
    """rank_N/model.pt, each tensor cut along its axis, or whole in each rank."""
    root = folder("tree")
    for rank in range(ranks):
        part = {k: v if axes[k] is None else torch.chunk(v, ranks, axes[k])[rank] for k, v in values.items()}
        os.makedirs(os.path.join(root, f"rank_{rank}"), exist_ok=True)
        torch.save(part, os.path.join(root, f"rank_{rank}", "model.pt"))
    return root


def rules(axes):
    return ";".join(f"{k}: " + ("whole" if a is None else f"axis {a} over all") for k, a in axes.items())


def test_ranks_to_ranks():
    """Slices that lie across their storages: chunks along any axis are views, and so are transposed ones."""
    torch.manual_seed(2)
    base = {"rows": torch.randn(24, 7), "columns": torch.randn(5, 48), "both": torch.randn(24, 48).t(),
            "deep": torch.randn(12, 6, 8, 10).permute(3, 1, 0, 2), "half": torch.randn(12, 24).bfloat16().t(),
            "whole": torch.randn(9, 4).t(), "bits": torch.randint(0, 2, (48, 6)).bool()}
    src_axes = {"rows": 0, "columns": 1, "both": 0, "deep": 2, "half": 0, "whole": None, "bits": 0}
    dst_axes = {"rows": None, "columns": 1, "both": 1, "deep": 1, "half": 1, "whole": 0, "bits": 1}
    src = tree(base, src_axes, 4)
    side = [f"src_ranks=4,src_rules={rules(src_axes)}", f"dst_ranks=6,dst_rules={rules(dst_axes)}"]
    look_at_formats(src, base, "," + side[0])
    dst_axes["whole"] = None
    dst_axes["deep"] = 1
    both = ",".join([side[0], f"dst_ranks=6,dst_rules={rules(dst_axes)}"])
    for rank, form in [(r, f) for f in ("pt", "safetensors") for r in range(6)]:
        want = {k: v if dst_axes[k] is None else torch.chunk(v, 6, dst_axes[k])[rank] for k, v in base.items()}
        if rank == 0:
            mount = Mount(src, f"format={form},{both}", mnt=folder("mnt-" + form)).__enter__()
        path = shown(mount.mnt, form, rank)
        got = hfai.torch_load(path) if form == "pt" else safetensors.torch.load(read_all(path))
        same_tensors(got, want)
        if rank == 5:
            mount.stop()


def example():
    where = os.path.join(place_of_test(), "example")
    got = run(reshard, "example", where, "--src", "8", "--dst", "4")
    equal(got.returncode, 0, got.stderr)
    files = ",".join(f"{s}_strategy={where}/{s}_strategy.ckpt" for s in ("src", "dst"))
    return os.path.join(where, "src"), files


def place_of_test():
    import harness
    return harness.place


def test_a_mindspore_tree():
    """The same as its safetensors; with names, dtypes and checksums as asked for."""
    src, files = example()
    want = {}
    with Mount(src, files + ",format=safetensors") as m:
        for rank in range(4):
            want[rank] = safetensors.torch.load(read_all(shown(m.mnt, "safetensors", rank)))
    with Mount(src, files + ",format=pt,zip_crc") as m:
        for rank in range(4):
            path = shown(m.mnt, "pt", rank)
            same_tensors(hfai.torch_load(path), want[rank])
            equal(zipfile.ZipFile(path).testzip(), None, "testzip")
    names = os.path.join(place_of_test(), "names.json")
    with open(names, "w") as f:
        f.write('{"layer1.weight": "first.weight", "layer1.bias": null}')
    with Mount(src, files + f",format=pt,dtype=bfloat16,names={names}") as m:
        got = hfai.torch_load(shown(m.mnt, "pt", 3))
        equal((want[3]["layer1.weight"].dtype, "layer1.bias" in got), (torch.float32, False), "of the source")
        hfai.same(got["first.weight"], want[3]["layer1.weight"].bfloat16(), "first.weight")
    with Mount(src, files + ",format=pt") as m:
        path = shown(m.mnt, "pt", 0)
        said = Archive(path).checksums()
        check(all(s == 0 for n, (s, _) in said.items() if n.startswith("data/")), "checksums without reading")
        same_tensors(hfai.torch_load(path), want[0])


def test_which_files():
    """.pt files count where there are neither .ckpt nor .safetensors; several in one folder are a question."""
    src, files = example()
    for rank in range(8):
        torch.save({"wrong": torch.ones(1)}, os.path.join(src, f"rank_{rank}", "zzz.pt"))
    with Mount(src, files + ",format=pt") as m:
        check("wrong" not in hfai.torch_load(shown(m.mnt, "pt")), "a .pt beside .ckpt files")
    src = tree({"w": torch.ones(2)}, {"w": None}, 1)
    torch.save({"w": torch.zeros(2)}, os.path.join(src, "rank_0", "other.pt"))
    got = run(reshardfs, "--check", src, "-o", "format=pt")
    check(got.returncode == 1 and "the folder has several .pt files" in got.stderr, got.stderr)
    look_at_formats(src, {"w": torch.zeros(2)}, ",file=oth*")


def test_views_of_one_checkpoint():
    src = written({k: v for k, v in tensors().items()})
    with Mount(src, "view=huggingface") as m:
        same_tensors(safetensors.torch.load(read_all(os.path.join(m.mnt, "model.safetensors"))), tensors())


def test_a_mount_as_the_source_of_another():
    """A model of hfai's parts, as any other format."""
    saved = os.path.join(place_of_test(), "saved")
    hfai.save(saved, *states.make("views"), 3)
    want = hfai.load(saved)["model"]
    with Mount(saved, "nshards=1") as m:
        with Mount(os.path.join(m.mnt, "merged", "checkpoint.pt"), "format=safetensors,entry=model",
                   mnt=folder("other")) as other:
            same_bytes(read_all(shown(other.mnt, "safetensors")), library(want, {"format": "ms"}), "safetensors")


def test_what_torch_cannot_hold():
    """Strings, and types that it lacks; and in safetensors complex128: such a model is left out with a line."""
    saved = os.path.join(place_of_test(), "saved")
    hfai.save(saved, *states.make("dtypes"), 2)
    with Foreground(saved, "nshards=1") as m:
        equal(sorted(os.listdir(os.path.join(m.mnt, "merged"))), ["checkpoint.pt", "model.pt"], "merged")
        check("merged/model.safetensors is left out: " in m.log() and "Complex128" in m.log(), m.log())
    got = run(reshardfs, "--check", saved, "-o", "nshards=4")
    equal(got.returncode, 0, got.stderr)


def sparse():
    """A safetensors file with a tensor of 5 GiB, most of which takes no disk, and a small one behind it."""
    path = os.path.join(folder("sparse"), "rank_0", "net.safetensors")
    os.makedirs(os.path.dirname(path))
    big, small = (5 << 30) + 3, torch.tensor([1.5, -2, 3], dtype=torch.float32)
    described = {"large": {"dtype": "U8", "shape": [big], "data_offsets": [12, 12 + big]},
                 "small": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}
    head = json.dumps(dict(sorted(described.items(), reverse=True))).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head + small.numpy().tobytes() + b"begin")
        f.truncate(8 + len(head) + 12 + big)
        f.seek(-3, 2)
        f.write(b"end")
    return os.path.dirname(os.path.dirname(path)), big, small


def test_archives_over_4_gib():
    """Sizes and offsets that need the wide fields of a zip archive, as torch's own reader and ours take them."""
    src, big, small = sparse()
    with Mount(src, "format=pt") as m:
        path = shown(m.mnt, "pt")
        with zipfile.ZipFile(path) as z:
            equal({i.filename: i.file_size for i in z.infolist() if "/data/" in i.filename},
                  {"archive/data/0": big, "archive/data/1": 12}, "sizes")
        reader = torch._C.PyTorchFileReader(path)
        same_bytes(bytes(reader.get_record("data/1")), small.numpy().tobytes(), "what lies behind 5 GiB")
        if hasattr(torch.serialization, "set_crc32_options"):
            mapped = torch.load(path, mmap=True, weights_only=True)
            check(torch.equal(mapped["small"], small), "small")
            equal((bytes(mapped["large"][:5].numpy()), bytes(mapped["large"][-3:].numpy())), (b"begin", b"end"), "large")
            del mapped
        del reader
        with Mount(path, "format=safetensors", mnt=folder("again")) as other:
            with open(shown(other.mnt, "safetensors"), "rb") as f, open(os.path.join(src, "rank_0/net.safetensors"), "rb") as g:
                equal(os.fstat(f.fileno()).st_size - int.from_bytes(f.read(8), "little"),
                      os.fstat(g.fileno()).st_size - int.from_bytes(g.read(8), "little"), "size of the data")
                for at, whence, n in [(-big - 12, 2, 40), (-40, 2, 40), (-big // 2, 2, 1 << 20)]:
                    f.seek(at, whence)
                    g.seek(at, whence)
                    same_bytes(f.read(n), g.read(n), f"{n} bytes at {at}")
