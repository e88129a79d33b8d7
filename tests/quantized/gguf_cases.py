# SPDX-License-Identifier: Apache-2.0
"""The family "gguf": files of llama.cpp, as views show them, against gguf of PyPI.

A random case is Random(f"{seed}/{number}") and nothing else.
"""
import itertools
import json
import os
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is to be looked up anywhere

import compared  # noqa: E402
import folders  # noqa: E402
import gguf  # noqa: E402
import gguf_files  # noqa: E402
import gguf_models  # noqa: E402
import numpy as np  # noqa: E402
import shown  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from gguf_files import BLOCKS, UNREAD, Type  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

FIXED = {}
LOOKS = 3  # of a random case, beside the first


def whole(case, options, want):
    target = case.new("whole")
    problem = shown.export(case.source, target, {"view": "huggingface", **options})
    return problem or shown.all_differ(shown.read(target), want)


def plain(case):
    return whole(case, {"dequantize": True}, case.truth(torch.bfloat16))


def dtype(case):
    """dtype=: rounded once from float32; other tensors that have a floating-point type are cast, too."""
    word = case.rng.choice(["float32", "float32", "float16", "bfloat16", "float64"])
    return whole(case, {"dequantize": True, "dtype": word}, shown.cast(case.truth(torch.float32), shown.WORDS[word]))


def stored(path):
    """name -> (type, dims, bytes) of a file by gguf."""
    return {t.name: (t.tensor_type, [int(n) for n in t.shape], t.data.tobytes()) for t in gguf.GGUFReader(path).tensors}


def values_of(path):
    """key -> value of a file by gguf."""
    return {k: f.contents() for k, f in gguf.GGUFReader(path).fields.items() if not k.startswith("GGUF.")}


def kept(path):
    """Those that are copied: all but how the file is laid out."""
    return {k: v for k, v in values_of(path).items() if k != "general.alignment" and not k.startswith("split.")}


def untouched(case):
    """format=gguf and view=gguf without dequantize: the same blocks."""
    target, whole_file = case.new("blocks"), case.new("one")
    problem = shown.export(case.source, target, {"format": "gguf"}) or shown.export(case.source, whole_file, {"view": "gguf"})
    if problem:
        return problem
    want = {name: tensor for path in case.model.paths for name, tensor in stored(path).items()}
    if kept(os.path.join(target, "rank_0", "checkpoint_0.gguf")) != kept(case.model.paths[0]):
        return "the values that describe the model are others"
    got = stored(os.path.join(target, "rank_0", "checkpoint_0.gguf"))
    if got != stored(os.path.join(whole_file, "model.gguf")):
        return "view=gguf shows another file"
    if set(got) != set(want):
        return f"the file has {sorted(got)}"
    return next((f"{n} is {got[n][:2]} with {len(got[n][2])} bytes" for n in want if got[n] != want[n]), None)


def written(case):
    """format=gguf with dequantize: gguf reads plain tensors, also of a rank's cuts."""
    target = case.new("written")
    word = case.rng.choice([None, "float32", "float16"])
    options = {"dequantize": True, "format": "gguf", **({"dtype": word} if word else {})}
    problem = shown.export(case.source, target, options)
    if problem:
        return problem
    want = shown.cast(case.truth(torch.float32), shown.WORDS[word]) if word else case.truth(torch.bfloat16)
    reader = gguf.GGUFReader(os.path.join(target, "rank_0", "checkpoint_0.gguf"))
    return shown.all_differ({t.name: gguf_files.numbers_of(t, torch.float32) for t in reader.tensors}, want)


def refused(case):
    """Blocks are shown in no other format, and the message says what makes numbers of them."""
    options = case.rng.choice([{"format": "ckpt"}, {"format": "safetensors"}, {"format": "pt"}, {"view": "dcp", "dst_ranks": 1},
                               {"view": "huggingface"}])
    target = case.new("refused")
    said = shown.export(case.source, target, options)
    if not said or "dequantize" not in said or not any(name in said for name in case.model.quantized):
        return f"{options}: it says {said}"
    return None


def info(case):
    """reshard info lists each tensor, and each value that describes the model."""
    said = compared.run("info", case.source)
    lacks = [n for n in case.model.tensors if n not in said.stdout]
    if said.returncode or lacks:
        return f"info exits with {said.returncode} and lacks {lacks}: {said.stdout}"
    listed = {v["name"]: v for v in json.loads(compared.run("info", "--json", case.source).stdout)["values"]}
    want = values_of(case.model.paths[0])
    if list(listed) != list(want):
        return f"info --json has the values {list(listed)} instead of {list(want)}"
    return next((f"{k} is {listed[k]} instead of {v!r:.99}" for k, v in want.items() if not same_value(listed[k], v)), None)


def same_value(have, want):
    if isinstance(want, list):
        return have["elements"] == len(want)
    return have["value"] == want or (isinstance(want, str) and len(want) > 2000 and want.startswith(have["value"]))


WAYS = [dtype, dtype, untouched, written, refused, info, shown.ranks, shown.ranks, shown.strategy, shown.one_file, shown.unified,
        shown.dcp, shown.names, shown.boxes, shown.boxes, shown.mounted, shown.get, shown.verify, shown.diff, shown.explain]


class Case:
    def __init__(self, name, seed, ways=None):
        self.name, self.rng = name, folders.Random(seed)
        self.model = gguf_files.File(self.rng)
        self.ways = ways or [plain, *self.rng.sample(WAYS, LOOKS)]
        self.numbers, self.known = itertools.count(), {}

    def describe(self):
        return f"{self.model.describe()}\n  looked at by {', '.join(w.__name__ for w in self.ways)}"

    def new(self, name):
        """A path that nothing has."""
        return os.path.join(self.folder, f"{next(self.numbers)}-{name}")

    def write(self, folder):
        self.folder = folder
        self.source = self.model.write(os.path.join(folder, "model"))
        return self.source, {}

    def truth(self, dtype):
        if dtype not in self.known:
            self.known[dtype] = self.model.truth(dtype)
        return self.known[dtype]

    def plain_folder(self, dtype=None):
        """The true tensors in a safetensors file, in the order of the source."""
        path = os.path.join(self.folder, f"plain-{dtype}")
        if not os.path.exists(path):
            os.makedirs(path)
            held = {n: t.contiguous() for n, t in self.truth(dtype or torch.bfloat16).items()}
            save_file(held, os.path.join(path, "model.safetensors"))
        return path

    def check_oracle(self, folder):
        del folder

    def check_views(self, folder, source, options):
        del folder, source, options
        return next((f"{way.__name__}: {said}" for way in self.ways if (said := way(self))), None)


def make(seed, number):
    return Case(f"gguf-{seed}-{number}", f"{seed}/{number}")


class Refused:
    """A file that must not be read: one line that has WORDS."""

    def __init__(self, name, spoil, words):
        self.name, self.spoil, self.words = name, spoil, words

    def describe(self):
        return f"  {self.words}"

    def write(self, folder):
        self.folder = os.path.join(folder, "model")
        os.makedirs(self.folder)
        return self.spoil(self.folder), {}

    def check_oracle(self, folder):
        del folder

    def check_views(self, folder, source, options):
        del options
        said = shown.export(source, os.path.join(folder, "out"), {"dequantize": True, "view": "huggingface"})
        lacks = [w for w in self.words if not said or w not in said]
        return f"it says {said}" if lacks or said.strip().count("\n") else None


def write_one(folder, kind=Type.F32, endian=gguf.GGUFEndian.LITTLE, **split):
    """A file with a tensor of a type, whatever bytes that has."""
    path = os.path.join(folder, "model.gguf")
    writer = gguf.GGUFWriter(path, "llama", endianess=endian, **split)
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    data = np.zeros((2, size), np.uint8) if numbers > 1 else np.zeros((2, 4), np.float32)
    for name in ("blk.0.attn_q.weight", "blk.0.attn_k.weight"):
        writer.add_tensor(name, data, raw_dtype=kind if numbers > 1 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def of_type(kind):
    return lambda folder: write_one(folder, kind)


def split(folder):
    """Gives the first of two parts."""
    write_one(folder, split_max_tensors=1)
    return os.path.join(folder, "model-00001-of-00002.gguf")


def lost_part(folder):
    os.remove(split(folder).replace("00001", "00002", 1))
    return folder


def lost_part_of_first(folder):
    first = split(folder)
    lost_part(folder)
    return first


def renamed_part(folder):
    os.rename(split(folder), os.path.join(folder, "model.gguf"))
    return os.path.join(folder, "model.gguf")


def parts_in_turn(folder):
    first = split(folder)
    second = first.replace("00001", "00002", 1)
    os.rename(first, first + ".old")
    os.rename(second, first)
    os.rename(first + ".old", second)
    return folder


class Split:
    """A file that is split in parts, as one checkpoint: the folder, and its first file."""

    def __init__(self, name, tensors):
        self.model = gguf_files.File(folders.Random(name), tensors)

    def describe(self):
        return self.model.describe()

    def write(self, folder):
        return self.model.write(os.path.join(folder, "model")), {}

    def check_oracle(self, folder):
        del folder

    def check_views(self, folder, source, options):
        return self.check(folder, source, "folder") or self.check(folder, self.model.paths[0], "file")

    def check(self, folder, source, word):
        target, one = os.path.join(folder, word), os.path.join(folder, f"one-{word}")
        problem = shown.export(source, target, {"dequantize": True, "view": "huggingface"}) or shown.export(source, one, {"view": "gguf"})
        problem = problem or shown.all_differ(shown.read(target), self.model.truth(torch.bfloat16))
        if not problem and kept(os.path.join(one, "model.gguf")) != kept(self.model.paths[0]):
            problem = "the values that describe the model are others"
        if not problem and stored(os.path.join(one, "model.gguf")) != {n: t for p in self.model.paths for n, t in stored(p).items()}:
            problem = "view=gguf has other tensors"
        if problem:
            return problem
        said = json.loads(compared.run("info", "--json", source).stdout)
        listed = {row["name"] for row in said.get("tensors", said["rows"])}, [value["name"] for value in said["values"]]
        return None if listed == (set(self.model.tensors), list(values_of(self.model.paths[0]))) else f"info lists {listed}"


def shorter(folder):
    path = write_one(folder)
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - 40)
    return path


def add_refused(name, spoil, words):
    FIXED[f"gguf-refused-{name}"] = lambda full: Refused(full, spoil, words)


for unread in UNREAD:
    add_refused(unread.name, of_type(unread), [unread.name, "blk.0.attn_q.weight", "not read"])
add_refused("big-endian", lambda folder: write_one(folder, endian=gguf.GGUFEndian.BIG), ["big-endian"])
add_refused("lost-part", lost_part, ["model-00002-of-00002.gguf", "missing"])
add_refused("lost-part-of-first", lost_part_of_first, ["model-00002-of-00002.gguf", "missing"])
add_refused("renamed-part", renamed_part, ["part 1 of 2", "-00001-of-00002.gguf"])
add_refused("parts-in-turn", parts_in_turn, ["part 2 of 2", "-00002-of-00002.gguf"])
add_refused("truncated", shorter, ["truncated"])
FIXED.update({f"gguf-split-{n}": lambda full, n=n: Split(full, n) for n in (1, 2, 3)})
FIXED.update(gguf_models.FIXED)


def every_block(name):
    """all types of blocks in one file, and each way of looking at it"""
    case = Case(name, name, [plain, *dict.fromkeys(WAYS)])
    for kind in BLOCKS:
        case.model.add(f"every.{kind.name}", kind)
        case.model.quantized.append(f"every.{kind.name}")
    return case


FIXED["gguf-every-block"] = every_block


def prepare():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
