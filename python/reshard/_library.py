# SPDX-License-Identifier: Apache-2.0
"""The C interface of libreshard (include/reshard.h), as ctypes has it. Calls let other threads of Python run."""
from __future__ import annotations

import ctypes
import ctypes.util
import errno
import functools
import os
import re
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_int, c_int64, c_size_t, c_ssize_t,
                    c_uint32, c_uint64, c_void_p)
from typing import Any, Optional

ROOT = 1
SONAME = "libreshard.so.1"
LogFunction = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
ProgressFunction = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)


class CError(Structure):
    _fields_ = [("struct_size", c_size_t), ("code", c_int), ("usage", c_int), ("message", c_char * 2048)]


class COption(Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class CConfig(Structure):
    _fields_ = [("struct_size", c_size_t), ("options", c_char_p), ("log", LogFunction), ("log_ctx", c_void_p),
                ("progress", c_void_p), ("progress_ctx", c_void_p), ("for_others", c_bool),
                ("pairs", POINTER(COption)), ("pair_count", c_size_t)]


class CTimespec(Structure):
    _fields_ = [("seconds", c_int64), ("nanoseconds", c_int64)]


class CStat(Structure):
    _fields_ = [("struct_size", c_size_t), ("id", c_uint64), ("mode", c_uint32), ("nlink", c_uint32),
                ("uid", c_uint32), ("gid", c_uint32), ("size", c_uint64), ("mtime", CTimespec), ("mapped", c_bool)]


class CDirent(Structure):
    _fields_ = [("struct_size", c_size_t), ("id", c_uint64), ("is_dir", c_bool), ("name", c_char_p)]


class CTensor(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("dtype", c_char_p), ("bytes", c_uint64),
                ("ndim", c_uint32), ("shape", c_uint64 * 16)]


class CLoad(Structure):
    _fields_ = [("tensor", c_size_t), ("begin", POINTER(c_uint64)), ("end", POINTER(c_uint64)), ("to", c_void_p)]


class CSummary(Structure):
    _fields_ = [("struct_size", c_size_t), ("source_ranks", c_uint32), ("source_stages", c_uint32),
                ("target_ranks", c_uint32), ("target_stages", c_uint32), ("parameters", c_uint64),
                ("entries", c_uint64), ("mapped", c_bool)]


COUNTERS = ("reads", "bytes_replied", "source_reads", "source_bytes", "source_opens", "ranks_indexed",
            "ranks_predicted", "index_bytes", "cache_budget", "cache_bytes", "cache_hits", "cache_misses",
            "cache_evictions", "read_ahead_pieces", "bytes_asked", "reads_failed", "source_errors",
            "decrypted_blocks", "cache_inserts", "cache_regrets", "read_ahead_unread", "latency_sum")


class CStatistics(Structure):
    _fields_ = [("struct_size", c_size_t), *((name, c_uint64) for name in COUNTERS)]


class ReshardError(OSError):
    """What could not be opened or read. Its text names the file, the parameter and what to do.

    It is also a FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError or InterruptedError where
    the errno is one of these. usage: whether the options are at fault, rather than the files.
    """

    usage: bool = False


class ReshardFileNotFoundError(ReshardError, FileNotFoundError):
    pass


class ReshardNotADirectoryError(ReshardError, NotADirectoryError):
    pass


class ReshardIsADirectoryError(ReshardError, IsADirectoryError):
    pass


class ReshardPermissionError(ReshardError, PermissionError):
    pass


class ReshardInterruptedError(ReshardError, InterruptedError):
    pass


_KINDS: dict[int, type[ReshardError]] = {
    errno.ENOENT: ReshardFileNotFoundError, errno.ENOTDIR: ReshardNotADirectoryError,
    errno.EISDIR: ReshardIsADirectoryError, errno.EACCES: ReshardPermissionError,
    errno.EPERM: ReshardPermissionError, errno.EINTR: ReshardInterruptedError}


def _keyword(match: "re.Match[str]") -> str:
    """cache=1G, strict=True for the words after -o: cache=1G,strict"""
    return ", ".join(word if "=" in word else f"{word}=True" for word in match[1].split(","))


def as_keywords(text: str) -> str:
    """A message whose remedy names keywords of View, where the library's has options of `reshardfs -o`."""
    problem, found, remedy = text.rpartition("; try: ")
    return problem + found + re.sub(r"-o ([a-z_]+(?:=[^\s,;]*)?(?:,[a-z_]+=[^\s,;]*)*)", _keyword, remedy) if found else text


def error(code: int, text: Optional[str] = None, path: Optional[str] = None, usage: bool = False) -> ReshardError:
    """The exception for -errno."""
    made = _KINDS.get(-code, ReshardError)(-code, as_keywords(text or os.strerror(-code)), *([path] if path else []))
    made.usage = usage
    return made


# name: (what it returns, its arguments)
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "reshard_open": (c_int, [c_char_p, POINTER(CConfig), POINTER(c_void_p), POINTER(CError)]),
    "reshard_close": (None, [c_void_p]),
    "reshard_lookup": (c_int, [c_void_p, c_uint64, c_char_p, POINTER(c_uint64)]),
    "reshard_list": (c_int, [c_void_p, c_uint64, c_uint64, POINTER(CDirent)]),
    "reshard_getattr": (c_int, [c_void_p, c_uint64, POINTER(CStat), POINTER(CError)]),
    "reshard_reader_open": (c_int, [c_void_p, c_uint64, POINTER(c_void_p)]),
    "reshard_reader_close": (None, [c_void_p]),
    "reshard_reader_pread": (c_ssize_t, [c_void_p, c_void_p, c_size_t, c_uint64]),
    "reshard_tensors_open": (c_int, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(CError)]),
    "reshard_tensors_close": (None, [c_void_p]),
    "reshard_tensors_count": (c_size_t, [c_void_p]),
    "reshard_tensors_get": (c_int, [c_void_p, c_size_t, POINTER(CTensor)]),
    "reshard_tensors_load": (c_int, [c_void_p, POINTER(CLoad), c_size_t, ProgressFunction, c_void_p, POINTER(CError)]),
    "reshard_cancel_new": (c_int, [c_void_p, POINTER(c_void_p)]),
    "reshard_cancel_free": (None, [c_void_p]),
    "reshard_cancel_use": (None, [c_void_p]),
    "reshard_cancel_set": (None, [c_void_p, c_bool]),
    "reshard_summarize": (None, [c_void_p, POINTER(CSummary)]),
    "reshard_get_statistics": (None, [c_void_p, POINTER(CStatistics)]),
    "reshard_version": (c_char_p, []),
    "reshard_features": (c_char_p, []),
}


def load(path: str) -> Any:
    library = ctypes.CDLL(path, use_errno=False)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@functools.lru_cache(maxsize=None)
def library() -> Any:
    """The library, loaded once. ImportError if there is none."""
    given = os.environ.get("RESHARD_LIBRARY")
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)
    tried: list[str] = []
    if given:
        paths = [given]
    elif os.path.exists(inside):
        paths = [inside]
    else:
        paths = [SONAME, ctypes.util.find_library("reshard") or "libreshard.so"]
    for path in paths:
        try:
            return load(path)
        except (OSError, AttributeError) as why:
            tried.append(str(why))
    raise ImportError(f"libreshard cannot be loaded: {'; '.join(tried)}; try: make install; or install the wheel of "
                      "scripts/package wheel, which carries it; or scripts/quickstart, and then pip install ./python "
                      f"again; or RESHARD_LIBRARY=/path/to/{SONAME}")


def library_version() -> str:
    """Of the library, such as "1.0.0"."""
    return str(library().reshard_version().decode())


def features() -> str:
    """What the library reads and shows, in words."""
    return str(library().reshard_features().decode())
