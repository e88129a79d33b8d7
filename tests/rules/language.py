# SPDX-License-Identifier: Apache-2.0
"""The language of conversion rules, once more and slowly: numpy does what each word says.

The left tensors are computed from the right ones. Backwards the left tensors are made of the places of the right elements,
which tells where each came from, and of zeros, which tells what was added to it. PyTorch adds.
"""
import os
import re

import numpy as np
import torch

NAME = r"(?:[A-Za-z0-9_.*-]|\{[^}]*\})+"
TOKEN = re.compile(r"\s*(\d+|\?\?|[<>=!]=|[-+*/%()<>,]|[A-Za-z_][A-Za-z0-9_.]*)")


TORCH = {"BFloat16": (np.int16, torch.bfloat16), "Float16": (np.int16, torch.float16), "Float32": (np.int32, torch.float32)}


def added(dtype, array, number):
    """An array of that dtype, and a number, as PyTorch adds them."""
    stored, kind = TORCH[dtype]
    tensor = torch.from_numpy(np.ascontiguousarray(array).view(stored).copy()).view(kind)
    return (tensor + number).view(torch.int16 if stored == np.int16 else torch.int32).numpy().view(array.dtype)


def matches(pattern, name):
    """Whether the name is the pattern with numbers in its holes."""
    return re.fullmatch(re.sub(r"\\\{[^}]*\}", r"\\d+", re.escape(pattern)), name)


def statements(text):
    """One string for each: lines go on while a bracket is open, or after = or a comma."""
    out, kept = [], ""
    for line in text.splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        kept = f"{kept} {line}".strip() if line else kept
        if kept and line and kept.count("(") + kept.count("[") == kept.count(")") + kept.count("]") and kept[-1] not in "=,":
            out.append(kept)
            kept = ""
    return out


class Numbers:
    """What numbers and conditions mean: by Python, once ?? and the keys of the config are in its words."""

    def __init__(self, config, options):
        self.config, self.chosen, self.options, self.known = config, options, {}, {}

    def key(self, name):
        at = self.config
        for word in name.split(".")[1:]:
            at = at.get(word) if isinstance(at, dict) else None
        return at

    def value(self, text, more=None):
        while inner := re.search(r"\(([^()]*\?\?[^()]*)\)", text):
            text = f"{text[:inner.start()]}{self.value(inner[1], more)}{text[inner.end():]}"
        first, mark, rest = text.partition("??")
        if mark and any(self.key(key) is None for key in re.findall(r"config\.[\w.]+", first)):
            return self.value(rest, more)
        text = first
        words = {"true": 1, "false": 0, **self.known, **(more or {})}
        made = []
        for word in TOKEN.findall(text):
            if word.startswith("config."):
                assert self.key(word) is not None, f"the config has no {word}"
                made.append(str(int(self.key(word))))
            elif word in words:
                made.append(str(words[word]))
            else:
                made.append({"/": "//"}.get(word, word))
        return int(eval(" ".join(made), {}))  # noqa: S307 - of our own tests' text

    def holds(self, text):
        if " and " in text:
            return all(self.holds(part) for part in text.split(" and "))
        found = re.fullmatch(r"([\w.]+) is (\w+)", text.strip())
        if found:
            have = self.key(found[1]) if found[1].startswith("config.") else self.options[found[1]]
            return have == found[2]
        return bool(self.value(text))


class Rules:
    """A file of rules, read for one config, one choice of options and tensors of one dtype."""

    def __init__(self, path, config, options, dtype="BFloat16"):
        self.numbers, self.dtype = Numbers(config, options), dtype
        self.indexes, self.stacked, self.rules = {}, [], []
        self.read(path)

    def read(self, path):
        taken = []  # for each open if: whether a branch was taken, whether this one is
        with open(path, encoding="utf-8") as file:
            lines = statements(file.read())
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "if":
                now = all(t[1] for t in taken) and self.numbers.holds(rest)
                taken.append([now, now])
            elif word == "else":
                outer = all(t[1] for t in taken[:-1])
                now = outer and not taken[-1][0] and (not rest or self.numbers.holds(rest.removeprefix("if ")))
                taken[-1] = [taken[-1][0] or now, now]
            elif word == "end":
                taken.pop()
            elif all(t[1] for t in taken):
                self.statement(word, rest, line, os.path.dirname(path))

    def statement(self, word, rest, line, folder):
        numbers = self.numbers
        if word == "include":
            self.read(os.path.join(folder, rest))
        elif word == "models":
            assert numbers.config["model_type"] in rest.split(), f"not of {rest}"
        elif word == "require":
            assert numbers.holds(rest.removeprefix("not ")) != rest.startswith("not "), rest
        elif word in ("let", "index", "option"):
            name, _, what = (part.strip() for part in rest.partition("="))
            if word == "let":
                numbers.known[name] = numbers.value(what)
            elif word == "index":
                first, end = what.split("..")
                self.indexes[name] = range(numbers.value(first), numbers.value(end))
            else:
                numbers.options[name] = numbers.chosen.get(name, what.split("|")[0].strip())
        elif word == "stacked":
            self.stacked.append(rest)
        elif word not in ("sides", "keep", "drop", "repeat"):  # of which the cases know
            self.rules += self.unstacked(line)

    def unstacked(self, line):
        """The rule for the tensor of all values of the first stacked index of its left name; none, if there are none."""
        left, _, right = line.partition(" = ")
        for hole in re.findall(r"\.\{(\w+)\}", left):
            if hole in self.stacked:
                one = f"{left.replace(f'.{{{hole}}}', '', 1)} = stack({hole}, 0, {right})"
                return [one] if len(self.indexes[hole]) else []
        return [line]

    def holes(self, name):
        return [i for i in self.indexes if re.search(rf"\{{[^}}]*\b{i}\b[^}}]*\}}", name)]

    def filled(self, name, at):
        return re.sub(r"\{([^}]*)\}", lambda hole: str(self.numbers.value(hole[1], at)), name)

    def each(self, name):
        """The values of the holes of a name: dicts, one for each."""
        out = [{}]
        for index in self.holes(name):
            out = [{**at, index: value} for at in out for value in self.indexes[index]]
        return out

    def to_left(self, right, add=None, beyond=0):
        """name -> array, from right arrays by name. ADD adds a number to an array; BEYOND is what a pad puts."""
        self.add, self.beyond = add or (lambda array, number: added(self.dtype, array, number)), beyond
        out = {}
        for rule in self.rules:
            left, _, expression = rule.partition(" = ")
            name = re.search(rf"rows\(.*,\s*({NAME})", left)
            for at in self.each(left):
                made = Expression(self, right, at).of(expression)
                key = self.filled(name[1] if name else left.split("[")[0].strip(), at)
                assert key not in out, f"two rules make {key}"
                out[key] = made
        return out

    def places(self, shapes):
        """What the left tensors are made of: (name -> places among the elements of the right ones, -1 for none; the first of each)."""
        places, begin = {}, {}
        for name, shape in shapes.items():
            begin[name] = sum(a.size for a in places.values())
            places[name] = begin[name] + np.arange(int(np.prod(shape))).reshape(shape)
        return self.to_left(places, lambda array, number: array, -1), begin

    def to_right(self, left, shapes):
        """name -> array of the right ones, by their SHAPES: each element from the place where it went."""
        where, begin = self.places(shapes)
        more = self.to_left({n: np.zeros(shape, int) for n, shape in shapes.items()}, lambda array, number: array + number)
        out = {name: [None] * int(np.prod(shape)) for name, shape in shapes.items()}
        ends = sorted((b, n) for n, b in begin.items())
        for name, ids in where.items():
            for place, value, plus in zip(ids.reshape(-1), left[name].reshape(-1), more[name].reshape(-1)):
                if place >= 0:
                    owner = ends[np.searchsorted([b for b, _ in ends], place, side="right") - 1][1]
                    out[owner][place - begin[owner]] = (value, plus)
        return {name: self.less(cells).reshape(shapes[name]) for name, cells in out.items() if None not in cells}

    def less(self, cells):
        """The values of [(value, number)] without what was added."""
        values, plus = np.array([v for v, _ in cells]), np.array([n for _, n in cells])
        for number in set(plus.tolist()) - {0}:
            values[plus == number] = added(self.dtype, values[plus == number], -number)
        return values


class Expression:
    """A right-hand side, for the values AT of its holes."""

    def __init__(self, rules, right, at):
        self.rules, self.right, self.at = rules, right, at

    def number(self, text):
        return self.rules.numbers.value(text)

    def of(self, text):
        text = text.strip()
        word, bracket, rest = text.partition("(")
        if not bracket or not re.fullmatch(r"[a-z]+", word):
            return self.tensor(text)
        assert rest.endswith(")")
        return getattr(self, word)(*parts(rest[:-1]))

    def tensor(self, text):
        found = re.fullmatch(rf"({NAME})\s*(?:\[(.*)\])?", text)
        array = self.right[self.rules.filled(found[1], self.at)]
        if found[2]:
            want = [None if size.strip() == "_" else self.number(size) for size in found[2].split(",")]
            assert len(want) == array.ndim and all(w in (None, s) for w, s in zip(want, array.shape)), f"{text}: {array.shape}"
        return array

    def concat(self, axis, *parts):
        return np.concatenate([self.of(part) for part in parts], self.number(axis))

    def groups(self, count, axis, *parts):
        cut = [np.split(self.of(part), self.number(count), self.number(axis)) for part in parts]
        return np.concatenate([piece for pieces in zip(*cut) for piece in pieces], self.number(axis))

    def stack(self, index, axis, part):
        each = [Expression(self.rules, self.right, {**self.at, index: i}).of(part) for i in self.rules.indexes[index]]
        return np.stack(each, self.number(axis))

    def transpose(self, part):
        return np.swapaxes(self.of(part), -1, -2)

    def join(self, axis, part):
        array, axis = self.of(part), self.number(axis)
        return array.reshape(*array.shape[:axis], -1, *array.shape[axis + 2:])

    def split(self, axis, count, part):
        array, axis, count = self.of(part), self.number(axis), self.number(count)
        return array.reshape(*array.shape[:axis], count, -1, *array.shape[axis + 1:])

    def rows(self, axis, first, count, *more):
        step, part = (self.number(more[0]), more[1]) if len(more) == 2 else (1, more[0])
        first, count = self.rules.numbers.value(first, self.at), self.number(count)
        return np.take(self.of(part), range(first, first + count * step, step), self.number(axis))

    def parts(self, n, axis, first, count, part):
        n, axis, first, count = (self.number(number) for number in (n, axis, first, count))
        pieces = np.split(self.of(part), n, axis)
        return np.concatenate([np.take(piece, range(first, first + count), axis) for piece in pieces], axis)

    def cast(self, _left, _right, part):
        return self.of(part)

    def plus(self, number, part):
        return self.rules.add(self.of(part), self.rules.numbers.value(number, self.at))

    def pad(self, axis, size, part):
        array, axis = self.of(part), self.number(axis)
        widths = [(0, 0)] * array.ndim
        widths[axis] = (0, self.number(size) - array.shape[axis])
        return np.pad(array, widths, constant_values=self.rules.beyond)


def parts(text):
    """The arguments of a word, at its own level of brackets."""
    out, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            out.append(text[begin:at].strip())
            begin = at + 1
    return [*out, text[begin:].strip()]
