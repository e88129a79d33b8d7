# SPDX-License-Identifier: Apache-2.0
"""Stories of one whole checkpoint: the HuggingFace and the unified view, and merged files."""
import json
import os
import subprocess

import numpy as np

import values
from fixed_layouts import strategy
from fixed_outputs import World, library_save, made_by, read_header, rows_to_columns, whole
from layouts import Layout
from registry import story
from story import Story
from values import Value, map_messages, random_value


def expect_huggingface(world, limit):
    """What transformers writes, with the real huggingface_hub to say which tensor goes where."""
    from huggingface_hub.serialization._base import split_state_dict_into_shards_factory as split
    named = dict(world.target.contents(0))
    split = split(named, get_storage_size=lambda v: v.data.nbytes, max_shard_size=limit,
                  filename_pattern="model{suffix}.safetensors")
    for name, held in split.filename_to_tensors.items():
        library_save(world.path("expected", name), [(n, named[n]) for n in held], {"format": "pt"})
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        with open(world.path("expected", "model.safetensors.index.json"), "w", encoding="utf-8") as f:
            f.write(json.dumps(index, indent=2, sort_keys=True) + "\n")
    return len(split.filename_to_tensors)


def huggingface(rng, folder, limit, files, **options):
    shapes = {"model.embed.weight": (64, 32), "a": (8, 4), "\u6743\u91cd\U0001F600\"": (4, 4),
              "big": (256, 16), "z\uffff": (4,), "b": (4, 256), "c": (16, 64), "d": (4, 8)}
    kinds = ["Float32", "BFloat16", "Int64", "Float16", "Bool", "Float32", "Int8", "Float64"]
    world = whole(rng, folder, shapes, dict(zip(shapes, kinds)),
                  extras=[("lr", lambda: random_value(rng, "Float32", ()))])
    made = expect_huggingface(world, limit)
    assert made == files, made
    return world.story(view="huggingface", **options)


@story
def huggingface_one_file(rng, folder):
    """All fits into one file."""
    return huggingface(rng, folder, 5 * 10**9, 1)


@story
def huggingface_shards(rng, folder):
    """Shards, with tensors that fill one exactly."""
    return huggingface(rng, folder, 8192, 4, file_size="8K")


@story
def huggingface_tiny_shards(rng, folder):
    """Every tensor is larger than a shard may be, and so has one of its own."""
    return huggingface(rng, folder, 1, 9, file_size="1")


@story
def huggingface_of_destination(rng, folder):
    """A sharded destination is not what that view shows."""
    world = rows_to_columns(rng, folder, {"w": (8, 4)}, "Float32")
    out = world.story(view="huggingface")
    out.refusal, out.exit_code = "no strategy cuts", 2
    return out


def unify(world, limit=None, metadata=None):
    """unified_safetensors, run on the same tree as safetensors files; the .ckpt files get their order."""
    import mindspore as ms
    from mindspore.parallel import transform_safetensors as its
    for rank, named in world.files.items():
        twin = world.path("twin", f"rank_{rank}", "net.safetensors")
        library_save(twin, named, {"format": "ms", **(metadata or {})})
        order = list(read_header(twin)[0])
        named.sort(key=lambda pair: order.index(pair[0]))
    real = its.math
    if limit:
        class Shim:  # the size of a part is a constant of its code: 1024 * 1024 * 1024 * 3
            prod = staticmethod(real.prod)

            @staticmethod
            def ceil(x):
                return real.ceil(x * (3 << 30) / limit)
        its.math = Shim
    try:
        ms.unified_safetensors(world.path("twin"), world.options["src_strategy"],
                               world.path("expected"), max_process_num=1)
    finally:
        its.math = real


ROWS = [("w", (8, 4), Layout([4], [0, -1])), ("v", (16, 4), Layout([4], [-1, 0])),
        ("b", (6,), Layout([4], [-1])), ("accu_grads.w", (8, 4), Layout([4], [0, -1])),
        ("\u6743\"\x01", (4, 4), Layout([4], [0, -1])), ("o", (16, 4), Layout([4], [-1, -1], -1))]
KINDS = ["Float32", "Int16", "Int64", "Float32", "Bool", "Float64"]
EXTRAS = [("lr", "Float64", ()), ("step", "Int32", (1,))]


def unified(rng, folder, parts, limit=None, rows=ROWS, kinds=KINDS, extras=EXTRAS):
    world = World(rng, folder, strategy(rows), None, dict(zip((r[0] for r in rows), kinds)),
                  made_by(rng, extras))
    unify(world, limit)
    made = [n for n in os.listdir(world.path("expected")) if n.startswith("part")]
    assert len(made) == parts, made
    return world.story(view="unified", **({"file_size": limit} if limit else {}))


@story
def unified_one_part(rng, folder):
    """unified_safetensors: one part, and rank 0's accu_grads among the hyper parameters."""
    return unified(rng, folder, 1)


@story
def unified_parts(rng, folder):
    """Several parts, filled by size; two tensors of the same size."""
    return unified(rng, folder, 4, 256)


@story
def unified_without_hyper_parameters(rng, folder):
    """No hyper_param.safetensors when rank 0 has nothing else."""
    return unified(rng, folder, 2, 300, ROWS[:3], KINDS[:3], [])


@story
def unified_many(rng, folder):
    """Sixty tensors of five sizes."""
    rows = [(f"layer{i}.weight", (4, 4 + i % 5), Layout([4], [0, -1])) for i in range(60)]
    return unified(rng, folder, 6, 1000, rows, ["Float32"] * 60)


@story
def unified_from_safetensors(rng, folder):
    """The same tree of safetensors files as source; an empty tensor stays."""
    extras = EXTRAS + [("none", "Float16", (0, 3))]
    world = World(rng, folder, strategy(ROWS), None, dict(zip((r[0] for r in ROWS), KINDS)),
                  extras=made_by(rng, extras))
    unify(world, 256)
    return Story({**world.options, "view": "unified", "file_size": "256"}, source=world.path("twin"),
                 expected=world.path("expected"))


@story
def unified_of_removed_redundancy(rng, folder):
    """What remove_redundancy left: the same tensors; MindSpore's metadata of two keys has no fixed order."""
    rows = [("w", (8, 4), Layout([4], [0, -1])), ("v", (16, 4), Layout([2, 2], [0, -1])),
            ("b", (6,), Layout([4], [-1]))]
    world = World(rng, folder, strategy(rows), None)
    for rank, names in enumerate((["w", "v", "b"], ["w", "v"], ["w"], ["w"])):
        world.files[rank] = [pair for pair in world.files[rank] if pair[0] in names]
    unify(world, 200, {"remove_redundancy": "True"})

    def check(mnt):
        made, got = (sorted(os.listdir(x)) for x in (world.path("expected"), mnt))
        assert made == got, (made, got)
        for name in got:
            mine, theirs = os.path.join(mnt, name), world.path("expected", name)
            if name.endswith("json"):
                with open(mine, "rb") as a, open(theirs, "rb") as b:
                    assert a.read() == b.read()
                continue
            (mine_head, at), (their_head, their_at) = read_header(mine), read_header(theirs)
            assert mine_head.pop("__metadata__") == {"format": "ms"}
            assert their_head.pop("__metadata__") == {"format": "ms", "remove_redundancy": "False"}
            assert list(mine_head.items()) == list(their_head.items())
            with open(mine, "rb") as a, open(theirs, "rb") as b:
                a.seek(at)
                b.seek(their_at)
                assert a.read() == b.read()
    return Story({**world.options, "view": "unified", "file_size": "200"}, source=world.path("twin"),
                 check=check)


@story
def unified_stages(rng, folder):
    """Pipeline stages: what only the second has, and a rank 0 that lacks it. (No two sizes are the same: MindSpore
    takes those of one size in the order in which the file system lists the folders.)"""
    rows = [("w", (8, 4), Layout([2], [0, -1]), 0), ("v", (16, 4), Layout([2], [-1, 0]), 1),
            ("u", (16,), Layout([2], [0]), 1), ("accu_grads.v", (16, 4), Layout([2], [-1, 0]), 1)]
    world = World(rng, folder, strategy(rows), None,
                  extras=[("lr", lambda: Value("Float32", np.float32(1).reshape(())))])
    for rank in (2, 3):
        world.files[rank].append(("only", Value("Float64", np.float64(rank).reshape(()))))
    unify(world, 100)
    out = world.story(view="unified", file_size="100")
    out.says = ("1 value that rank_0 lacks is left out: 'only'",)
    return out


@story
def merged_with_strings_and_map_tensors(rng, folder):
    """One whole checkpoint with values that are not tensors can be verified, measured, compared, and read through a mount."""
    world = whole(rng, folder, {"w": (8, 4)}, "Float32", extras=[("steps", lambda: Value("Int64", np.array(100)))])
    table = map_messages("table", [(rng.integers(0, 99, n).astype(np.int32), rng.random((n, 4)).astype(np.float32),
                                    np.zeros(n, np.int32)) for n in (3, 5)])
    for named in world.files.values():
        named.insert(0, ("note", Value("str", "a \u2200")))
        named.append(("table", table))
    values.save(world.path("merged", "rank_0", "net.ckpt"), world.target.contents(0))
    world.write()

    def reshard(*args):
        done = subprocess.run([os.environ["RESHARD"], *args], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout
        return done.stdout

    merged, src = world.path("merged"), (world.path("src"), "-s", world.options["src_strategy"])
    reshard("verify", merged, "--against", *src)
    assert "note" in reshard("stats", merged) and "table" in reshard("stats", merged)
    reshard("diff", src[0], merged, *src[1:])

    def check(path):
        from mindspore.train.checkpoint_pb2 import Checkpoint, MapTensorProto
        full = os.path.join(path, ".reshardfs", "tensors", "full")
        assert str(np.load(os.path.join(full, "note.npy"))) == "a \u2200"
        whole, content = Checkpoint(), MapTensorProto()
        whole.ParseFromString(table.data)
        content.ParseFromString(np.load(os.path.join(full, "table.npy")).tobytes())
        assert list(content.tensor) == [t for value in whole.value for t in value.maptensor.tensor]
        assert np.load(os.path.join(full, "w.npy")).tobytes() == world.fulls["w"].data.tobytes()
    return Story({"format": "ckpt"}, source=merged, check=check)
