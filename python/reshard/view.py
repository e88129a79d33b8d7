# SPDX-License-Identifier: Apache-2.0
"""Views and their files."""
from __future__ import annotations

import atexit
import ctypes
import errno
import io
import logging
import os
import stat
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from . import _library as c

if TYPE_CHECKING:
    from .tensors import Tensors

Option = Union[str, int, float, bool, None, "os.PathLike[str]", "list[Any]", "tuple[Any, ...]"]
BUFFER = 1 << 20  # what is made at a time, bytes

_log = logging.getLogger("reshard")
_levels = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


def _receive(context: Optional[int], level: int, line: bytes) -> None:
    _log.log(_levels[level] if 0 <= level < len(_levels) else logging.ERROR, "%s",
             c.as_keywords(line.decode("utf-8", "replace")))


_receiver = c.LogFunction(_receive)  # the library's own threads call it until their view is closed
_open_views: "weakref.WeakSet[View]" = weakref.WeakSet()


@atexit.register
def _close_views() -> None:
    for view in list(_open_views):
        view.close()


class _Gate:
    """A pointer of the library, with those who use it counted, so that it is freed when nobody does."""

    def __init__(self, pointer: Optional[int], what: str, release: Optional[Callable[[int], Any]] = None) -> None:
        self._pointer, self._what, self._release = pointer, what, release
        self._process = os.getpid()
        self._free = threading.Condition()
        self._users = 0

    @property
    def closed(self) -> bool:
        return self._pointer is None

    def __enter__(self) -> int:
        with self._free:
            if self._pointer is None:
                raise ValueError(f"the {self._what} is closed")
            if self._process != os.getpid():  # its threads are not in this one
                raise RuntimeError(f"the {self._what} belongs to the process that this one was forked from; try: open it "
                                   "here")
            self._users += 1
            return self._pointer

    def __exit__(self, *exception: Any) -> None:
        with self._free:
            self._users -= 1
            self._free.notify_all()

    def shut(self) -> Optional[int]:
        """Waits for the users, lets no others in, and returns the pointer, if it is this process's; once."""
        if self._process != os.getpid():
            return None
        with self._free:
            pointer, self._pointer = self._pointer, None
            while pointer is not None and self._users:
                self._free.wait()
        return pointer

    def free(self, pointer: Optional[int]) -> None:
        """Frees what shut returned."""
        if pointer is not None and self._release is not None:
            self._release(pointer)

    def close(self) -> None:
        """Waits for the users, and frees what it points to."""
        self.free(self.shut())


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


def _in_wheel(rules: Any) -> Any:
    """A wheel with the library has the conversion rules beside it; any other library knows their folder."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "convert", f"{rules}.rules")
    return path if isinstance(rules, str) and "/" not in rules and os.path.exists(path) else rules


def _open_anew(source: str, options: "dict[str, Option]") -> "View":
    """The view that another process has pickled."""
    return View(source, **options)


class View:
    """A checkpoint, cut for another strategy. To be closed; best in a with statement.

    source is the folder or file that was saved, options those of `reshardfs -o`: View("src", src_strategy="a.ckpt",
    dst_strategy="b.ckpt", cache="2G", strict=True). Raises ReshardError when they do not fit. Paths within are
    written with '/', from the top of the view.

    All methods may be called from several threads at once. Closing waits for the reads that go on, and closes the
    files that are open. A view that is pickled is its source and its options: the process that loads it opens it anew.
    """

    def __init__(self, source: Union[str, "os.PathLike[str]"], **options: Option) -> None:
        self._gate = _Gate(None, "view")
        self._files: "weakref.WeakSet[Any]" = weakref.WeakSet()  # files and lists of tensors
        self._gates: set[_Gate] = set()  # theirs: the garbage collector may take those with the view, in any order
        self._library = c.library()
        self.source = os.fspath(source)
        self.options = {name: value for name, value in options.items() if value is not None and value is not False}
        if "convert" in self.options:
            self.options["convert"] = _in_wheel(self.options["convert"])
        pairs = (c.COption * len(self.options))(*(c.COption(os.fsencode(name), _text(name, value))
                                                  for name, value in self.options.items()))
        config = c.CConfig(ctypes.sizeof(c.CConfig), None, _receiver, pairs=pairs, pair_count=len(pairs))
        why = c.CError(ctypes.sizeof(c.CError))
        out = ctypes.c_void_p()
        code = self._library.reshard_open(os.fsencode(self.source), ctypes.byref(config), ctypes.byref(out),
                                          ctypes.byref(why))
        if code:
            raise c.error(code, why.message.decode("utf-8", "replace"), usage=bool(why.usage))
        self._gate = _Gate(out.value, "view", self._library.reshard_close)
        _open_views.add(self)

    # ---- its life

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_files"):
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
        pointer = self._gate.shut()  # first, as another thread may be opening a file
        for file in [*self._files, *self._gates]:
            file.close()
        self._gates.clear()
        self._gate.free(pointer)

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
        with self._gate as view:
            code = self._library.reshard_getattr(view, self._find(view, path), ctypes.byref(got), ctypes.byref(why))
        if code:
            raise c.error(code, why.message.decode("utf-8", "replace"), path)
        return Stat(got.mode, got.id, got.nlink, got.uid, got.gid, got.size,
                    got.mtime.seconds * 10**9 + got.mtime.nanoseconds)

    def scandir(self, path: str = "/") -> Iterator[Entry]:
        """The entries of a folder, in the view's order; no source is opened."""
        position = 0
        entry = c.CDirent(ctypes.sizeof(c.CDirent))
        while True:
            with self._gate as view:
                code = self._library.reshard_list(view, self._find(view, path), position, ctypes.byref(entry))
                found = Entry(os.fsdecode(entry.name), entry.is_dir) if code == 1 else None
            if code < 0:
                raise c.error(code, path=path)
            if not found:
                return
            yield found
            position += 1

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
        with self._gate as view:
            try:
                self._find(view, path)
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
        with self._gate as view:
            self._library.reshard_summarize(view, ctypes.byref(got))
        return Summary(*(getattr(got, name) for name in Summary._fields))

    def statistics(self) -> dict[str, int]:
        """Counters since it was opened: reads, bytes_replied, source_bytes, cache_hits, …"""
        got = c.CStatistics(ctypes.sizeof(c.CStatistics))
        with self._gate as view:
            self._library.reshard_get_statistics(view, ctypes.byref(got))
        return {name: getattr(got, name) for name in c.COUNTERS}


class RawFile(io.RawIOBase):
    """A file of a view, unbuffered. Reading at a position of its own is safe from several threads."""

    def __init__(self, view: View, path: str) -> None:
        super().__init__()
        self.name = path
        self.mode = "rb"
        self._gate = _Gate(None, "file")
        self._at = 0
        self._lock = threading.Lock()
        self._library = view._library
        self._owner = view  # which must live as long
        self._size = view.stat(path).st_size
        out = ctypes.c_void_p()
        with view._gate as pointer:
            code = view._library.reshard_reader_open(pointer, view._find(pointer, path), ctypes.byref(out))
            if code:
                raise c.error(code, path=path)
            self._gate = _Gate(out.value, "file", self._library.reshard_reader_close)
            view._files.add(self)
            view._gates.add(self._gate)

    def close(self) -> None:
        if hasattr(self, "_gate"):
            self._gate.close()
            self._owner._gates.discard(self._gate)
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
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
        with self._gate as reader:
            got = int(self._library.reshard_reader_pread(reader, address, view.nbytes, offset))
        if got < 0:
            raise c.error(got, path=self.name)
        return got

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer from the position on; the number of bytes."""
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


def open(view: View, path: str) -> File:
    """A file of a view, buffered. Opening it reads the headers of its sources."""
    return File(RawFile(view, path), BUFFER)
