# SPDX-License-Identifier: Apache-2.0
"""Files of safetensors by the format alone: the library does not know every dtype."""
import json


def entries(path):
    """[(name, dtype as the format calls it, shape, bytes)]"""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    begin = 8 + int.from_bytes(data[:8], "little")
    return [(name, entry["dtype"], entry["shape"], data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]])
            for name, entry in json.loads(data[8:begin]).items() if name != "__metadata__"]


def write(path, named, **metadata):
    """NAMED: [(name, dtype, shape, bytes)]"""
    header, at = {"__metadata__": {"format": "pt", **metadata}}, 0
    for name, dtype, shape, data in named:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for *_, data in named:
            file.write(data)
