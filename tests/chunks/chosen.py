# SPDX-License-Identifier: Apache-2.0
"""Random names=, only= and drop=, and a naive model of what they show."""
import fnmatch
import json
import os
import re


class Chosen:
    def __init__(self, rng, names):
        self.map = dict(self.line(rng, names) for _ in range(rng.choice([0, 0, 1, 2, 3])))
        names = [self.renamed(n) or n for n in names] + ["none"] * rng.choice([0, 0, 0, 1])
        self.only = self.patterns(rng, names) if rng.random() < 0.5 else []
        self.drop = self.patterns(rng, names) if rng.random() < 0.4 else []

    @staticmethod
    def line(rng, names):
        """A key with up to two stars, which may also be like other names, or like none, and a value."""
        name = rng.choice(names) if rng.random() < 0.9 else "of.none"
        parts = re.split(r"([./ ])", name)
        for at in rng.sample(range(len(parts)), min(len(parts), rng.choice([0, 1, 1, 2]))):
            parts[at] = "*"
        key = "".join(parts)
        if rng.random() < 0.3:
            key = rng.choice(["model.*", "*.weight", "*", "*.*", "**", "extra.*"])
        value = rng.choice(["new"] + parts[:1] + [""]).replace("*", "x")
        for i in range(key.count("*")):
            value = rng.choice(["{}*", "{}/*", "*{}" if i == 0 else "{}.*"]).format(value)
        return key, None if rng.random() < 0.2 else value or "x"

    @staticmethod
    def patterns(rng, names):
        out = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            name = rng.choice(names)
            begin = rng.randrange(len(name) + 1)
            end = rng.randint(begin, len(name))
            middle = rng.choice(["*", "*", "?" * (end - begin), "".join(f"[{c}-{c}]" if c.isascii() else "?" for c in name[begin:end])])
            out.append(name[:begin] + (middle if "]" not in name and "[" not in name else "*") + name[end:])
        return [pattern for pattern in out if pattern.strip(" ") == pattern and ";" not in pattern] or ["*"]

    def key_of(self, name):
        """The key that counts, and what its stars stand for."""
        if name in self.map and "*" not in name:
            return name, ()
        for key in self.map:
            like = re.fullmatch("(.*?)".join(map(re.escape, key.split("*"))), name, re.DOTALL)
            if "*" in key and like:
                return key, like.groups()
        return None, ()

    def renamed(self, name):
        key, groups = self.key_of(name)
        value = name if key is None else self.map[key]
        if key is None or value is None:
            return value
        first, *rest = value.split("*")
        return first + "".join(group + part for group, part in zip(groups, rest))

    def shown(self, name):
        new = self.renamed(name)
        like = new is not None and (not self.only or any(fnmatch.fnmatchcase(new, p) for p in self.only))
        return new if like and not any(fnmatch.fnmatchcase(new, p) for p in self.drop) else None

    def is_refused(self, names, tensors):
        """Whether a view of these names is refused; TENSORS are some of them."""
        new = [n for n in map(self.renamed, names) if n is not None]
        shown = [n for n in map(self.shown, names) if n is not None]
        given = [value for key, value in self.map.items() if "*" not in key and value is not None]
        return bool(len(given) > len(set(given)) or (self.map and not any(self.key_of(n)[0] for n in names)) or "" in new
                    or not all(fnmatch.filter(new, p) for p in self.only)
                    or (self.drop and not any(fnmatch.filter(new, p) for p in self.drop))
                    or len(shown) > len(set(shown)) or not any(map(self.shown, tensors)))

    def options(self, folder):
        path = os.path.join(folder, "chosen.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.map, file)
        given = {"names": path if self.map else "", "only": ";".join(self.only), "drop": ";".join(self.drop)}
        return "".join(f",{name}=" + value.replace("\\", "\\\\").replace(",", "\\,")
                       for name, value in given.items() if value)
