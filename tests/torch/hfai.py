# SPDX-License-Identifier: Apache-2.0
"""What hfai's dist_ckpt does, written down anew from its format 2.0.0: save() as N ranks, and load()."""
import glob
import os
from collections import OrderedDict

import torch

LARGE = 268435456  # bytes; more than that is large


def item_bytes(tensor):
    return tensor.numel() * tensor.element_size()


def weight(value):
    if isinstance(value, torch.Tensor):
        return item_bytes(value)
    if isinstance(value, dict):
        return sum(weight(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(weight(v) for v in value)
    return 8 if isinstance(value, (int, float, bool)) else 0


def split_dict(values, rank, n, first=-1):
    """
    The rank's share: biggest first, each to the one that has least. Among equals later ones come first, or,
    if FIRST is 1, earlier ones, as those of a state that was divided by save() before.
    """
    sums = [0] * n
    out = OrderedDict()
    keys = list(values)
    for i in sorted(range(len(keys)), key=lambda i: (-weight(values[keys[i]]), first * i)):
        least = min(range(n), key=lambda r: (sums[r], r))
        sums[least] += weight(values[keys[i]])
        if least == rank:
            out[keys[i]] = values[keys[i]]
    return out


def piece(tensor, rank, n):
    """(size, flat piece); torch.chunk may make fewer pieces than n, the rest is empty then."""
    chunks = torch.chunk(tensor.view(-1), n)
    flat = chunks[rank].clone() if rank < len(chunks) else tensor.new_zeros(0)
    return tensor.size(), flat


def is_large(value, large):
    return isinstance(value, torch.Tensor) and item_bytes(value) > large


def model_share(model, rank, n, large):
    state = OrderedDict((k, v.detach()) for k, v in model.state_dict().items())
    buffers = OrderedDict((k, state.pop(k)) for k, _ in model.named_buffers())
    pieces = {k: piece(v, rank, n) for k, v in state.items() if is_large(v, large)}
    for name in pieces:
        state.pop(name)
    share = split_dict(state, rank, n)
    if rank == 0:
        share.update(buffers)
    return share, pieces


def optimizer_share(optimizer, rank, n, large):
    whole = optimizer.state_dict()
    pieces, rest = {}, OrderedDict()
    for k1, value in whole["state"].items():
        if isinstance(value, dict):
            value = dict(value)
            for k2 in [k for k in value if is_large(value[k], large)]:
                pieces[k1, k2] = piece(value.pop(k2), rank, n)
        rest[k1] = value
    return {k: split_dict(rest, rank, n) if k == "state" else v for k, v in whole.items()}, pieces


def part(models, optimizers, others, rank, n, large=LARGE):
    out = {"__nshards__": n, "__version__": "2.0.0",
           "model": [model_share(m, rank, n, large) for m in models],
           "optimizer": [optimizer_share(o, rank, n, large) for o in optimizers]}
    if rank == 0:
        out.update(others)
    return out


def save(folder, models, optimizers, others, n, large=LARGE):
    os.makedirs(folder)
    for rank in range(n):
        torch.save(part(models, optimizers, others, rank, n, large),
                   os.path.join(folder, "PART_%03d.pt" % rank))


def load_parts(folder):
    n = len(glob.glob(os.path.join(folder, "PART_*.pt")))
    return [torch_load(os.path.join(folder, "PART_%03d.pt" % i)) for i in range(n)]


def torch_load(path, **how):
    if "weights_only" in torch.load.__code__.co_varnames and torch.__version__ >= "2":
        how.setdefault("weights_only", False)
    return torch.load(path, **how)


def join(parts, get, key):
    return torch.cat([get(p)[key][1] for p in parts]).view(get(parts[-1])[key][0])


def load(folder):
    parts = load_parts(folder)
    out = parts[0]
    assert out.get("__version__", "1.0.0") == "2.0.0"
    assert all(p["__nshards__"] == len(parts) for p in parts)
    models, optimizers = [], []
    for i in range(len(out["model"])):
        model = {}
        for p in parts:
            model.update(p["model"][i][0])
        for name in out["model"][i][1]:
            assert name not in model
            model[name] = join(parts, lambda p: p["model"][i][1], name)
        models.append(model)
    for i in range(len(out["optimizer"])):
        optimizer = out["optimizer"][i][0]
        for p in parts:
            optimizer["state"].update(p["optimizer"][i][0]["state"])
        for k1, k2 in out["optimizer"][i][1]:
            optimizer["state"][k1][k2] = join(parts, lambda p: p["optimizer"][i][1], (k1, k2))
        optimizers.append(optimizer)
    out["model"] = models[0] if len(models) == 1 else models
    out["optimizer"] = optimizers[0] if len(optimizers) == 1 else optimizers
    return out


def raw(tensor):
    """A tensor's elements as bytes, row by row."""
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


def same(got, want, where="", order=True, met=None):
    """Raises AssertionError where they differ, in a value, a type, or the order of a dict."""
    met = set() if met is None else met  # what contains itself is looked at once
    if (id(got), id(want)) in met:
        return
    met.add((id(got), id(want)))

    def insist(ok, what):
        if not ok:
            raise AssertionError(f"{where or 'all'}: {what}: {got!r:.300}, want {want!r:.300}")

    insist(type(got) is type(want), "type")
    if isinstance(want, torch.Tensor):
        insist((got.dtype, got.shape, got.requires_grad, got.device.type)
               == (want.dtype, want.shape, want.requires_grad, "cpu"), "tensor")
        insist(raw(got) == raw(want), "content")
    elif isinstance(want, dict):
        insist(list(got) == list(want) if order else set(got) == set(want), "keys")
        for key in want:
            same(got[key], want[key], f"{where}/{key}", order, met)
    elif isinstance(want, (list, tuple)) or type(want).__name__ == "deque":
        insist(len(got) == len(want), "length")
        for i, pair in enumerate(zip(got, want)):
            same(*pair, f"{where}/{i}", order, met)
    elif hasattr(want, "__dict__") and not isinstance(want, type):
        same(vars(got), vars(want), where + ".", order, met)
    elif hasattr(want, "tobytes"):
        insist((got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes()), "array")
    else:
        insist(got == want or (got != got and want != want), "value")
