# SPDX-License-Identifier: Apache-2.0
"""Views and their files."""
from __future__ import annotations

import atexit
import ctypes
import errno
import functools
import io
import logging
import os
import stat
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from . import _library as c
from ._gate import Gate, aside

if TYPE_CHECKING:
    from .tensors import Tensors

Option = Union[str, int, float, bool, None, "os.PathLike[str]", "list[Any]", "tuple[Any, ...]"]
BUFFER = 1 << 20  # what is made at a time, bytes

_log = logging.getLogger("reshard")
_levels = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


def _receive(context: Optional[int], level: int, line: bytes) -> None:
    aside(lambda: _log.log(_levels[level] if 0 <= level < len(_levels) else logging.ERROR, "%s",
                           c.as_keywords(line.decode("utf-8", "replace"))))


_receiver = c.LogFunction(_receive)  # the library's own threads call it until their view is closed
_open_views: "weakref.WeakSet[View]" = weakref.WeakSet()


@atexit.register
def _close_views() -> None:
    for view in list(_open_views):
        view.close()


class Stat(NamedTuple):
    """Attributes of a file or folder, as os.stat names them."""

    st_mode: int
    st_ino: int
    st_nlink: int
    st_uid: int
    st_gid: int
    st_size: int
    st_mtime_ns: int

    @property
    def st_mtime(self) -> float:
        """Seconds."""
        return self.st_mtime_ns / 1e9


class Entry(NamedTuple):
    """What is in a folder."""

    name: str
    is_dir: bool


class Summary(NamedTuple):
    """What a view is; parameters are those that the strategies name."""

    source_ranks: int
    source_stages: int
    target_ranks: int
    target_stages: int
    parameters: int
    entries: int
    mapped: bool


def _text(name: str, value: Any) -> Optional[bytes]:
    """The value of an option; None for a switch."""
    if value is True:
        return None
    if isinstance(value, (list, tuple)):
        value = ":".join(os.fspath(part) for part in value)
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if "\0" in text:
        raise ValueError(f"option {name} holds a NUL")
    return os.fsencode(text)


def _open_anew(source: str, options: "dict[str, Option]") -> "View":
    """The view that another process has pickled."""
    return View(source, **options)


class View:
    """A checkpoint, cut for another strategy. To be closed; best in a with statement.

    source is the folder or file that was saved, options those of `reshardfs -o`: View("src", src_strategy="a.ckpt",
    dst_strategy="b.ckpt", cache="2G", strict=True). Raises ReshardError when they do not fit. Paths within are
    written with '/', from the top of the view.

    All methods may be called from several threads at once. Closing waits for the calls that go on, and closes the
    files that are open; a function that such a call runs may close the view, which is freed when the call ends. A view
    that is pickled is its source and its options: the process that loads it opens it anew.
    """

    def __init__(self, source: Union[str, "os.PathLike[str]"], **options: Option) -> None:
        self._library = c.library()
        self._gate = Gate("view", self._library.reshard_close)
        self.source = os.fspath(source)
        self.options = {name: value for name, value in options.items() if value is not None and value is not False}
        pairs = (c.COption * len(self.options))(*(c.COption(os.fsencode(name), _text(name, value))
                                                  for name, value in self.options.items()))
        config = c.CConfig(ctypes.sizeof(c.CConfig), None, _receiver, pairs=pairs, pair_count=len(pairs))
        why = c.CError(ctypes.sizeof(c.CError))
        code = self._library.reshard_open(os.fsencode(self.source), ctypes.byref(config), ctypes.byref(self._gate.out),
                                          ctypes.byref(why))
        if code:
            raise c.error(code, why.message.decode("utf-8", "replace"), usage=bool(why.usage))
        _open_views.add(self)

    # ---- its life

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_gate"):
            self.close()

    def __reduce__(self) -> "tuple[Any, ...]":
        if self.closed:
            raise ValueError("the view is closed")
        if "key_fd" in self.options:
            raise TypeError("a view with key_fd= cannot be pickled: another process has no such descriptor; "
                            "try: key_file=FILE")
        return _open_anew, (self.source, self.options)

    def __repr__(self) -> str:
        return f"<reshard.View {self.source!r} {self.options!r}{' closed' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._gate.closed

    def close(self) -> None:
        """Closes the files that are open, and frees the view. Does nothing the second time."""
        self._gate.close()

    # ---- what is in it

    def _find(self, view: int, path: str) -> int:
        number = ctypes.c_uint64(c.ROOT)
        for name in path.split("/"):
            if name in ("", "."):
                continue
            code = self._library.reshard_lookup(view, number, os.fsencode(name), ctypes.byref(number))
            if code:
                raise c.error(code, path=path)
        return number.value

    def stat(self, path: str) -> Stat:
        """Attributes; of a file, the headers of the sources that it needs are read at the first call."""
        got, why = c.CStat(ctypes.sizeof(c.CStat)), c.CError(ctypes.sizeof(c.CError))
        code = self._gate.use(lambda view: self._library.reshard_getattr(view, self._find(view, path), ctypes.byref(got),
                                                                         ctypes.byref(why)))
        if code:
            raise c.error(code, why.message.decode("utf-8", "replace"), path)
        return Stat(got.mode, got.id, got.nlink, got.uid, got.gid, got.size,
                    got.mtime.seconds * 10**9 + got.mtime.nanoseconds)

    def scandir(self, path: str = "/") -> Iterator[Entry]:
        """The entries of a folder, in the view's order; no source is opened."""
        position = 0
        while True:
            found = self._gate.use(lambda view, at=position: self._entry(view, path, at))  # type: ignore[misc]
            if not found:
                return
            yield found
            position += 1

    def _entry(self, view: int, path: str, position: int) -> Optional[Entry]:
        entry = c.CDirent(ctypes.sizeof(c.CDirent))
        code = self._library.reshard_list(view, self._find(view, path), position, ctypes.byref(entry))
        if code < 0:
            raise c.error(code, path=path)
        return Entry(os.fsdecode(entry.name), entry.is_dir) if code == 1 else None

    def listdir(self, path: str = "/") -> list[str]:
        """The names in a folder."""
        return [entry.name for entry in self.scandir(path)]

    def walk(self, path: str = "/") -> Iterator[str]:
        """The paths of all files in a folder and below, without a '/' in front."""
        for entry in self.scandir(path):
            below = f"{path.strip('/')}/{entry.name}".lstrip("/")
            if entry.is_dir:
                yield from self.walk(below)
            else:
                yield below

    def isdir(self, path: str) -> bool:
        """Whether there is such a folder."""
        try:
            return stat.S_ISDIR(self.stat(path).st_mode)
        except OSError:
            return False

    def exists(self, path: str) -> bool:
        """Whether there is such an entry; it may be one that cannot be read."""
        try:
            self._gate.use(lambda view: self._find(view, path))
        except OSError as why:
            if why.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            return False
        return True

    def open(self, path: str) -> "File":
        """A file of it, for reading bytes."""
        return open(self, path)

    # ---- its tensors

    def tensors(self, rank: Optional[int] = None, folder: Optional[str] = None) -> "Tensors":
        """The tensors of a destination rank, or whole ones: a mapping from names to Tensor, none of them read yet.

        folder names a list of several saves, such as 1_100/full. Reads the headers that the rank needs.
        """
        self._gate.check_process()  # an import may wait for a lock
        from .tensors import Tensors

        return Tensors(self, folder if folder is not None else "full" if rank is None else f"rank_{rank}")

    def load(self, rank: Optional[int] = None, framework: str = "numpy", names: Union[str, Sequence[str], None] = None,
             into: Optional[Mapping[str, Any]] = None, progress: Optional[Callable[[int, int], None]] = None) -> Any:
        """All tensors of a rank, or whole ones, in a dict in the order of its file.

        framework is numpy, torch or mindspore: arrays, tensors, or what mindspore.load_checkpoint returns. names is a
        pattern such as model.*, or several. into is a dict of arrays of that framework, such as a model's
        state_dict(): each is filled in place with the tensor of its name, after all shapes and types were compared; it
        is returned. progress(done, total) is called with bytes. Ctrl-C ends a load.
        """
        tensors = self.tensors(rank)
        try:
            return tensors.load(framework, names, into, progress)
        finally:
            tensors.close()

    def summary(self) -> Summary:
        """Counts of ranks, stages and parameters; reads nothing."""
        got = c.CSummary(ctypes.sizeof(c.CSummary))
        self._gate.use(lambda view: self._library.reshard_summarize(view, ctypes.byref(got)))
        return Summary(*(getattr(got, name) for name in Summary._fields))

    def statistics(self) -> dict[str, int]:
        """Counters since it was opened: reads, bytes_replied, source_bytes, cache_hits, …"""
        got = c.CStatistics(ctypes.sizeof(c.CStatistics))
        self._gate.use(lambda view: self._library.reshard_get_statistics(view, ctypes.byref(got)))
        return {name: getattr(got, name) for name in c.COUNTERS}


class RawFile(io.RawIOBase):
    """A file of a view, unbuffered. Reading at a position of its own is safe from several threads."""

    def __init__(self, view: View, path: str) -> None:
        super().__init__()
        self.name = path
        self.mode = "rb"
        self._at = 0
        self._lock = threading.RLock()  # a signal handler may read, too
        self._library = view._library
        self._owner = view  # which must live as long
        self._size = view.stat(path).st_size
        self._gate = Gate("file", view._library.reshard_reader_close, view._gate)
        code = view._gate.use(lambda pointer: view._library.reshard_reader_open(pointer, view._find(pointer, path),
                                                                                ctypes.byref(self._gate.out)))
        if code:
            raise c.error(code, path=path)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or its view."""
        return super().closed or (hasattr(self, "_gate") and self._gate.closed)

    def close(self) -> None:
        if hasattr(self, "_gate"):
            self._gate.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._gate.check_process()
        with self._lock:
            start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}.get(whence)
            if start is None or start + offset < 0:
                raise ValueError(f"cannot seek to {offset} from {whence}")
            self._at = start + offset
            return self._at

    def _read_into(self, buffer: Any, offset: int) -> int:
        view = memoryview(buffer).cast("B")
        if not view.nbytes:
            return 0
        address = ctypes.addressof((ctypes.c_char * view.nbytes).from_buffer(view))
        got = int(self._gate.use(lambda reader: self._library.reshard_reader_pread(reader, address, view.nbytes, offset)))
        if got < 0:
            raise c.error(got, path=self.name)
        return got

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer from the position on; the number of bytes."""
        self._gate.check_process()
        with self._lock:
            got = self._read_into(buffer, self._at)
            self._at += got
            return got

    def pread(self, size: int, offset: int) -> bytes:
        """Up to size bytes at offset; the position stays."""
        if size < 0 or offset < 0:
            raise ValueError("size and offset are not negative")
        data = bytearray(max(0, min(size, self._size - offset)))
        return bytes(memoryview(data)[:self._read_into(data, offset)])

    def readall(self) -> bytes:
        self._gate.check_process()
        with self._lock:
            data = self.pread(self._size, self._at)
            self._at += len(data)
            return data


class File(io.BufferedReader):
    """A file of a view, for reading bytes; raw is the RawFile under it."""

    raw: RawFile

    def pread(self, size: int, offset: int) -> bytes:
        """As RawFile.pread."""
        return self.raw.pread(size, offset)

    def close(self) -> None:
        if self.raw._gate.foreign:  # the other one flushes, by the lock
            self.raw.close()
        else:
            super().close()


def _checked(name: str) -> Callable[..., Any]:
    """A method of io.BufferedReader that asks first whose process it is in: in a forked one, a thread that it lacks may have
    the reader's lock."""
    inherited = getattr(io.BufferedReader, name)

    @functools.wraps(inherited)
    def method(self: File, *arguments: Any) -> Any:
        self.raw._gate.check_process()
        return inherited(self, *arguments)

    method.__doc__ = inherited.__doc__ or f"As io.BufferedReader.{name}."
    return method


for _name in ("__next__", "detach", "flush", "peek", "read", "read1", "readinto", "readinto1", "readline", "readlines", "seek",
              "tell", "truncate"):
    setattr(File, _name, _checked(_name))


def open(view: View, path: str) -> File:
    """A file of a view, buffered. Opening it reads the headers of its sources."""
    return File(RawFile(view, path), BUFFER)
