# SPDX-License-Identifier: Apache-2.0
"""More cases of the family "dcp": items that torch's extension has compressed."""
import json
import os
import pickle
import subprocess
import sys

import dcp_program as program
import torch
from compared import mounted
from dcp_cases import Alone, Case, Maker, export, fixed_since_2_9, numbered, permuted, run
from dcp_program import Permuted, Plain, Sharded, Zstandard


def every_kind():
    """Cut evenly and not, of several types, in other orders, whole, of no element and of one, and objects."""
    maker = Maker("packed", 0)
    return {("model", "w"): Sharded(maker.full([10, 6], torch.bfloat16), (2, 2), [0, 1]),
            ("model", "odd"): Sharded(maker.full([7, 3], torch.float64), (4,), [0]),
            ("model", "large"): Sharded(maker.full([600, 500], torch.float32), (4,), [0]),
            ("model", "zeros"): Sharded(torch.zeros(2000, 300), (2, 2), [1, None]),
            ("model", "turned"): Permuted(maker.full([10, 6], torch.int16), (2, 2), [0, 1]),
            ("model", "transposed"): Plain(numbered(6, 4, dtype=torch.bfloat16).t()),
            ("model", "flag"): Plain(torch.tensor(True)), ("model", "scalar"): Plain(torch.tensor(3.5)),
            ("model", "empty"): Plain(torch.zeros(0, 4)), ("step",): 7, ("text",): "x" * 100000,
            ("optim", "groups"): [{"lr": 0.1, "betas": (0.9, 0.95)}]}


class Packed(Case):
    """torch's own extension as it is: without an option."""

    def __init__(self, name, items=None, **options):
        super().__init__(name, 4, items or every_kind(), **{"_extensions": [program._extension.ZStandard()], **options})

    def check_views(self, folder, source, options):
        return explained(source, "model.large") or super().check_views(folder, source, options)


def explained(source, name):
    """None, or what is wrong with the places that explain names: the items in the files."""
    ran = run("reshard", "explain", source, "--param", name, "--rank", "0", "-o", "view=dcp", "--json")
    if ran.returncode:
        return ran.stderr
    told = json.loads(ran.stdout)
    have = {(piece["file"], part["offset"]) for piece in told["slices"][0]["pieces"] for part in piece["ranges"]}
    with open(os.path.join(source, ".metadata"), "rb") as file:
        stored = pickle.load(file).storage_data
    want = {(info.relative_path, info.offset) for index, info in stored.items() if index.fqn == name}
    return None if have == want and "compressed" in told["offsets"] else f"explain: {have} instead of {want}, {told}"


@fixed_since_2_9
def packed(name):
    return Packed(name)


@fixed_since_2_9
def packed_strides(name):
    return Case(name, 4, permuted(), _extensions=[program._extension.ZStandard()])


@fixed_since_2_9
def packed_levels(name):
    """Windows of 512 KiB and of 128 MiB, with a checksum behind each item."""
    class Levels(Case):
        def check_views(self, folder, source, options):
            for level in (-7, 22):
                at = os.path.join(folder, f"level{level}")
                os.mkdir(at)
                program.save(os.path.join(at, "checkpoint"), self.world, self.items, _extensions=[Zstandard(level, True)])
                if said := self.check_oracle(at) or super().check_views(at, os.path.join(at, "checkpoint"), options):
                    return f"level {level}: {said}"
            return None
    return Levels(name, 4, every_kind())


@fixed_since_2_9
def packed_alone(name):
    """Without collectives: what is not cut has copies, which strict and verify compare."""
    class Compared(Alone):
        def check_views(self, folder, source, options):
            return (export(source, os.path.join(folder, "strict"), "format=pt,strict") or
                    super().check_views(folder, source, options))
    return Compared(name, 4, every_kind(), _extensions=[Zstandard()])


@fixed_since_2_9
def packed_copies_differ(name):
    """The bytes of copies are compared, not how they are compressed."""
    class Differ(Alone):
        def check_oracle(self, _folder):
            return None

        def check_views(self, folder, source, _options):
            ran = run("reshard", "verify", source)
            if ran.returncode != 1 or "w: has other bytes than the ranks that hold the same, first at [3, 5]" not in ran.stdout:
                return f"verify: {ran.returncode} {ran.stdout}"
            said = export(source, os.path.join(folder, "strict"), "format=pt,strict") or ""
            return None if "parameter 'w': has other bytes than its copy in" in said else f"strict: {said!r}"
    other = numbered(50, 40)
    other[3, 5] = -1
    return Differ(name, 2, {("w",): program.PerRank([numbered(50, 40), other])}, _extensions=[Zstandard()])


# The memory of a program, in KiB, as a small process sees it: that of a large one would count.
MEASURE = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=2, check=True); "
           "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")


class Once(Packed):
    """256 MiB in sequence: within the memory that was promised; and with room, each item is decompressed once."""

    CACHE, ROOM = 96, 640  # MiB
    ABOVE = 48  # MiB that a process has besides

    def check_views(self, folder, source, _options):
        stored = sum(os.path.getsize(os.path.join(source, name)) for name in os.listdir(source))
        options = f"view=huggingface,cache={self.CACHE}M"
        used = int(subprocess.run([sys.executable, "-SEc", MEASURE, os.environ["RESHARD"], "export", source,
                                   os.path.join(folder, "out"), "-o", options], stdout=subprocess.PIPE, check=True).stdout)
        if used > (self.CACHE + self.ABOVE) * 1024:
            return f"the export has taken {used} KiB"
        if os.environ.get("RFS_NO_FUSE"):
            return None
        with mounted(source, os.path.join(folder, "mnt"), {"view": "huggingface", "cache": f"{self.ROOM}M"}):
            with open(os.path.join(folder, "mnt", "model.safetensors"), "rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass
            with open(os.path.join(folder, "mnt", ".reshardfs", "stats.json"), encoding="utf-8") as file:
                stats = json.load(file)
        if not stored * 0.9 < stats["source_bytes"] <= stored * 1.01:
            return f"{stats['source_bytes']} bytes were read of {stored}"
        if stats["cache_budget"] != self.ROOM << 20 or stats["cache_bytes"] > self.ROOM << 20:
            return f"the cache has {stats['cache_bytes']} of {stats['cache_budget']} bytes"
        return None


@fixed_since_2_9
def packed_once(name):
    maker = Maker("packed", 1)
    return Once(name, {(f"w{i}",): Sharded(maker.full([4096, 2048], torch.float32), (4,), [0]) for i in range(8)})


class Refused(Packed):
    """What DAMAGE does to a save is refused, and this is SAID; with LATE by who reads it."""

    def __init__(self, name, said, damage=None, items=None, late=True, options="format=pt", **more):
        super().__init__(name, items or {("w",): Sharded(torch.rand(400, 300), (4,), [0]), ("step",): 3}, **more)
        self.said, self.damage, self.late, self.how = said, damage, late, options

    def check_oracle(self, _folder):
        return None

    def check_views(self, folder, source, _options):
        if self.damage:
            self.damage(source)
        shown = self.late if os.environ.get("RFS_NO_FUSE") else can_mount(source, os.path.join(folder, "mnt"), self.how)
        have = export(source, os.path.join(folder, "out"), self.how) or ""
        if self.said not in have:
            return f"{have!r} does not say {self.said!r}"
        return None if shown == self.late else f"late is {shown}"


def can_mount(source, at, options):
    os.mkdir(at)
    if run("reshardfs", source, at, "-o", options).returncode:
        return False
    subprocess.run(["fusermount3", "-u", at], check=True)
    return True


def item_of(folder, name="w"):
    """The file and the range of the first chunk of a tensor, and the metadata."""
    with open(os.path.join(folder, ".metadata"), "rb") as file:
        metadata = pickle.load(file)
    index = min((i for i in metadata.storage_data if i.fqn == name), key=lambda i: tuple(i.offset or ()))
    return metadata, metadata.storage_data[index]


def change(edit, name="w"):
    """EDIT takes the bytes of an item, and gives others for it, of any length."""
    def damage(folder):
        metadata, info = item_of(folder, name)
        path = os.path.join(folder, info.relative_path)
        with open(path, "rb") as file:
            data = file.read()
        item = edit(data[info.offset:info.offset + info.length])
        data = data[:info.offset] + item + data[info.offset + info.length:]
        for other in metadata.storage_data.values():
            if other.relative_path == info.relative_path and other.offset > info.offset:
                other.offset += len(item) - info.length
        info.length = len(item)
        with open(path, "wb") as file:
            file.write(data)
        with open(os.path.join(folder, ".metadata"), "wb") as file:
            pickle.dump(metadata, file)
    return damage


DAMAGED = "the item there, which is compressed by zstd, is damaged: "


def flip(item):
    return item[:len(item) // 2] + bytes([item[len(item) // 2] ^ 0x40]) + item[len(item) // 2 + 1:]


@fixed_since_2_9
def packed_flipped(name):
    """The frame's checksum finds what its blocks may not."""
    return Refused(name, DAMAGED, change(flip), _extensions=[Zstandard(checksum=True)])


@fixed_since_2_9
def packed_cut(name):
    return Refused(name, DAMAGED + "Src size is incorrect", change(lambda item: item[:-5]))


@fixed_since_2_9
def packed_garbage(name):
    return Refused(name, DAMAGED, change(lambda item: item + b"more"))


@fixed_since_2_9
def packed_bomb(name):
    """A gigabyte of zeros in as many bytes as the tensor has."""
    return Refused(name, DAMAGED + "it has more bytes than it may have",
                   change(lambda _: program.zstandard.ZstdCompressor(level=19).compress(bytes(1 << 30))))


@fixed_since_2_9
def packed_not(name):
    """What the metadata calls compressed and is not."""
    return Refused(name, DAMAGED + "it is not of zstd, or of a version before 1",
                   change(lambda item: program.zstandard.ZstdDecompressor().decompressobj().decompress(item)))


@fixed_since_2_9
def packed_other_tensor(name):
    return Refused(name, "is Float32 [4, 3] here, and Float32 [100, 300] in the metadata",
                   change(lambda _: program.zstandard.compress(saved(torch.zeros(4, 3)))))


def saved(tensor):
    out = program.io.BytesIO()
    torch.save(tensor, out)
    return out.getvalue()


@fixed_since_2_9
def packed_small_cache(name):
    """The remedy is enough, and a megabyte less is not."""
    class Small(Refused):
        def check_views(self, folder, source, options):
            if said := super().check_views(folder, source, options):
                return said
            have = export(source, os.path.join(folder, "no"), self.how) or ""
            least = int(have.split("cache=")[-1].split("M")[0])
            if export(source, os.path.join(folder, "less"), f"format=pt,cache={least - 1}M") is None:
                return f"cache={least - 1}M is enough"
            return (export(source, os.path.join(folder, "least"), f"format=pt,cache={least}M") or
                    export(source, os.path.join(folder, "objects"), f"view=dcp,cache={least}M"))
    items = {("w",): Sharded(torch.rand(2000, 1000), (4,), [0]), ("b",): Plain(torch.rand(10)), ("step",): 3}
    return Small(name, "parameter 'w': is compressed by zstd, and the cache is too small: ", items=items, late=False,
                 options="format=pt,cache=1M")


@fixed_since_2_9
def packed_object_bomb(name):
    """Nothing tells the size of an object: the cache bounds it."""
    return Refused(name, "the cache has no room for it: it is decompressed as a whole",
                   change(lambda _: program.zstandard.ZstdCompressor(level=19).compress(bytes(1 << 30)), "step"),
                   options="view=dcp,cache=8M")


@fixed_since_2_9
def packed_twice(name):
    return Refused(name, "is stored by the extension stream.zstd/1 of torch's writer, and by others, which is not read; try: "
                   "dcp.load and", late=False, _extensions=[Zstandard(), Zstandard()])


@fixed_since_2_9
def packed_otherwise(name):
    return Refused(name, "is stored by the extension stream.zstd/2 of torch's writer, which is not read", late=False,
                   _extensions=[Zstandard(descriptor="stream.zstd/2")])


@fixed_since_2_9
def packed_elsewhere(name):
    return Refused(name, "is stored by the extension stream.zstd@lab/1 of torch's writer, which is not read", late=False,
                   _extensions=[Zstandard(descriptor="stream.zstd@lab/1")])


def forget_one(folder):
    metadata, info = item_of(folder, "step")
    info.transform_descriptors = None
    with open(os.path.join(folder, ".metadata"), "wb") as file:
        pickle.dump(metadata, file)


@fixed_since_2_9
def packed_in_part(name):
    return Refused(name, "the metadata is damaged: its file has compressed items, and others", forget_one, late=False)
