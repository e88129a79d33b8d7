# SPDX-License-Identifier: Apache-2.0
"""Trainings whose states the tests save: name -> (models, optimizers, others), made anew at each call."""
import argparse
from collections import Counter, OrderedDict, defaultdict, deque

import numpy
import torch
from torch import nn

STATES = {}


def state(function):
    STATES[function.__name__] = function
    return function


def make(name):
    torch.manual_seed(sum(map(ord, name)))
    return STATES[name]()


class Tied(nn.Module):
    """Embedding and head share their weight; a BatchNorm has buffers."""

    def __init__(self, words=37, width=9):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.norm = nn.BatchNorm1d(width)
        self.scale = nn.Parameter(torch.randn(3, 5).bfloat16())
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words):
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)).sum() + self.scale.float().sum()


def train(model, optimizer, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randint(0, 37, (11,))).backward()
        optimizer.step()


@state
def adam():
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    train(model, optimizer)
    scheduler.step()
    return [model], [optimizer], {"epoch": 3, "scheduler": scheduler.state_dict(), "best": 0.1}


@state
def sgd():
    """momentum_buffer is None; parameter groups of their own."""
    model = Tied()
    head = [model.scale, model.norm.weight]
    body = [p for p in model.parameters() if not any(p is q for q in head)]
    optimizer = torch.optim.SGD([{"params": body}, {"params": head, "lr": 0.5}], lr=0.1)
    train(model, optimizer)
    return [model], [optimizer], {}


@state
def momentum():
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    train(model, optimizer)
    return [model], [optimizer], {"step": 17}


@state
def two():
    """Two models and two optimizers, as of a GAN."""
    models = [Tied(), Tied(20, 7)]
    optimizers = [torch.optim.Adam(models[0].parameters()), torch.optim.SGD(models[1].parameters(), lr=1, momentum=0.1)]
    train(models[0], optimizers[0])
    models[1](torch.tensor([1, 2, 3])).backward()
    optimizers[1].step()
    return models, optimizers, {"names": ["generator", "critic"]}


@state
def bare():
    """No optimizer, nothing else; a parameter of one element and one of none."""
    model = Tied()
    model.one = nn.Parameter(torch.tensor(3.25))
    model.none = nn.Parameter(torch.zeros(0, 4))
    return [model], [], {}


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128]


class Dtypes(nn.Module):
    """Parameters of every dtype (those of integers need no gradient), and buffers too."""

    def __init__(self, dtypes):
        super().__init__()
        for dtype in dtypes:
            name = str(dtype).split(".")[1]
            values = torch.randint(-100, 100, (7, 13)).to(dtype)
            self.register_parameter("p_" + name, nn.Parameter(values, requires_grad=False))
            self.register_buffer("b_" + name, values.flip(0)[:3].clone())


@state
def dtypes():
    return [Dtypes(DTYPES)], [], {"state": {d: torch.zeros(2, dtype=d) for d in (torch.bool, torch.int64)}}


@state
def real():
    """Every dtype that safetensors can hold."""
    return [Dtypes(DTYPES[:-2])], [], {}


# Those that have no storage class of their own; of torch 2.
LATER = [getattr(torch, name) for name in ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")
         if hasattr(torch, name)]


def later():
    model = nn.Module()
    for dtype in LATER:
        values = torch.arange(91 * dtype.itemsize, dtype=torch.uint8).view(dtype).view(7, 13)
        name = str(dtype).split(".")[1]
        model.register_parameter("p_" + name, nn.Parameter(values, requires_grad=False))
        model.register_buffer("across_" + name, values.t())
    return [model], [], {"also": torch.arange(6, dtype=torch.uint8).view(torch.float8_e5m2)}


if LATER:
    state(later)


class Views(nn.Module):
    """Parameters that do not lie row by row, or lie in one storage together."""

    def __init__(self):
        super().__init__()
        flat = torch.randn(1000)
        self.first = nn.Parameter(flat[10:130].view(10, 12))
        self.second = nn.Parameter(flat[130:530].view(20, 20))
        self.across = nn.Parameter(flat[530:930].view(20, 20).t())
        self.every = nn.Parameter(torch.randn(100)[10:90:3])
        self.permuted = nn.Parameter(torch.randn(5, 6, 7, 8).permute(2, 0, 3, 1))
        self.expanded = nn.Parameter(torch.randn(4, 1, 5).expand(4, 3, 5))
        self.columns = nn.Parameter(torch.randn(64, 100)[:, 5:90:2].half())
        self.columns.data = torch.randn(64, 100).half()[:, 5:90:2]
        self.conv = nn.Conv2d(8, 6, 3).to(memory_format=torch.channels_last)
        self.alone = nn.Parameter(torch.randn(1, 6).expand(1, 6)[:, 2:3])


@state
def views():
    model = Views()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for p in model.parameters():
        p.grad = torch.ones_like(p) if p is not model.expanded else None
    optimizer.step()
    return [model], [optimizer], {}


@state
def nested():
    """Whatever else is saved: also what shares storages with the model, or contains itself."""
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    ring = ["a list that contains itself"]
    ring.append(ring)
    loop = {"me": None}
    loop["me"] = loop
    weights = torch.randn(6, 4)
    with_attribute = OrderedDict(ordered=1)
    with_attribute.note = "on it"
    others = {
        "ema": {k: v.detach() for k, v in model.state_dict().items()},
        "model_again": model.state_dict(),
        "tuple": (1, (2, ("three", [4.0, None, True]))), "long": [2**40, -2**63, 2**90, -1, 255, 256, 65536, -2**31],
        "floats": [0.0, -0.0, float("inf"), float("nan"), 1e-320], "text": ["", "naïve", "\U0001f600", "\ud800"],
        "bytes": [b"", b"\x00\xff", bytearray(b"abc")], "sets": [set(), {1, 2}, frozenset({"frozen"})], "complex": 1 + 2j,
        "slice": slice(1, None, 2), "types": [int, float, dict], "dtype": torch.float16, "device": torch.device("cpu"),
        "size": torch.Size([2, 3]), "namespace": argparse.Namespace(rate=0.1, depth=[1, 2]),
        "deque": deque([1, 2], 5), "counter": Counter(["seen", "twice", "twice"]), "default": defaultdict(list, {"list": [1]}),
        "numpy": [numpy.float64(0.5), numpy.int32(7), numpy.arange(6, dtype="f4").reshape(2, 3)],
        "views": [weights, weights[1:3], weights.t(), weights[0]], "transposed": torch.randn(3, 4).t(),
        "parameter": nn.Parameter(torch.randn(3)), "with_attribute": with_attribute, 5: "five", (1, "pair"): "of keys",
        # CPython's pickler adds items by the thousand, in three ways.
        "many": [[list(range(n)), {-i: i for i in range(n)}, OrderedDict((-i, i) for i in range(n)), deque(range(n))]
                 for n in (0, 1, 2, 999, 1000, 1001, 2000, 2001, 2500)],
    }
    return [model], [optimizer], dict(others, ring=ring, loop=loop)


@state
def plain():
    """Many parameters of one size, so that the order of equals matters."""
    model = nn.ModuleList(nn.Linear(4, 4) for _ in range(13))
    optimizer = torch.optim.Adam(model.parameters())
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    return [model], [optimizer], {"epoch": 1}


@state
def odd():
    """Sizes that no number of parts divides, for large_size= to cut."""
    model = nn.ParameterList([nn.Parameter(torch.randn(*s)) for s in
                              [(101,), (9,), (17, 31), (64, 3), (2, 3, 5, 7), (8191,), (1, 256)]])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for p in model:
        p.grad = torch.randn_like(p)
    model.append(nn.Parameter(torch.randn(333).half()))
    optimizer.step()
    return [model], [optimizer], {}
