# SPDX-License-Identifier: Apache-2.0
"""The family "language": random rules, against language.py, which does with numpy what they say.

A random case is random.Random(f"{seed}/{number}") and nothing else, so that any one of them replays alone.
"""
import json
import math
import os
import random

import language
import numpy as np
import values
import views
from layouts import Item, Strategy
from model import cut

FIXED = {}
DTYPES = ["Float32", "BFloat16", "BFloat16", "Float16"]
MOST = 1500  # elements of a left tensor


class Maker:
    """Rules for random left tensors, each of right ones of its own."""

    def __init__(self, rng):
        self.rng, self.leaves, self.adds = rng, 0, False
        self.lines = ["sides trained huggingface", "models random", "let two = config.two"]
        self.indexes = {name: rng.randint(1, 4) for name in "abc"}
        self.lines += [f"index {name} = 0 .. config.count_{name}" for name in self.indexes]
        self.stacked = [name for name in self.indexes if rng.random() < 0.15]
        self.lines += [f"stacked {name}" for name in self.stacked]
        self.config = {"model_type": "random", "two": 2, **{f"count_{n}": count for n, count in self.indexes.items()}}
        self.shapes = {}  # of right tensors, with their holes

    def size(self, size):
        """A number as text, sometimes by another way; a pair is a product."""
        if isinstance(size, tuple):
            return f"{size[0]} * {size[1]}"
        if size % 2 == 0 and self.rng.random() < 0.2:
            return f"two * {size // 2}"
        return str(size)

    def leaf(self, shape, holes):
        name = f"right.{''.join(f'{{{h}}}.' for h in holes)}t{self.leaves}.weight"
        self.leaves += 1
        self.shapes[name] = (tuple(math.prod(s) if isinstance(s, tuple) else s for s in shape), tuple(holes))
        return f"{name} [{', '.join(map(self.size, shape))}]"

    def tree(self, shape, holes, depth):
        """An expression of this shape."""
        ways = [self.concat, self.groups, self.stack, self.transpose, self.join, self.split, self.plus]
        self.rng.shuffle(ways)
        for way in ways if depth else []:
            made = way(list(shape), holes, depth - 1)
            if made:
                return made
        return self.leaf(shape, holes)

    def axis(self, shape, fits):
        axes = [a for a, size in enumerate(shape) if fits(size)]
        return self.rng.choice(axes) if axes else None

    def said(self, axis, shape):
        """An axis as text; from the end, sometimes."""
        return str(axis - len(shape) if self.rng.random() < 0.2 else axis)

    def concat(self, shape, holes, depth):
        axis = self.axis(shape, lambda size: size > 1)
        if axis is None:
            return None
        first = self.rng.randint(1, shape[axis] - 1)
        parts = [self.tree([*shape[:axis], size, *shape[axis + 1:]], holes, depth) for size in (first, shape[axis] - first)]
        return f"concat({self.said(axis, shape)}, {', '.join(parts)})"

    def groups(self, shape, holes, depth):
        """The count is a factor of its own in the parts' sizes, as the language wants it."""
        del depth
        axis = self.axis(shape, lambda size: size > 1)
        if axis is None:
            return None
        count = self.rng.choice([n for n in range(1, shape[axis]) if shape[axis] % n == 0])
        each = shape[axis] // count
        first = self.rng.randint(1, each - 1)
        parts = [self.leaf([*shape[:axis], (count, size), *shape[axis + 1:]], holes) for size in (first, each - first)]
        return f"groups({count}, {self.said(axis, shape)}, {', '.join(parts)})"

    def stack(self, shape, holes, depth):
        found = [(n, a) for n, count in self.indexes.items() for a, size in enumerate(shape) if size == count and n not in holes]
        if not found or len(shape) == 1:
            return None
        name, axis = self.rng.choice(found)
        return f"stack({name}, {axis}, {self.tree(shape[:axis] + shape[axis + 1:], [*holes, name], depth)})"

    def transpose(self, shape, holes, depth):
        return f"transpose({self.tree([*shape[:-2], shape[-1], shape[-2]], holes, depth)})" if len(shape) > 1 else None

    def join(self, shape, holes, depth):
        axis = self.axis(shape, lambda size: size > 1)
        if axis is None or len(shape) > 3:
            return None
        first = self.rng.choice([n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0])
        inner = [*shape[:axis], first, shape[axis] // first, *shape[axis + 1:]]
        return f"join({axis}, {self.tree(inner, holes, depth)})"

    def split(self, shape, holes, depth):
        if len(shape) < 2:
            return None
        axis = self.rng.randrange(len(shape) - 1)
        inner = [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2:]]
        del depth  # what is joined of parts need not be cut where they end
        return f"split({axis}, {self.size(shape[axis])}, {self.leaf(inner, holes)})"

    def plus(self, shape, holes, depth):
        if self.adds:
            return None
        self.adds = True
        number = self.rng.choice(["1", "-1", "two - 3", str(self.rng.randint(-256, 256)), *(f"1 - {h}" for h in holes)])
        made = f"plus({number}, {self.tree(shape, holes, depth)})"
        self.adds = False
        return made

    def padded(self, shape, holes, depth):
        """An expression of this shape, with zeros behind what it is made of."""
        axis = self.axis(shape, lambda size: size > 1)
        if axis is None:
            return self.tree(shape, holes, depth)
        inner = [*shape[:axis], self.rng.randint(1, shape[axis]), *shape[axis + 1:]]
        return f"pad({self.said(axis, shape)}, {self.size(shape[axis])}, {self.tree(inner, holes, depth)})"

    def shape(self):
        rng = self.rng
        while True:
            shape = [rng.choice([1, 2, 3, 4, 6, 8, 12, 24, self.indexes["a"], self.indexes["b"]])
                     for _ in range(rng.choice([1, 2, 2, 2, 3, 3]))]
            if math.prod(shape) <= MOST:
                return shape

    def boxes(self, left, holes):
        """A left tensor for each entry of the first axis, and of two parts of the second one: rows of rows."""
        rng, index = self.rng, self.rng.choice([h for h in self.indexes if h not in holes])
        size, first = rng.randint(2, 6), rng.randint(1, 3)
        shape = [self.indexes[index], size * first, *([rng.randint(1, 3)] if rng.random() < .7 else [])]
        right, axis = self.leaf(shape, holes), rng.choice([1, 1 - len(shape)])
        ways = rng.choice([(f"rows({axis}, 0, {first}", f"rows({axis}, {first}, {first * (size - 1)}"),
                           (f"parts({first}, {axis}, 0, 1", f"parts({first}, {axis}, 1, {size - 1}")])
        for end, way in zip(("one", "two"), ways):
            self.lines.append(f"{left}.{{{index}}}.{end} = join(0, rows(0, {index}, 1, {way}, {right})))")

    def rule(self, number):
        rng, shape = self.rng, self.shape()
        holes = rng.sample(list(self.indexes), rng.choice([0, 0, 1, 1, 2]))
        left = f"left.{''.join(f'{{{h}}}.' for h in holes)}w{number}.weight"
        if rng.random() < .15:
            self.boxes(left, holes)
            return
        if shape[0] > 1 and rng.random() < 0.15:  # two left tensors of one right one
            right = self.leaf(shape, holes)
            n = rng.choice([n for n in range(1, shape[0] // 2 + 1) if shape[0] % n == 0])
            first = rng.randint(1, shape[0] // n - 1)
            if rng.random() < 0.5:
                self.lines.append(f"{left} = parts({n}, 0, 0, {first}, {right})")
                self.lines.append(f"{left}.rest = parts({n}, {'0' if rng.random() < .5 else -len(shape)}, {first}, "
                                  f"{shape[0] // n - first}, {right})")
                return
            first = rng.randint(1, shape[0] - 1)
            self.lines.append(f"{left} = rows(0, 0, {first}, {right})")
            self.lines.append(f"{left}.rest = rows(0, {first}, {shape[0] - first}, {right})")
            return
        way = self.padded if rng.random() < 0.2 and not set(holes) & set(self.stacked) else self.tree
        self.lines.append(f"{left} = {way(shape, holes, rng.choice([0, 1, 2, 2, 3]))}")

    def make(self):
        rng = self.rng
        for number in range(rng.randint(1, 4)):
            self.rule(number)
        self.kept, self.gone = rng.random() < 0.3, {side: rng.random() < 0.3 for side in ("left", "right")}
        self.lines += ["keep kept.*"] if self.kept else []
        self.lines += [f"drop {side} no.such.* gone.{side}.*" for side, gone in self.gone.items() if gone]
        self.repeated = rng.choice(list(self.shapes)) if rng.random() < 0.3 else None
        if self.repeated:
            self.lines.append(f"repeat right again.{self.repeated} = {self.repeated}")
        return "\n".join(self.lines) + "\n"

    def right(self):
        """name -> shape of all right tensors."""
        out = {}
        for name, (shape, holes) in self.shapes.items():
            each = [name]
            for hole in holes:
                each = [n.replace(f"{{{hole}}}", str(i)) for n in each for i in range(self.indexes[hole])]
            out.update(dict.fromkeys(each, shape))
        return out


class Given(Maker):
    """One rule for l.w, of right tensors with these shapes."""

    def __init__(self, expression, shapes):
        super().__init__(random.Random(0))
        self.lines.append(f"l.w = {expression}")
        self.shapes = {n: (shape, ()) for n, shape in shapes.items()}

    def rule(self, number):
        del number


class Case:
    def __init__(self, name, rng, maker=None):
        self.name, self.rng = name, rng
        maker = maker or Maker(rng)
        self.text, self.config = maker.make(), maker.config
        data, dtype = np.random.default_rng(rng.getrandbits(64)), rng.choice(DTYPES)
        self.right = {n: values.random_value(data, dtype, shape) for n, shape in maker.right().items()}
        self.copies = {f"again.{n}": v for n, v in self.right.items() if maker.repeated and language.matches(maker.repeated, n)}
        self.kept = {"kept.a.b": values.random_value(data, "Int32", (3, 2))} if maker.kept else {}
        self.gone = {side: {f"gone.{side}.w": values.random_value(data, dtype, (2,))} if gone else {}
                     for side, gone in maker.gone.items()}
        self.devices = [rng.choice([1, 1, 2, 4]) for _ in range(2)]
        self.says, self.refusal, self.status = "", "", 1

    def describe(self):
        return f"  {self.config}, of {self.devices[0]} rank(s) to {self.devices[1]}\n{self.text}"

    def write(self, folder):
        self.rules, self.given = os.path.join(folder, "random.rules"), os.path.join(folder, "hf", "config.json")
        with open(self.rules, "w", encoding="utf-8") as file:
            file.write(self.text)
        right = {n: v.data for n, v in self.right.items()}
        kind = next(iter(self.right.values()))
        self.reading = language.Rules(self.rules, self.config, {}, kind.dtype)
        made = self.reading.to_left(right)
        self.left = {n: kind.with_data(np.ascontiguousarray(a)) for n, a in made.items()}
        self.shapes = {n: v.shape for n, v in self.right.items()}
        places = self.reading.places(self.shapes)[0]
        ones = np.array(1).astype(kind.data.dtype)  # of a training, in place of the zeros
        trained = {n: kind.with_data(np.where(places[n] < 0, ones, v.data)) for n, v in self.left.items()}
        back = self.reading.to_right({n: v.data for n, v in trained.items()}, self.shapes)
        self.back = {n: kind.with_data(back[n].astype(kind.data.dtype)) for n in self.right}
        os.makedirs(os.path.join(folder, "hf"))
        with open(self.given, "w", encoding="utf-8") as file:
            json.dump(self.config, file)
        again = {f"again.{n}": self.back[n] for n in self.right if f"again.{n}" in self.copies}
        self.shown = {"right": {**self.back, **again, **self.kept}, "left": {**self.left, **self.kept}}
        views.write_tensors(os.path.join(folder, "hf", "model.safetensors"), {**self.right, **self.copies, **self.kept, **self.gone["right"]})
        saved = {**trained, **self.kept, **self.gone["left"]}
        layouts = {n: views.fitting_layout(self.rng, self.devices[0], v.shape) for n, v in saved.items()}
        source = os.path.join(folder, "trained")
        views.write_ranks(source, saved, layouts)
        return source, {"src_strategy": source + ".json", "convert": self.rules, "hf_config": self.given, "view": "huggingface"}

    def check_oracle(self, folder):
        """There and back again are the same values, but that sums are rounded."""
        del folder
        same = "plus(" in self.text or all(np.array_equal(self.back[n].data.view(np.uint8), v.data.view(np.uint8))
                                           for n, v in self.right.items())
        return None if same else "there and back again are other values"

    def check_views(self, folder, source, options):
        problem = views.check(self, source, os.path.join(folder, "as-hf"), options,
                              lambda shown: views.tensors_differ(views.read_safetensors(shown), self.shown["right"]))
        if problem:
            return f"to the right: {problem}"
        layouts = {n: views.fitting_layout(self.rng, self.devices[1], v.shape) for n, v in self.shown["left"].items()}
        Strategy([Item(n, layouts[n], v.shape) for n, v in self.shown["left"].items()], "json").write(folder + "/dst.json")
        problem = views.check(self, os.path.join(folder, "hf"), os.path.join(folder, "as-trained"),
                              {"convert": self.rules, "hf_config": self.given, "dst_strategy": folder + "/dst.json",
                               "format": "safetensors"}, lambda shown: self.ranks_differ(shown, layouts))
        return problem and f"to the left: {problem}"

    def ranks_differ(self, shown, layouts):
        for rank in range(self.devices[1]):
            wanted = {n: v.with_data(cut(v.data, layouts[n], rank)) for n, v in self.shown["left"].items()}
            problem = views.tensors_differ(views.read_safetensors(os.path.join(shown, f"rank_{rank}")), wanted)
            if problem:
                return f"rank {rank}: {problem}"
        return None


def make(seed, number):
    return Case(f"language-{seed}-{number}", random.Random(f"{seed}/{number}"))


def prepare():
    pass


def fixed(function):
    FIXED["language-" + function.__name__.replace("_", "-")] = function
    return function


@fixed
def parts_of_parts(name):
    """A concat in a concat, with groups in it whose size has nothing to do with the outer sizes."""
    maker = Given("concat(0, concat(0, r.a [1], r.e [1], groups(4, 0, r.b [4 * 4], r.c [4])), r.d [1], r.f [1])",
                  {"r.a": (1,), "r.e": (1,), "r.b": (16,), "r.c": (4,), "r.d": (1,), "r.f": (1,)})
    return Case(name, random.Random(name), maker)
