# SPDX-License-Identifier: Apache-2.0
"""Looking into files of torch.save by means of our own, and Python's zipfile."""
import io
import zipfile
import zlib

import hfai
import torch


class Archive:
    def __init__(self, path):
        self.path = path
        with zipfile.ZipFile(path) as z:
            self.entries = {i.filename: i for i in z.infolist()}
        self.prefix = next(iter(self.entries)).split("/")[0]

    def read(self, name):
        """An entry's bytes, whatever its checksum is."""
        info = self.entries[f"{self.prefix}/{name}"]
        with open(self.path, "rb") as f:
            f.seek(info.header_offset)
            head = f.read(30)
            assert head[:4] == b"PK\3\4", "no local header"
            f.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), 1)
            return f.read(info.file_size)

    def checksums(self):
        """name -> (as the directory says, as it is)"""
        return {n[len(self.prefix) + 1:]: (i.CRC, zlib.crc32(self.read(n[len(self.prefix) + 1:])))
                for n, i in self.entries.items()}


def saved(value):
    """The pickle that torch.save writes."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    with zipfile.ZipFile(buffer) as z:
        return z.read("archive/data.pkl")


def repickled(path):
    """The pickle that torch.save writes of what torch.load reads in a file."""
    return saved(hfai.torch_load(path))
