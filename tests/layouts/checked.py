# SPDX-License-Identifier: Apache-2.0
"""Types commands of reshard suggest, and compares what they make with the tensors that went in.

A truth is a dict: names to tensors of torch. Names that a program keeps below a dict of its own end in them.
"""
import json
import os
import shlex
import struct
import subprocess
import tempfile
import warnings

import torch

warnings.filterwarnings("ignore")
TYPES = {"Float32": torch.float32, "BFloat16": torch.bfloat16, "Float16": torch.float16, "Int64": torch.int64, "Int32": torch.int32,
         "UInt8": torch.uint8, "Bool": torch.bool, "Int8": torch.int8, "Int16": torch.int16, "Float64": torch.float64}
SAFE = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64, "U8": torch.uint8, "I32": torch.int32,
        "F8_E4M3": torch.float8_e4m3fn}


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b)


def from_bytes(data, dtype, shape):
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)


def safetensors(path):
    """Reads the format's own text: eight bytes, a header, the data."""
    with open(path, "rb") as file:
        data = file.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: from_bytes(data[8 + n + e["data_offsets"][0]:8 + n + e["data_offsets"][1]], SAFE[e["dtype"]], e["shape"])
            for name, e in header.items()}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if byte < 128:
            return value, at


def fields(data):
    """The fields of a message in protobuf."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        size, at = varint(data, at)
        if key & 7 == 2:
            yield key >> 3, data[at:at + size]
            at += size
        else:
            yield key >> 3, size


def ckpt(path):
    """MindSpore's: a message of values, of a tag and a tensor of dims, a type and content."""
    with open(path, "rb") as file:
        data = file.read()
    out = {}
    for number, value in fields(data):
        if number != 1:
            continue
        parts = dict(fields(value))
        dims, dtype, content = [], None, b""
        for k, v in fields(parts[2]):
            if k == 1:
                dims += [v] if isinstance(v, int) else packed(v)
            elif k == 2:
                dtype = v.decode()
            elif k == 3:
                content += v
        out[parts[1].decode()] = from_bytes(content, TYPES[dtype], [] if dims == [0] else dims)
    return out


def packed(data):
    out, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        out.append(value)
    return out


def flat(value, before=""):
    """The tensors of nested dicts and lists, by names with dots."""
    if isinstance(value, torch.Tensor):
        return {before: value}
    out = {}
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ():
        out.update(flat(one, f"{before}.{key}" if before else str(key)))
    return out


def dcp(folder):
    """Loads a checkpoint of torch.distributed.checkpoint whole."""
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    state = {}
    _load_state_dict(state, storage_reader=FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return flat(state)


def tensors(folder):
    """All tensors in files below a folder, of each file, and those of a folder of torch.distributed.checkpoint."""
    out = []
    for at, _, names in sorted(os.walk(folder)):
        if ".reshardfs" in at:
            continue
        if ".metadata" in names:
            out.append(dcp(at))
        for name in sorted(names):
            path = os.path.join(at, name)
            if name.endswith(".safetensors"):
                out.append(safetensors(path))
            elif name.endswith(".ckpt") and "strategy" not in name:
                out.append(ckpt(path))
            elif name.endswith(".pt"):
                out.append(flat(torch.load(path, weights_only=True)))
    return out


def merged(found):
    out = {}
    for one in found:
        out.update(one)
    return out


def elements(all_tensors):
    """The set of numbers of tensors, as bytes."""
    out = set()
    for tensor in all_tensors:
        data, size = raw(tensor), tensor.element_size()
        out.update((size, data[i:i + size]) for i in range(0, len(data), size))
    return out


def whole_differs(found, truth, exact):
    """What is missing in FOUND, by names that end in those of the truth; EXACT: and nothing else is there."""
    for name, tensor in truth.items():
        like = [t for n, t in found.items() if n == name or n.endswith("." + name)]
        if not any(same(t, tensor) for t in like):
            return f"{name} {list(tensor.shape)}: {'other bytes' if like else 'it is missing'}; there are {sorted(found)[:4]}"
    more = sorted(set(found) - set(truth))
    return f"there are more: {more[:4]}" if exact and more else None


def cut_differs(found, truth, source):
    """Whether files of ranks, by other names, have other numbers than the truth, or else than the files of their source."""
    given = [truth] if truth else [{n: t for n, t in one.items() if n != "rng_state"} for one in tensors(source)]
    found = [{n: t for n, t in one.items() if n != "rng_state"} for one in found]  # each rank has its own, in no strategy
    got, want = (elements(t for one in some for t in one.values()) for some in (found, given))
    return None if got == want and got else f"{len(want - got)} numbers are missing, {len(got - want)} are others"


def type_in(words, **how):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **how)
    return None if done.returncode == 0 else f"exit {done.returncode}: {done.stdout}{done.stderr}"


def option(words, name):
    options = words[words.index("-o") + 1].split(",") if "-o" in words else []
    return next((o.partition("=")[2] for o in options if o.partition("=")[0] == name), None)


RENAMED = [False]  # the source has the names of a training, and the truth those of HuggingFace


def compare(words, folder, truth, exact):
    found, source = tensors(folder), words[1 if words[0] == "reshardfs" else 2]
    if RENAMED[0] and option(words, "convert") is None:
        return cut_differs(found, truth, source)
    if option(words, "convert") is not None and option(words, "view") not in ("huggingface", "peft"):
        return cut_differs(found, truth, source)
    if option(words, "dst_rules") is not None or option(words, "nshards") is not None or "-d" in words:
        return cut_differs(found, truth, source)
    strict = exact and option(words, "view") in ("huggingface", "peft")
    return whole_differs(merged(found), truth, strict)


def exported(words, truth, exact):
    new = os.path.join(tempfile.mkdtemp(dir="."), "new")
    words = [new if w in ("NEW", "NEW.ckpt", "NEW.json") else w.replace("lora_alpha=N", "lora_alpha=8") for w in words]
    return type_in(words) or (compare(words, new, truth, exact) if words[1] == "export" else None)


def mounted(words, truth):
    if os.environ.get("RFS_NO_FUSE"):
        return type_in(["reshardfs", "--check", *(w for w in words[1:] if w != "MNT")])
    mount_point = tempfile.mkdtemp(dir=".")
    why = type_in([mount_point if w == "MNT" else w for w in words])
    if why:
        return why
    try:
        if option(words, "follow") is not None or option(words, "step") == "all":
            names = os.listdir(mount_point)
            return None if names or option(words, "follow") is not None else "it shows nothing"
        return compare(words, mount_point, truth, False)
    finally:
        subprocess.run(["umount", "-l", mount_point], check=False)


def one(command, truth, exact, depth):
    words = shlex.split(command)
    if "key_file=KEY" in command:
        with open("KEY", "wb") as file:
            file.write(b"0123456789abcdef")
    if words[:2] == ["reshard", "suggest"]:
        done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=False)
        if done.returncode or depth == 0:
            return f"exit {done.returncode}: {done.stderr}"
        return commands(json.loads(done.stdout)["commands"], truth, exact, depth - 1)
    if words[0] == "reshardfs":
        return mounted(words, truth)
    if words[:2] == ["reshard", "info"]:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        missing = [n for n in truth if n.rpartition(".")[2] not in done.stdout and not RENAMED[0]]
        return f"exit {done.returncode}: {done.stderr}" if done.returncode else f"{missing[:3]} are not listed" if missing else None
    return exported(words, truth, exact)


def commands(listed, truth, exact, depth=3):
    """Types all; where several are suggestions for parts, TRUTH has the tensors of each by its path's end."""
    parts = [c for c in listed if c["command"].startswith("reshard suggest ")]
    for command in listed:
        of = truth
        if len(parts) > 1:
            of = next(one for end, one in truth.items() if command["command"].split()[2].endswith(end))
        why = one(command["command"], of, exact, depth)
        if why:
            return f"{command['command']}: {why}"
    return None
