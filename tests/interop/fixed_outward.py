# SPDX-License-Identifier: Apache-2.0
"""Stories of how parameters leave: dtypes by -o dtype= against MindSpore's own casts and numpy's, names by
-o names= against the functions of MindSpore that take a name_map."""
import json
import os

import numpy as np

import oracle
import values
from fixed_layouts import strategy
from fixed_outputs import World, library_save, loads_everywhere, rows_to_columns, whole
from fixed_safetensors import write_huggingface, write_library
from layouts import Layout
from registry import story
from story import Story
from values import Value, random_value

FLOATS = ["Float32", "Float16", "BFloat16", "Float64"]
BITS = {"Float16": np.uint16, "BFloat16": np.uint16, "Float32": np.uint32, "Float64": np.uint64}
FRACTION = {"Float16": 10, "BFloat16": 7, "Float32": 23, "Float64": 52}
EXPONENT = {"Float16": 5, "BFloat16": 8, "Float32": 8, "Float64": 11}


def infinite(dtype):
    return (1 << EXPONENT[dtype]) - 1 << FRACTION[dtype]


def from_bits(dtype, bits):
    bits = np.asarray(bits, np.uint64).astype(BITS[dtype])
    return Value(dtype, bits if dtype == "BFloat16" else bits.view(values.STORED[dtype]))


def to_bits(value):
    return np.ascontiguousarray(value.data).view(BITS[value.dtype])


def edges(rng, dtype, shape):
    """Every kind of number but NaN, with all that is near a tie, an end or a subnormal of another type."""
    n = int(np.prod(shape))
    sign = rng.integers(0, 2, n, np.uint64) << np.uint64(EXPONENT[dtype] + FRACTION[dtype])
    bits = rng.integers(0, infinite(dtype) + 1, n, np.uint64)
    own = FRACTION[dtype]
    for i in range(n):
        kind = rng.integers(0, 4)
        other = FLOATS[rng.integers(0, 4)]
        if kind == 0 and FRACTION[other] < own:  # a tie of the other type, or its neighbour
            tie = 1 << own - FRACTION[other] - 1
            bits[i] = (int(bits[i]) & ~(2 * tie - 1) | tie) + int(rng.integers(-1, 2))
        elif kind == 1:  # around one of the other type's ends
            ends = {"Float16": (65520., 2.**-14, 2.**-24, 2.**-25), "BFloat16": (2.**127, 2.**-126, 2.**-133),
                    "Float32": (2.**127, 2.**-126, 2.**-149, 2.**-150), "Float64": (0., 1.)}[other]
            end = np.array([ends[rng.integers(0, len(ends))]])
            if dtype == "BFloat16":
                near = int(end.astype(np.float32).view(np.uint32)[0]) >> 16
            else:
                with np.errstate(over="ignore"):
                    near = int(end.astype(values.STORED[dtype]).view(BITS[dtype])[0])
            bits[i] = min(max(near + int(rng.integers(-2, 3)), 0), infinite(dtype))
    return Value(dtype, from_bits(dtype, bits | sign).data.reshape(shape))


def as_mindspore(value, dtype):
    """What Tensor.astype of the real MindSpore makes of it."""
    import mindspore as ms
    if value.dtype not in FLOATS or value.dtype == dtype:
        return value
    cast = values.to_mindspore("x", value).astype(getattr(ms, dtype.lower()))
    data = np.frombuffer(cast.get_bytes(), values.STORED[dtype]).reshape(value.shape)
    return Value(dtype, data)


def save_expected(world, convert, form="ckpt"):
    """The files that the mount must show, of what the model says and MindSpore casts."""
    out = {}
    for rank in range(world.target.ranks):
        named = [(n, convert(n, v)) for n, v in world.target.contents(rank)]
        name = world.target.file_name(rank)
        if form == "safetensors":
            library_save(world.path("expected", name.replace(".ckpt", ".safetensors")), named,
                         {"format": "ms"})
        else:
            values.save(world.path("expected", name), named)
        out[rank] = named
    return out


SHAPES = {"p.float32": (64, 48), "p.float16": (16, 6), "p.bfloat16": (16, 6), "p.float64": (32, 6),
          "p.int32": (8, 6), "p.bool": (8, 6), "v": (520, 1030)}
KINDS = ["Float32", "Float16", "BFloat16", "Float64", "Int32", "Bool", "Float32"]


def edged_world(rng, folder, make=rows_to_columns, twice=False, **more):
    """A tree whose floating-point values are edges; Float64 only if MindSpore rounds it once (TWICE is false)."""
    world = make(rng, folder, SHAPES, dict(zip(SHAPES, KINDS)), **more)
    fulls = {}
    for name, value in world.fulls.items():
        plain = value.dtype not in FLOATS or name == "v" or (value.dtype == "Float64" and twice)
        fulls[name] = value if plain else edges(rng, value.dtype, value.shape)
    world.fulls.update(fulls)
    from build import source_files
    world.files = source_files(rng, world.src, world.fulls, [
        ("lr", lambda: random_value(rng, "Float32", ())), ("step", lambda: random_value(rng, "Int64", ()))])
    world.target.files = world.files
    return world


def all_as(rng, folder, dtype):
    """All floating-point types as one of them: bit by bit what Tensor.astype makes, ties and ends included."""
    world = edged_world(rng, folder, twice=FRACTION[dtype] < 23)
    want = save_expected(world, lambda n, v: as_mindspore(v, dtype))

    def check(mnt):
        import mindspore as ms
        for rank, named in want.items():
            loaded = ms.load_checkpoint(os.path.join(mnt, world.target.file_name(rank)))
            assert list(loaded) == [n for n, _ in named]
            for name, value in named:
                assert values.loaded_bytes(loaded[name]) == \
                    (value.dtype, tuple(value.shape), value.data.tobytes()), name
    return world.story(check, dtype=dtype.lower())


@story
def dtype_bfloat16(rng, folder):
    """All floating-point types as bfloat16, bit by bit as Tensor.astype makes it."""
    return all_as(rng, folder, "BFloat16")


@story
def dtype_float16(rng, folder):
    """The same as float16."""
    return all_as(rng, folder, "Float16")


@story
def dtype_float32(rng, folder):
    """The same as float32."""
    return all_as(rng, folder, "Float32")


@story
def dtype_float64(rng, folder):
    """The same as float64."""
    return all_as(rng, folder, "Float64")


@story
def dtype_with_counts_8_to_6(rng, folder):
    """Converted while 8 ranks become 6, which MindSpore refuses."""
    shapes = {"w": (48, 24), "h": (24, 48)}
    src = strategy([(n, s, Layout([8], [0, -1])) for n, s in shapes.items()])
    dst = strategy([(n, s, Layout([6], [-1, 0])) for n, s in shapes.items()])
    world = World(rng, folder, src, dst, {"w": "Float32", "h": "Float16"})
    save_expected(world, lambda n, v: as_mindspore(v, "BFloat16"))
    return world.story(dtype="bfloat16")


@story
def dtype_of_transformed_files(rng, folder):
    """The files of transform_checkpoints, loaded, cast and saved again by MindSpore."""
    import mindspore as ms
    world = rows_to_columns(rng, folder, {"w": (64, 48), "norm.g": (16, 8), "n": (8, 4)},
                            {"w": "Float32", "norm.g": "Float32", "n": "Int32"})
    world.write()
    with oracle.silence():
        ms.transform_checkpoints(world.path("src"), world.path("made"), "checkpoint_",
                                 world.options["src_strategy"], world.options["dst_strategy"])
    for rank in range(2):
        name = world.target.file_name(rank)
        loaded = ms.load_checkpoint(world.path("made", name))
        cast = {n: ms.Parameter(v.astype(ms.float16), name=n) if n == "w" else v
                for n, v in loaded.items()}
        os.makedirs(os.path.dirname(world.path("expected", name)), exist_ok=True)
        ms.save_checkpoint(cast, world.path("expected", name))
    return Story({**world.options, "dtype": "float16;norm.*=keep"}, expected=world.path("expected"))


@story
def dtype_rules(rng, folder):
    """Rules by name; of several that fit the first counts."""
    kinds = {"a.norm.w": "Float16", "a.w": "Float32", "lm_head.w": "Float32", "a.step": "Int32"}
    world = rows_to_columns(rng, folder, {n: (8, 4) for n in kinds}, kinds)
    to = {"a.norm.w": "Float32", "a.w": "BFloat16", "lm_head.w": "Float32", "a.step": "Int32"}
    save_expected(world, lambda n, v: as_mindspore(v, to[n]))
    return world.story(dtype="*.norm.*=float32; lm_head.*=keep; *.step=float16; bfloat16; a.norm.w=F64")


def in_safetensors(rng, folder, dtype):
    """Safetensors, in which the order goes by the new dtypes."""
    world = edged_world(rng, folder, twice=True)
    want = save_expected(world, lambda n, v: as_mindspore(v, dtype), "safetensors")
    world.target.contents = want.get
    loads = None if dtype == "BFloat16" else loads_everywhere(world)  # numpy has no such type
    return world.story(loads, format="safetensors", dtype=dtype.lower())


@story
def dtype_bfloat16_safetensors(rng, folder):
    """bfloat16 in safetensors, against the library."""
    return in_safetensors(rng, folder, "BFloat16")


@story
def dtype_float16_safetensors(rng, folder):
    """float16 in safetensors, loaded by MindSpore and by the library."""
    return in_safetensors(rng, folder, "Float16")


@story
def dtype_huggingface(rng, folder):
    """A HuggingFace view, its names and its dtype from options."""
    from fixed_whole import expect_huggingface
    kinds = {"embed": "Float32", "layer.w": "Float32", "layer.n": "Int8"}
    world = whole(rng, folder, {n: (64, 32) for n in kinds}, kinds)
    names = {"embed": "model.embed_tokens.weight", "layer.w": "model.layers.0.weight", "layer.n": None}
    want = [(names[n], as_mindspore(v, "Float16")) for n, v in world.target.contents(0) if names[n]]
    world.target.contents = lambda rank: want
    assert expect_huggingface(world, 4096) == 2
    write_map(folder, names)
    return world.story(view="huggingface", file_size="4K", dtype="float16",
                       names=world.path("map.json"))


def through_the_mount(rng, folder, dtype, sources, accept):
    """A story that loads what the mount makes of SOURCES (name -> Value) and asks ACCEPT about each."""
    n = {k: v.shape for k, v in sources.items()}
    src = strategy([(k, s, Layout([2], [0])) for k, s in n.items()])
    world = World(rng, folder, src, None, {k: v.dtype for k, v in sources.items()})
    from build import source_files
    world.fulls.update(sources)
    world.files = source_files(rng, src, world.fulls, [])
    world.target.files = world.files

    def check(mnt):
        import mindspore as ms
        loaded = ms.load_checkpoint(os.path.join(mnt, "rank_0", "checkpoint_0.ckpt"))
        for name, value in sources.items():
            kind, shape, content = values.loaded_bytes(loaded[name])
            assert (kind, shape) == (dtype, tuple(value.shape)), (name, kind, shape)
            got = Value(dtype, np.frombuffer(content, values.STORED[dtype]))
            accept(name, value, got)
    return world.story(check, dtype=dtype.lower())


def by_numpy(rng, folder, dtype):
    """numpy's astype, which rounds Float64 once."""
    def accept(name, value, got):
        with np.errstate(all="ignore"):
            want = Value(dtype, value.data.astype(values.STORED[dtype]))
        assert (to_bits(want) == to_bits(got)).all(), name
    sources = [d for d in ("Float32", "Float16", "Float64") if d != dtype]
    return through_the_mount(rng, folder, dtype, {d: edges(rng, d, (20000,)) for d in sources}, accept)


@story
def dtype_float16_by_numpy(rng, folder):
    """float16 as numpy makes it."""
    return by_numpy(rng, folder, "Float16")


@story
def dtype_float32_by_numpy(rng, folder):
    """float32 as numpy makes it."""
    return by_numpy(rng, folder, "Float32")


@story
def dtype_float64_by_numpy(rng, folder):
    """float64 as numpy makes it."""
    return by_numpy(rng, folder, "Float64")


def random_nans(rng, dtype):
    payload = rng.integers(1, 1 << FRACTION[dtype], 512, np.uint64)
    sign = rng.integers(0, 2, 512, np.uint64) << np.uint64(EXPONENT[dtype] + FRACTION[dtype])
    return from_bits(dtype, payload | sign | np.uint64(infinite(dtype)))


def nans_as(rng, folder, dtype):
    """NaNs stay, with their signs and the leading bits of their payloads, but for bfloat16, of which MindSpore and PyTorch
    have one. BFloat16's keep their bits as float32. In MindSpore, a BFloat16 has lost its payload before."""
    def accept(name, value, got):
        bits, out = to_bits(value).astype(np.uint64), to_bits(got).astype(np.uint64)
        shift = FRACTION[dtype] - FRACTION[value.dtype]
        payload = bits & np.uint64((1 << FRACTION[value.dtype]) - 1)
        payload = payload << np.uint64(shift) if shift > 0 else payload >> np.uint64(-shift)
        sign = bits >> np.uint64(EXPONENT[value.dtype] + FRACTION[value.dtype])
        quiet = np.uint64(0 if (value.dtype, dtype) == ("BFloat16", "Float32") else 1 << FRACTION[dtype] - 1)
        want = sign << np.uint64(EXPONENT[dtype] + FRACTION[dtype]) | np.uint64(infinite(dtype)) | quiet | payload
        theirs = to_bits(as_mindspore(value, dtype)).astype(np.uint64)
        if dtype == "BFloat16":
            want = theirs
        assert (out == want).all(), name
        magnitude = theirs & np.uint64((1 << EXPONENT[dtype] + FRACTION[dtype]) - 1)
        assert (magnitude > infinite(dtype)).all(), name
    return through_the_mount(rng, folder, dtype,
                             {d: random_nans(rng, d) for d in FLOATS if d != dtype}, accept)


@story
def dtype_bfloat16_nan(rng, folder):
    """NaNs as bfloat16: one of them all, as in MindSpore."""
    return nans_as(rng, folder, "BFloat16")


@story
def dtype_float16_nan(rng, folder):
    """NaNs as float16; MindSpore keeps their signs only."""
    return nans_as(rng, folder, "Float16")


@story
def dtype_float32_nan(rng, folder):
    """NaNs as float32."""
    return nans_as(rng, folder, "Float32")


@story
def dtype_float64_nan(rng, folder):
    """NaNs as float64."""
    return nans_as(rng, folder, "Float64")


@story
def dtype_float64_rounded_once(rng, folder):
    """Where MindSpore rounds Float64 twice, by way of Float32, and gets the farther neighbour."""
    bits = np.array([0x3ff0100000000001, 0x3ff00fffffffffff, 0x3ff0300000000000 - 1], np.uint64)
    nearest = np.array([0x3f81, 0x3f80, 0x3f81])
    value = from_bits("Float64", np.concatenate([bits, bits | np.uint64(1 << 63)]))
    want = np.concatenate([nearest, nearest | 0x8000])

    def accept(name, value, got):
        assert (to_bits(got) == want).all()
        assert (to_bits(as_mindspore(value, "BFloat16")) != want).any()
    return through_the_mount(rng, folder, "BFloat16", {"w": value}, accept)


def float8(bits, fraction, bias, finite_only):
    sign = -1. if bits & 0x80 else 1.
    e, f = (bits & 0x7f) >> fraction, bits & (1 << fraction) - 1
    top = (1 << 7 - fraction) - 1
    if e == top and (not finite_only or f == (1 << fraction) - 1):
        return sign * np.inf if f == 0 and not finite_only else np.nan
    return sign * (np.ldexp(f, 1 - bias - fraction) if e == 0 else
                   np.ldexp(f + (1 << fraction), e - bias - fraction))


@story
def dtype_from_float8(rng, folder):
    """Both Float8 types, every pattern, as Float32; the file then loads in MindSpore."""
    every = np.arange(256).astype(np.uint8)
    named = [("a", Value("Float8E4M3FN", every)), ("b", Value("Float8E5M2", every))]
    write_library(os.path.join(folder, "src", "model.safetensors"), named)

    def check(mnt):
        import mindspore as ms
        loaded = ms.load_checkpoint(os.path.join(mnt, "rank_0", "checkpoint_0.ckpt"))
        want = {"a": [float8(int(b), 3, 7, True) for b in every],
                "b": [float8(int(b), 2, 15, False) for b in every]}
        for name, numbers in want.items():
            got = loaded[name].asnumpy()
            assert got.dtype == np.float32
            expected = np.array(numbers, np.float32)
            assert ((got == expected) & (np.signbit(got) == np.signbit(expected))
                    | np.isnan(got) & np.isnan(expected)).all(), name
    return Story({"dtype": "float32", "format": "ckpt"}, check=check)


@story
def dtype_unknown(rng, folder):
    """Only floating-point types of 16 bits and more."""
    values.save(os.path.join(folder, "src", "rank_0", "net.ckpt"), [("w", random_value(rng, "Float32", (2,)))])
    return Story({"dtype": "int8"}, refusal="'int8' is not float16, bfloat16, float32, float64 or keep",
                 exit_code=2)


# ---- names ----

def write_map(folder, names):
    path = os.path.join(folder, "map.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(names, f)
    return path


def model_values(rng):
    kinds = {"model.embed_tokens.weight": "Float32", "model.layers.0.mlp.weight": "Float16",
             "model.layers.1.mlp.weight": "Float32", "lm_head.weight": "Float32", "extra": "Float32"}
    return [(n, random_value(rng, d, (8, 4))) for n, d in kinds.items()]


TO_MINDSPORE = {"model.embed_tokens.weight": "embedding.table", "lm_head.weight": "head.w",
                "model.layers.0.mlp.weight": "layers.0.mlp.w", "model.layers.1.mlp.weight": "layers.1.mlp.w"}


@story
def names_of_huggingface(rng, folder):
    """HuggingFace's names to those of a strategy, cut for four ranks, as load_distributed_checkpoint does with a
    name_map. (Its map goes the other way.)"""
    import mindspore as ms
    named = model_values(rng)
    write_library(os.path.join(folder, "src", "model.safetensors"), named)
    dst = strategy([(TO_MINDSPORE[n], (8, 4), Layout([2, 2], [1, 0])) for n, _ in named
                    if n in TO_MINDSPORE])
    dst.write(os.path.join(folder, "dst.ckpt"))
    write_map(folder, {**TO_MINDSPORE, "extra": None})
    for rank in range(4):
        with oracle.silence():
            ms.load_distributed_checkpoint(
                None, predict_strategy=os.path.join(folder, "dst.ckpt"), format="safetensors",
                unified_safetensors_dir=os.path.join(folder, "src"), rank_id=rank, output_format="ckpt",
                dst_safetensors_dir=os.path.join(folder, "out"),
                name_map={new: old for old, new in TO_MINDSPORE.items()})

    def check(path):
        for rank in range(4):
            got = ms.load_checkpoint(os.path.join(path, f"rank_{rank}", f"checkpoint_{rank}.ckpt"))
            want = ms.load_checkpoint(os.path.join(folder, "out", f"rank_{rank}", "net.ckpt"))
            assert {n: values.loaded_bytes(v) for n, v in got.items()} == \
                {n: values.loaded_bytes(v) for n, v in want.items()}, rank
            assert sorted(got) == sorted(TO_MINDSPORE.values())
    return Story({"dst_strategy": os.path.join(folder, "dst.ckpt"), "names": os.path.join(folder, "map.json"),
                  "format": "ckpt"}, check=check)


@story
def names_for_huggingface(rng, folder):
    """MindSpore's names to HuggingFace's, as ckpt_to_safetensors does with a name_map, which goes this way."""
    import mindspore as ms
    names = {new: old for old, new in TO_MINDSPORE.items()}
    world = whole(rng, folder, {n: (8, 4) for n in [*names, "bias"]}, "Float32")
    world.write()
    with oracle.silence():
        ms.transform_checkpoints(world.path("src"), world.path("made"), "checkpoint_",
                                 world.options["src_strategy"], None)
        ms.ckpt_to_safetensors(world.path("made"), world.path("expected"), name_map=names)
    write_map(folder, names)
    return Story({**world.options, "format": "safetensors", "names": world.path("map.json")},
                 expected=world.path("expected"))


@story
def names_swapped(rng, folder):
    """Two that take each other's name, and one that is left out; the destination's layouts are the shown names'."""
    shapes = {"a": (8, 4), "b": (4, 8), "c": (4, 4)}
    src = strategy([(n, s, Layout([2], [0, -1])) for n, s in shapes.items()])
    dst = strategy([("b", (8, 4), Layout([2], [-1, 0])), ("a", (4, 8), Layout([2], [0, -1])),
                    ("c", (4, 4), Layout([2], [0, -1]))])
    world = World(rng, folder, src, dst)
    for rank in range(2):
        named = [("b", Value("Float32", np.split(world.fulls["a"].data, 2, 1)[rank])),
                 ("a", Value("Float32", np.split(world.fulls["b"].data, 2, 0)[rank]))]
        values.save(world.path("expected", f"rank_{rank}", f"checkpoint_{rank}.ckpt"), named)
    write_map(folder, {"a": "b", "b": "a", "c": None})
    return world.story(names=world.path("map.json"))


@story
def names_left_out_of_a_pipeline(rng, folder):
    """All of a stage, and what only its ranks have of the other's; the rest is as transform_checkpoints writes it."""
    import mindspore as ms
    src = strategy([("a", (8, 4), Layout([2], [0, -1])), ("c", (8, 4), Layout([2], [0, -1])),
                    ("b", (8, 4), Layout([2], [-1, 0]), 1)])
    dst = strategy([(n, (8, 4), Layout([2], [-1, 0])) for n in "abc"])
    steps = iter((100, 100, 101, 101))
    world = World(rng, folder, src, dst,
                  extras=[("global_step", lambda: Value("Int32", np.array(next(steps), np.int32)))])
    for rank in (0, 1):
        world.files[rank].append(("only", Value("Int32", np.array([rank, 7], np.int32))))
    world.write()
    with oracle.silence():
        ms.transform_checkpoints(world.path("src"), world.path("made"), "checkpoint_",
                                 world.options["src_strategy"], world.options["dst_strategy"])
    for rank in range(2):
        name = os.path.join(f"rank_{rank}", f"checkpoint_{rank}.ckpt")
        drop_values(world.path("made", name), world.path("expected", name), {"a", "c"})
    write_map(folder, {"a": None, "c": None})
    return Story({**world.options, "names": world.path("map.json")}, expected=world.path("expected"))


def drop_values(source, target, names):
    """The same .ckpt file without these."""
    from mindspore.train.checkpoint_pb2 import Checkpoint
    whole, one = Checkpoint(), Checkpoint()
    with open(source, "rb") as f:
        whole.ParseFromString(f.read())
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as f:
        for value in whole.value:
            one.Clear()
            one.value.add().CopyFrom(value)
            f.write(one.SerializeToString() if value.tag not in names else b"")


@story
def names_of_map_tensors(rng, folder):
    """A map tensor of several messages by another name, and a tensor by the map's, as MindSpore would write them."""
    import mindspore as ms
    named = [("w", random_value(rng, "Float32", (8, 4))), ("maptable", map_of_two(rng, "maptable")),
             ("v", random_value(rng, "Int8", (3,)))]
    values.save(os.path.join(folder, "src", "rank_0", "net.ckpt"), named)
    values.save(os.path.join(folder, "expected", "rank_0", "checkpoint_0.ckpt"),
                [("maptable", named[0][1]), ("x", Value("map", renamed(named[1][1].data, "x"))), named[2]])
    write_map(folder, {"maptable": "x", "w": "maptable"})

    def check(path):
        got = ms.load_checkpoint(os.path.join(path, "rank_0", "checkpoint_0.ckpt"))
        assert sorted(got) == ["maptable", "v", "x"], sorted(got)
    return Story({"names": os.path.join(folder, "map.json")}, expected=os.path.join(folder, "expected"),
                 check=check)


def map_of_two(rng, name):
    return values.map_messages(name, [(rng.integers(0, 99, n).astype(np.int32),
                                       rng.random((n, 4)).astype(np.float32), np.zeros(n, np.int32))
                                      for n in (3, 50)])


def renamed(messages, name):
    """The same messages with another tag, by google's protobuf."""
    from mindspore.train.checkpoint_pb2 import Checkpoint
    whole, one, out = Checkpoint(), Checkpoint(), b""
    whole.ParseFromString(messages)
    for value in whole.value:
        one.Clear()
        one.value.add().CopyFrom(value)
        one.value[0].tag = name
        out += one.SerializeToString()
    return out


@story
def names_of_parts(rng, folder):
    """Names of a HuggingFace directory of several files."""
    named = model_values(rng)[:4]
    write_huggingface(os.path.join(folder, "src"), named)
    shown = {TO_MINDSPORE[n]: v for n, v in named}
    write_map(folder, TO_MINDSPORE)

    def check(path):
        import mindspore as ms
        got = ms.load_checkpoint(os.path.join(path, "rank_0", "checkpoint_0.ckpt"))
        assert {n: values.loaded_bytes(v)[2] for n, v in got.items()} == \
            {n: v.data.tobytes() for n, v in shown.items()}
    return Story({"names": os.path.join(folder, "map.json"), "format": "ckpt"}, check=check)


@story
def names_the_wrong_way(rng, folder):
    """A map from shown names to the source's, as load_distributed_checkpoint takes it: nothing of it applies."""
    write_library(os.path.join(folder, "src", "model.safetensors"), model_values(rng))
    write_map(folder, {new: old for old, new in TO_MINDSPORE.items()})
    return Story({"names": os.path.join(folder, "map.json")},
                 refusal="none of its names is a parameter of the source")


@story
def names_that_nobody_has(rng, folder):
    """Names that are no parameters of the source."""
    values.save(os.path.join(folder, "src", "rank_0", "net.ckpt"), [("w", random_value(rng, "Int8", (2,)))])
    write_map(folder, {"w": "v", "x": "y"})
    return Story({"names": os.path.join(folder, "map.json")}, check=lambda path: None,
                 says=("1 of its names are not parameters of the source: x",))


@story
def names_for_two(rng, folder):
    """A parameter that the map gives the name of another one."""
    named = [("w", random_value(rng, "Int8", (2,))), ("v", random_value(rng, "Int8", (2,)))]
    values.save(os.path.join(folder, "src", "rank_0", "net.ckpt"), named)
    write_map(folder, {"w": "v"})
    return Story({"names": os.path.join(folder, "map.json")}, refusal="would both be shown as 'v'")


@story
def names_given_twice(rng, folder):
    """A map that shows two parameters by one name."""
    values.save(os.path.join(folder, "src", "rank_0", "net.ckpt"), [("w", random_value(rng, "Int8", (2,)))])
    write_map(folder, {"w": "v", "x": "v"})
    return Story({"names": os.path.join(folder, "map.json")},
                 refusal="another parameter is shown by the same name")
