# SPDX-License-Identifier: Apache-2.0
"""What views of a quantized folder show, against the true tensors of its format's own program.

Each way(case) looks at the folder in one way, and gives None or what differs. Where a view cuts, renames or encodes, a
second folder has the true tensors, plain, and both must give the same: other suites judge what is made of plain folders.
"""
import json
import os

import compared
import formats
import numpy as np
import reshard
import safetensors_file
import torch
from layouts import Item, Layout, Strategy
from tensor_bytes import byte_view
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

KINDS = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64,
         "I32": torch.int32, "U32": torch.uint32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "F8_E4M3": torch.float8_e4m3fn,
         "F8_E8M0": torch.float8_e8m0fnu}
WORDS = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def tensor(kind, shape, data):
    return torch.frombuffer(bytearray(data) or bytearray(8), dtype=torch.uint8)[:len(data)].view(KINDS[kind]).reshape(shape)


def read(folder):
    """name -> tensor of all safetensors files, by the format alone."""
    out = {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".safetensors"):
            for name, kind, shape, data in safetensors_file.entries(os.path.join(folder, file)):
                assert name not in out, f"{name} is in two files"
                out[name] = tensor(kind, shape, data)
    return out


def differ(got, want):
    """None, or how a tensor differs from another one, bit for bit; NaN equals NaN."""
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"is {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    size = got.element_size()
    a, b = (byte_view(t).reshape(-1, size) for t in (got, want))
    other = (a != b).any(1)
    if want.dtype.is_floating_point and other.any():
        nan = [t.to(torch.float32).reshape(-1).isnan() for t in (got, want)]
        other &= ~(nan[0] & nan[1])
    if not other.any():
        return None
    at = int(other.nonzero()[0])
    place = [int(i) for i in np.unravel_index(at, tuple(got.shape))] if got.shape else []
    return f"has {int(other.sum())} other numbers of {got.numel()}, the first at {place}: " \
           f"{got.reshape(-1)[at].item()!r} ({bytes(a[at].tolist()).hex()}) instead of " \
           f"{want.reshape(-1)[at].item()!r} ({bytes(b[at].tolist()).hex()})"


def all_differ(got, want):
    missing, more = sorted(set(want) - set(got)), sorted(set(got) - set(want))
    if missing or more:
        return f"lacks {missing[:4]}, has {more[:4]} instead"
    return next((f"{n} {said}" for n, t in want.items() if (said := differ(got[n], t))), None)


def export(source, target, options):
    return compared.reshard("export", source, target, *(["-o", compared.given(options)] if options else []))


def cast(tensors, dtype):
    return {n: t.to(dtype) if t.dtype.is_floating_point else t for n, t in tensors.items()}


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def beside_differs(case, folder, config):
    """What stands beside the weights: the config without quantization, the index of what is shown."""
    shown = read_json(folder, "config.json")
    if shown != json.loads(json.dumps(config, default=str)):
        return f"config.json is {json.dumps(shown)}"
    if not os.path.exists(os.path.join(folder, "tokenizer.json")):
        return "tokenizer.json is not shown"
    if os.path.exists(os.path.join(folder, "model.safetensors.index.json")):
        index = read_json(folder, "model.safetensors.index.json")
        total = sum(t.nbytes for t in read(folder).values())
        if index["metadata"]["total_size"] != total or set(index["weight_map"]) != set(case.truth(torch.bfloat16)):
            return f"the index is {index}"
    return None


def whole(case, options, want, config=None):
    target = case.new("whole")
    problem = export(case.source, target, {"view": "huggingface", **options})
    return problem or all_differ(read(target), want) or (config and beside_differs(case, target, config))


def plain(case):
    """view=huggingface: bfloat16, with the config of a plain model."""
    options = {"dequantize": True}
    if case.rng.random() < 0.3:
        options["file_size"] = case.rng.choice(["64K", "10K", "100K"])
    return whole(case, options, case.truth(torch.bfloat16), case.model.plain_config())


def dtype(case):
    """dtype=: the numbers of the format's program in this type; of gpt-oss in float64 those in float32, made wider."""
    word = case.rng.choice(["float32", "float32", "float16", "bfloat16", "float64"])
    program = "float32" if (case.model.kind, word) == ("gptoss", "float64") else word
    return whole(case, {"dequantize": True, "dtype": word}, cast(case.truth(WORDS[program]), WORDS[word]))


def dtype_of_some(case):
    """dtype= for names: the others have what they have without it."""
    word, name = case.rng.choice(["float32", "float16"]), case.rng.choice(case.model.quantized)
    want = {**case.truth(torch.bfloat16), name: case.truth(WORDS[word])[name]}
    return whole(case, {"dequantize": True, "dtype": f"{name}={word}"}, want)


def untouched(case):
    """Without the switch: codes, scales and the config as they are."""
    return whole(case, {}, case.model.tensors, case.model.config)


def trees_differ(ours, theirs):
    """The files of an export of the quantized folder, against those of the plain one."""
    names = [sorted(os.path.relpath(os.path.join(at, f), root) for at, _, files in os.walk(root) for f in files
                    if f != "reshard-manifest.json") for root in (ours, theirs)]
    if names[0] != names[1]:
        return f"has the files {names[0]} instead of {names[1]}"
    for name in names[0]:
        a, b = (os.path.join(root, name) for root in (ours, theirs))
        if problem := files_differ(a, b):
            return f"{name}: {problem}"
    return None


def files_differ(a, b):
    with open(a, "rb") as first, open(b, "rb") as second:
        if first.read() == second.read():
            return None
    if a.endswith(".safetensors"):
        got, want = ({n: tensor(k, s, d) for n, k, s, d in safetensors_file.entries(p)} for p in (a, b))
        return all_differ(got, want)
    if a.endswith(".pt"):
        return all_differ(*(torch.load(p, weights_only=True) for p in (a, b)))
    if a.endswith(".json"):
        return None if read_json(a) == read_json(b) else "says something else"
    return compared.reshard("diff", a, b) if a.endswith(".ckpt") else "other bytes"


def as_plain(case, options, dtype=None):
    """Views of both folders, with the same options."""
    if dtype:
        options = {**options, "dtype": dtype}
    ours, theirs = case.new("ours"), case.new("theirs")
    problem = export(case.source, ours, {"dequantize": True, **options}) or \
        export(case.plain_folder(WORDS[dtype] if dtype else None), theirs, options)
    return problem and f"{options}: {problem}" or (said := trees_differ(ours, theirs)) and f"{options}: {said}"


def cuts(case):
    """A number of ranks, and for some tensors an axis that it divides; blocks and groups are cut somewhere inside."""
    count, axes = case.rng.choice([2, 3, 4, 5, 6]), {}
    for name, value in case.truth(torch.bfloat16).items():
        fitting = [k for k, size in enumerate(value.shape) if size % count == 0 and size]
        if fitting and case.rng.random() < 0.9:
            axes[name] = case.rng.choice(fitting)
    return count, axes


def ranks(case):
    """Rank files of any format by rules, with slices that begin inside blocks."""
    count, axes = cuts(case)
    rules = ";".join([*(f"{name}: axis {axis} over all" for name, axis in axes.items()), "*: whole"])
    form = case.rng.choice(["ckpt", "safetensors", "pt"])
    return as_plain(case, {"dst_ranks": count, "dst_rules": rules, "format": form},
                    case.rng.choice([None, None, "float32", "float16"]))


def strategy(case):
    """The same by a strategy file, also as Checkpoint 2.0."""
    count, axes = cuts(case)
    path = case.new("strategy.json")
    Strategy([Item(n, Layout([count], [0 if axes.get(n) == k else -1 for k in range(t.ndim)]), t.shape)
              for n, t in case.truth(torch.bfloat16).items()], "json").write(path)
    return as_plain(case, {"dst_strategy": path, **case.rng.choice([{"format": "safetensors"}, {"view": "mindformers"}])})


def one_file(case):
    return as_plain(case, {"format": case.rng.choice(["safetensors", "pt"])}, case.rng.choice([None, "float32"]))


def unified(case):
    return as_plain(case, {"view": "unified"})


def dcp(case):
    """view=dcp: torch reads the true tensors."""
    target, one = case.new("dcp"), case.new("dcp.pt")
    problem = export(case.source, target, {"dequantize": True, "view": "dcp", "dst_ranks": case.rng.choice([1, 2, 3, 5])})
    if problem:
        return problem
    dcp_to_torch_save(target, one)
    return all_differ(torch.load(one, weights_only=True), case.truth(torch.bfloat16))


def names(case):
    """names=, only= and drop= are about the names that are shown."""
    shown = sorted(case.truth(torch.bfloat16))
    path = case.new("names.json")
    chosen = case.rng.sample(shown, min(3, len(shown)))
    with open(path, "w", encoding="utf-8") as out:
        json.dump({n: case.rng.choice([f"renamed.{k}", f"new.{k}.weight"]) for k, n in enumerate(chosen)}, out)
    options = {"view": "huggingface", "names": path}
    if case.rng.random() < 0.5:
        options = {"view": "huggingface", "only": ";".join(chosen)}
    elif case.rng.random() < 0.3:
        options = {"view": "huggingface", "only": "*", "drop": chosen[0]}
    return as_plain(case, options)


def boxes(case):
    """Boxes of tensors by the library."""
    word = case.rng.choice([None, None, "float32", "float16"])
    want = case.truth(WORDS[word]) if word else case.truth(torch.bfloat16)
    if word:
        want = cast(want, WORDS[word])
    with reshard.View(case.source, dequantize=True, **({"dtype": word} if word else {})) as view:
        tensors = view.tensors()
        if set(tensors) != set(want):
            return f"the library lists {sorted(tensors)}"
        for name in case.model.quantized:
            for _ in range(4):
                box = []
                for size in want[name].shape:
                    begin = case.rng.randrange(size)
                    box.append(slice(begin, case.rng.randint(begin + 1, size)))
                said = differ(tensors[name].select(tuple(box), "torch"), want[name][tuple(box)])
                if said:
                    return f"{name}{box} {said}"
    return None


def mounted(case):
    """Reads of any size at any place of a mount are those of the exported file."""
    if os.environ.get("RFS_NO_FUSE"):
        return None
    target, mount = case.new("exported"), case.new("mnt")
    options = {"dequantize": True, "view": "huggingface"}
    problem = export(case.source, target, options)
    if problem:
        return problem
    with compared.mounted(case.source, mount, options):
        name = case.rng.choice(case.model.quantized)
        shown = np.load(os.path.join(mount, ".reshardfs", "tensors", "full", name + ".npy"))
        if shown.tobytes() != read(target)[name].view(torch.uint8).numpy().tobytes():
            return f"{name}.npy has other bytes"
        for file in sorted(f for f in os.listdir(target) if f.endswith(".safetensors")):
            with open(os.path.join(target, file), "rb") as stored, open(os.path.join(mount, file), "rb", buffering=0) as shown:
                data = stored.read()
                for _ in range(20):
                    at = case.rng.randrange(len(data))
                    size = case.rng.choice([1, 3, 17, 511, 4096, 100003])
                    if os.pread(shown.fileno(), size, at) != data[at:at + size]:
                        return f"{file}: {size} bytes at {at} are others in the mount"
    return None


def get(case):
    """reshard get writes one weight."""
    name, out = case.rng.choice(case.model.quantized), case.new("one.safetensors")
    problem = compared.reshard("get", case.source, name, out, "-o", "dequantize")
    if problem:
        return problem
    (kept, kind, shape, data), = safetensors_file.entries(out)
    return differ(tensor(kind, shape, data), case.truth(torch.bfloat16)[name]) if kept == name else f"get writes {kept}"


def verify(case):
    """reshard verify and export --verify find an export as its source."""
    target = case.new("verified")
    return export(case.source, target, {"dequantize": True, "view": "huggingface"}) or \
        compared.reshard("verify", target, "--against", case.source, "-o", "dequantize,view=huggingface") or \
        compared.reshard("export", "--verify", target)


def diff(case):
    """reshard diff finds the same tensors in both folders."""
    return compared.reshard("diff", case.source, case.plain_folder(), "-o", "dequantize")


def explain(case):
    """reshard explain names the bytes of a weight: its codes, in the file that has them."""
    name = case.rng.choice(case.model.quantized)
    done = compared.run("explain", case.source, "-o", "dequantize,format=safetensors", "--param", name, "--rank", "0", "--json")
    if done.returncode:
        return f"explain exits with {done.returncode}: {done.stdout}"
    said = json.loads(done.stdout[done.stdout.index("{"):])  # behind warnings
    shape = list(case.truth(torch.bfloat16)[name].shape)
    if said["shape"] != shape:
        return f"explain says the shape {said['shape']} instead of {shape}"
    return None


def torch_reader(case):
    """What torch itself reads of blocks of 128, in slices."""
    from torch.distributed.checkpoint import QuantizedHuggingFaceStorageReader, load

    model = case.model
    if model.kind != "blocks" or model.format.block != (128, 128) or not model.indexed or \
            any(t.dtype in (torch.float8_e8m0fnu, torch.uint8) for t in model.tensors.values()):
        return None
    want = {n: t for n, t in case.truth(torch.bfloat16).items() if n in model.quantized}
    state = {n: torch.empty_like(t) for n, t in want.items()}
    load(state, storage_reader=QuantizedHuggingFaceStorageReader(case.source, target_dtype=torch.bfloat16), no_dist=True)
    said = all_differ(state, want)
    return said and f"torch and compressed-tensors differ: {said}"


def members(case):
    """The stored tensors of a weight: those without which it has no numbers, and those of activations."""
    stem = case.rng.choice(case.model.quantized)
    stem = stem + "_" if case.model.kind == "gptoss" else stem[:-len("weight")]
    names = [n for n in case.model.tensors if n.startswith(stem) and not n.endswith("bias")]
    return stem, [n for n in names if n[len(stem):] not in formats.DROPPED], names


def lost(case):
    """Some of the tensors of a weight are lost, and not all: nothing is shown, whichever they are."""
    stem, needed, names = members(case)
    gone = case.rng.sample(names, case.rng.choice([1, 1, case.rng.randint(1, len(names) - 1)]))
    rest = {n: t for n, t in case.model.tensors.items() if n not in gone}
    source, target = case.new("lost"), case.new("whole")
    case.model.write(source, rest)
    said = export(source, target, {"dequantize": True, "view": "huggingface"})
    if not set(gone) & set(needed):
        return said or all_differ(read(target), case.truth(torch.bfloat16))
    if not said or stem not in said or os.path.exists(target):
        return f"without {gone} it says {said}"
    return None


WAYS = [dtype, dtype_of_some, untouched, ranks, ranks, strategy, one_file, unified, dcp, names, boxes, boxes, mounted, get,
        verify, diff, explain]
