# SPDX-License-Identifier: Apache-2.0
"""A view is the same at each opening: bytes of all files, and what commands print, whatever the order in which threads
get their work done. tests/support/delays.c makes another order of each opening; RFS_SEED repeats those of a run.
"""
import json
import os
import random
import re

from exporting import *
import safetensors_file
from forge import Param, Tree

OPENINGS = 20  # of each view, over all sources
SEED = int(os.environ.get("RFS_SEED") or random.SystemRandom().randrange(1 << 32))
NAMES = [f"layers.{i}.{what}" for i in range(6) for what in ("norm", "weight", "bias")]
PARAMS = [Param(n, (24,) if n.endswith("bias") else (48, 24), 0 if n.endswith("weight") else -1, 0) for n in NAMES]
# What shows each word of view= and format=; {dst} is a strategy of two ranks.
VIEWS = {
    "ranks": ["view=ranks,{dst}"],
    "ckpt": ["format=ckpt", "format=ckpt,{dst}"],
    "safetensors": ["format=safetensors,{dst}"],
    "pt": ["format=pt,{dst}"],
    "gguf": ["format=gguf,{dst}", "view=gguf"],
    "huggingface": ["view=huggingface", "view=huggingface,file_size=8K"],
    "unified": ["view=unified,file_size=8K"],
    "dcp": ["view=dcp", "view=dcp,dst_ranks=3,chunk_size=1K", "view=dcp,{dst}"],
    "hyper_parallel": ["view=hyper_parallel", "view=hyper_parallel,dst_ranks=3", "view=hyper_parallel,{dst}"],
    "mindformers": ["view=mindformers", "view=mindformers,{dst}"],
    "peft": ["view=peft,lora_alpha=8"],
}


def by_hand(where, params, files, name):
    """Whole tensors in several files, which threads read at once."""
    os.makedirs(where)
    for i in range(files):
        mine = [(p.name, "F32", p.shape, random.Random(p.name).randbytes(4 * p.shape[0] * (p.shape + (1,))[1])) for p in params[i::files]]
        safetensors_file.write(os.path.join(where, name.format(i + 1, files)), mine)
    return where


def without_some(tree):
    """Ranks that list different parameters, in another order each: what every rank holds is left out of some."""
    for rank in range(tree.src_n):
        mine = [p for i, p in enumerate(PARAMS) if p.src == 0 or (i + rank) % 4]
        random.Random(rank).shuffle(mine)
        tree.write(rank, b"".join(tree.value(p, rank) for p in mine))
    return tree.src


class Sources:
    """Folders that many threads read at once, and options for them: of a model, and of an adapter."""

    def __init__(self):
        self.tree = Tree(folder("tree"), PARAMS, 4, 2)
        where = folder("sources")
        src, self.dst = self.tree.options().split(",")
        self.models = {"ranks": (self.tree.src, src),
                       "lists": (without_some(Tree(folder("lists"), PARAMS, 4, 2)), src),
                       "shards": (by_hand(os.path.join(where, "shards"), PARAMS, 6, "model-{:05}-of-{:05}.safetensors"), "segmented")}
        for name, view in (("unified", "view=unified,file_size=8K"), ("dcp", "view=dcp," + self.dst)):
            self.models[name] = (self.made(name, view), "")
        halves = [Param(f"base_model.model.{n[:-7]}.lora_{ab}.weight", shape, 0, 0) for n in NAMES if n.endswith("weight")
                  for ab, shape in (("A", (4, 24)), ("B", (48, 4)))]
        self.adapters = {"adapter": (by_hand(os.path.join(where, "adapter"), halves, 5, "model-{:05}-of-{:05}.safetensors"), "segmented")}

    def made(self, name, view):
        target = place(name)
        equal(run(*words(self.tree.src, target, f"{self.tree.options().split(',')[0]},{view}")).returncode, 0, name)
        os.unlink(os.path.join(target, MANIFEST))
        return target

    def options(self, source, view):
        return ",".join(filter(None, [source[1], view.format(dst=self.dst)]))


def opened(command, number):
    """A command whose reads and threads are slowed down in their own way."""
    env = preloaded("support", "delays.c", RFS_DELAY_SEED=str(SEED + number), RFS_DELAY_MOST="300", LC_ALL="C")
    return run(*command, env=env)


def exported(source, options, number, target):
    """All that an opening gives: {path: bytes}, the manifest without its times, and what was said."""
    got = opened(words(source, target, options, "--no-fsync"), number)
    equal(got.returncode, 0, f"{options}: status, with {got.stderr!r}")
    known = manifest(target)
    for file in known["files"]:
        file.pop("written_ms")
    out = {**contents(target), MANIFEST: json.dumps(known).encode(), "stderr": got.stderr.encode()}
    shutil.rmtree(target)
    return out


def same_each_time(view, sources, of):
    """Opens it with and without a kept index, in turn."""
    each = OPENINGS // len(of)
    for name, source in of.items():
        options, first = sources.options(source, view), None
        for number in range(each):
            got = exported(source[0], options + (",index_cache=no" if number % 4 else ""), number, place("out"))
            got[MANIFEST] = got[MANIFEST].replace(b",index_cache=no", b"")
            first = first or got
            same_files(got, first, f"seed {SEED}, opening {number} of {name} by {options}")


def same_view(word):
    sources = Sources()
    for view in VIEWS[word]:
        same_each_time(view, sources, sources.adapters if word == "peft" else sources.models)


def test_each_opening_is_the_same_ranks():
    same_view("ranks")


def test_each_opening_is_the_same_ckpt():
    same_view("ckpt")


def test_each_opening_is_the_same_safetensors():
    same_view("safetensors")


def test_each_opening_is_the_same_pt():
    same_view("pt")


def test_each_opening_is_the_same_gguf():
    same_view("gguf")


def test_each_opening_is_the_same_huggingface():
    same_view("huggingface")


def test_each_opening_is_the_same_unified():
    same_view("unified")


def test_each_opening_is_the_same_dcp():
    same_view("dcp")


def test_each_opening_is_the_same_hyper_parallel():
    same_view("hyper_parallel")


def test_each_opening_is_the_same_mindformers():
    same_view("mindformers")


def test_each_opening_is_the_same_peft():
    same_view("peft")


def test_each_opening_has_a_case():
    """No view is left out."""
    with open(os.path.join(top, "src", "base", "options.c"), encoding="utf-8") as file:
        shown = re.search(r"static const char \*const shown\[\] = \{([^}]*)\}", file.read())[1]
    with open(os.path.join(top, "src", "formats", "words.h"), encoding="utf-8") as file:
        formats = " ".join(re.findall(r'ROW\(\w+, "\w+"\)', file.read()))
    words_of_options = sorted(set(re.findall(r'"(\w+)"', formats + shown)))
    equal(words_of_options, sorted(VIEWS), "words of view= and format=")
    equal([w for w in VIEWS if f"test_each_opening_is_the_same_{w}" not in globals()], [], "views without a test")


# ---- what commands print -------------------------------------------------------------------------------------

COMMANDS = ["info {src} -o {o} --json", "info {src} -o {o} --all", "stats {src} -o {o} --json", "suggest {src} -o {o} --json",
            "verify {src} -o {o} --json --list", "diff {src} {other} -o {o} --options-b segmented --json --all", "explain {src} -o {to} --json",
            "explain {src} -o {to} --json --param layers.3.weight", "explain {src} -o {to} --json --rank 1"]


def same_words(command, what):
    first = None
    for number in range(OPENINGS // 4):
        got = opened(command, number)
        got = got.returncode, re.sub(r"[0-9.]+ s\b", "N s", re.sub(r'"seconds": [0-9.]+', "", got.stdout)), got.stderr
        first = first or got
        equal(got, first, f"seed {SEED}, run {number} of {what}")
    return first


def test_commands_say_the_same():
    sources = Sources()
    other = sources.models["shards"][0]
    for name, source in sources.models.items():
        to = sources.options(source, "{dst}")
        for command in COMMANDS:
            said = [word.format(src=source[0], o=source[1] or "index_cache=no", to=to, other=other) for word in command.split(" ")]
            status, out, err = same_words([reshard, *said], f"{command} of {name}")
            check(out and status in (0, 1), f"{command} of {name}: {status}, {out!r}, {err!r}")


def test_refusals_say_the_same():
    """Of several faults it is the same one that is told."""
    sources = Sources()
    twice, short = (by_hand(os.path.join(folder("bad"), name), PARAMS, 6, "model-{:05}-of-{:05}.safetensors") for name in ("twice", "short"))
    for i, path in enumerate(sorted(os.listdir(twice))):
        named = safetensors_file.entries(os.path.join(twice, path))
        more = [(p.name, "F32", (1,), bytes(4)) for p in PARAMS[i + 1::6]]
        safetensors_file.write(os.path.join(twice, path), named + more)
    for path in os.listdir(short):
        os.truncate(os.path.join(short, path), 5000)
    for rank in range(1, 4):
        os.truncate(sources.tree.path(rank), 3000)
    for source, options in ((twice, ""), (short, ""), (sources.tree.src, sources.models["ranks"][1])):
        for view in ("view=huggingface", "view=dcp", "format=ckpt"):
            status, _, err = same_words(words(source, place(), ",".join(filter(None, [options, view]))), f"{view} of {source}")
            equal((status, err.count("\n")), (1, 1), f"{view} of {source}: status, lines of {err!r}")
