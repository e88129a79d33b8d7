# SPDX-License-Identifier: Apache-2.0
"""Stories of encrypted checkpoints, written by the real save_checkpoint(enc_key=…, enc_mode=…)."""
import os
import struct

import oracle
import values
from fixed_layouts import build, matmuls, strategy
from layouts import Layout
from registry import story
from story import Story
from values import random_value

BLOCK = 64 << 20


def save(path, named, key, mode, **how):
    import mindspore as ms
    os.makedirs(os.path.dirname(path), exist_ok=True)
    ms.save_checkpoint({name: values.to_mindspore(name, value) for name, value in named}, path,
                       enc_key=key, enc_mode=mode, **how)


def write(case, folder, key, mode, **how):
    """The case's checkpoints, encrypted, in src; in expected what transform_checkpoints makes of what
    load_checkpoint decrypts. Returns the options."""
    import mindspore as ms
    options = {"key_file": os.path.join(folder, "key")}
    with open(os.open(options["key_file"], os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
        f.write(key + b"\n")
    for side, plan in (("src", case.src), ("dst", case.dst)):
        if plan:
            options[f"{side}_strategy"] = os.path.join(folder, f"{side}.ckpt")
            plan.write(options[f"{side}_strategy"])
    plain = os.path.join(folder, "plain")
    for rank, named in case.files.items():
        path = os.path.join(folder, "src", f"rank_{rank}", f"net_{rank}.ckpt")
        save(path, named, key, mode, **how)
        if how:  # MindSpore cannot load what it wrote
            values.save(os.path.join(plain, f"rank_{rank}", "net.ckpt"), named)
            continue
        os.makedirs(os.path.join(plain, f"rank_{rank}"))
        ms.save_checkpoint(ms.load_checkpoint(path, dec_key=key, dec_mode=mode),
                           os.path.join(plain, f"rank_{rank}", "net.ckpt"))
    made = oracle.transform(plain, os.path.join(folder, "expected"), options.get("src_strategy"),
                            options.get("dst_strategy"), "checkpoint_")
    if isinstance(made, Exception):
        raise made
    return options


def of_mode(mode, key_bytes):
    def tell(rng, folder):
        case = matmuls(rng, 4, 2, "transform")
        options = write(case, folder, rng.bytes(key_bytes), mode)
        if mode != "AES-GCM":
            options["key_mode"] = mode
        says = () if mode == "AES-GCM" else ("which does not detect changes",)
        return Story(options, expected=os.path.join(folder, "expected"), says=says,
                     check=lambda mnt: load_all(mnt, case))

    tell.__name__ = f"encrypted_{mode.lower().replace('-', '_')}_{key_bytes}"
    tell.__doc__ = f"{mode} with a key of {key_bytes} bytes."
    return story(tell)


def load_all(mnt, case):
    import mindspore as ms
    for rank in range(case.dst.ranks):
        path = os.path.join(mnt, f"rank_{rank}", f"checkpoint_{rank}.ckpt")
        assert ms.load_checkpoint(path), path
        assert os.stat(path).st_mode & 0o777 == 0o400, path


for _mode in ("AES-GCM", "AES-CBC"):
    for _bytes in (16, 24, 32):
        of_mode(_mode, _bytes)
of_mode("SM4-CBC", 16)


@story
def encrypted_over_64_mib(rng, folder):
    """A file of two blocks, its tensors over the border, with a cache that holds one."""
    src = strategy([("w", (2, 9 << 20), Layout([2], [0, -1])), ("b", (64,), Layout([2], [0]))])
    dst = strategy([("w", (2, 9 << 20), Layout([2], [-1, 0])), ("b", (64,), Layout([2], [-1]))])
    case = build(rng, src, dst, dtypes="Int64", expect="transform")
    options = write(case, folder, rng.bytes(32), "AES-GCM")
    path = os.path.join(folder, "src", "rank_0", "net_0.ckpt")
    assert os.path.getsize(path) > BLOCK + 48
    with open(path, "rb") as f:  # MindSpore's blocks are what we think they are
        head = f.read(48)
        f.seek(48 + BLOCK)
        assert head[:4] == f.read(4) == struct.pack("<I", 0x7F3A5ED8)
    assert struct.unpack("<i", head[44:]) == (BLOCK,)
    return Story(options | {"cache": "80M"}, expected=os.path.join(folder, "expected"))


@story
def encrypted_with_a_trailer(rng, folder):
    """crc_check=True with a key: a trailer that nothing was summed up for, and that load_checkpoint refuses."""
    import mindspore as ms
    key = rng.bytes(16)
    options = write(matmuls(rng, 4, 2, "transform"), folder, key, "AES-CBC", crc_check=True)
    path = os.path.join(folder, "src", "rank_0", "net_0.ckpt")
    with open(path, "rb") as f:
        assert f.read()[-17:] == b"crc_num" + bytes(10)
    try:
        ms.load_checkpoint(path, dec_key=key, dec_mode="AES-CBC")
    except ValueError:
        pass
    else:
        raise AssertionError("MindSpore loads it after all: SEMANTICS.md says otherwise")
    return Story(options, expected=os.path.join(folder, "expected"))


@story
def encrypted_to_safetensors(rng, folder):
    """Another format on the way out; the key from the environment."""
    key = bytes(rng.integers(0x21, 0x7F, 32, dtype="uint8"))
    case = matmuls(rng, 4, 2, "transform")
    options = write(case, folder, key, "AES-GCM")
    del options["key_file"]

    def check(mnt):
        import mindspore as ms
        for rank in range(2):
            got = ms.load_checkpoint(os.path.join(mnt, f"rank_{rank}", f"checkpoint_{rank}.safetensors"),
                                     format="safetensors")
            want = ms.load_checkpoint(os.path.join(folder, "expected", f"rank_{rank}",
                                                   f"checkpoint_{rank}.ckpt"))
            assert sorted(got) == sorted(want)
            for name in want:
                assert values.loaded_bytes(got[name]) == values.loaded_bytes(want[name]), name

    return Story(options | {"format": "safetensors", "key_env": "INTEROP_KEY"}, check=check,
                 env={"INTEROP_KEY": key.decode()})


@story
def encrypted_wrong_key(rng, folder):
    """A key that the files were not saved with."""
    options = write(matmuls(rng, 4, 2, "transform"), folder, rng.bytes(24), "AES-GCM")
    with open(options["key_file"], "wb") as f:
        f.write(rng.bytes(24))
    return Story(options, refusal="fails its AES-GCM check: the key is wrong, or the file was changed")


@story
def encrypted_no_key(rng, folder):
    """No key at all."""
    options = write(matmuls(rng, 4, 2, "transform"), folder, rng.bytes(16), "SM4-CBC")
    del options["key_file"]
    return Story(options, refusal="the file is encrypted (SM4-CBC), and there is no key; try: -o key_file=FILE")


@story
def encrypted_key_too_short(rng, folder):
    """15 bytes, with which save_checkpoint does not encrypt either."""
    try:
        save(os.path.join(folder, "try", "x.ckpt"), [("w", random_value(rng, "Int8", (3,)))], b"x" * 15, "AES-GCM")
    except Exception:  # noqa: BLE001 - whatever it raises
        pass
    else:
        raise AssertionError("MindSpore takes a key of 15 bytes")
    options = write(matmuls(rng, 4, 2, "transform"), folder, rng.bytes(16), "AES-GCM")
    with open(options["key_file"], "wb") as f:
        f.write(b"x" * 15)
    return Story(options, refusal="the key has 15 bytes", exit_code=2)


@story
def encrypted_in_part(rng, folder):
    """One rank's file is plain."""
    options = write(matmuls(rng, 4, 2, "transform"), folder, rng.bytes(16), "AES-GCM")
    path = os.path.join(folder, "src", "rank_2", "net_2.ckpt")
    os.remove(path)
    with open(os.path.join(folder, "plain", "rank_2", "net.ckpt"), "rb") as f:
        content = f.read()
    with open(path, "wb") as f:
        f.write(content)
    return Story(options, refusal="the file is not encrypted, but a key is given")
