# SPDX-License-Identifier: Apache-2.0
"""Loads from any source by one call."""
from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

from ._library import ReshardError
from .tensors import Tensors
from .view import Option, View


def _open(source: Union[str, "os.PathLike[str]"], options: dict[str, Option]) -> View:
    """A view for its tensors: the whole ones, if no option asks for something, as cache="1G" does not."""
    if not options:
        return View(source, format="pt")
    try:
        return View(source, **options)
    except ReshardError as refused:
        if not refused.usage or "format" in options:
            raise
        try:
            return View(source, format="pt", **options)
        except ReshardError:
            raise refused from None


def load(source: Union[str, "os.PathLike[str]"], rank: Optional[int] = None, framework: str = "numpy",
         names: Union[str, Sequence[str], None] = None, into: Optional[Mapping[str, Any]] = None,
         progress: Optional[Callable[[int, int], None]] = None, **options: Option) -> Any:
    """The tensors of a checkpoint as a rank has them, or whole ones, in a dict.

    options are those of View; the rest is as for View.load: load("src", rank=3, framework="torch",
    src_strategy="a.ckpt", dst_strategy="b.ckpt"). names are patterns of tensors; the option of a view with this word is a
    file that maps names: View("src", names="map.json").load(3).
    """
    with _open(source, options) as view:
        return view.load(rank, framework, names, into, progress)


# ---- sources that stay open ------------------------------------------------------------------------

ENDINGS = (".ckpt", ".safetensors", ".pt")
HEADER_BYTES = 100 << 20  # what safetensors allows


def header_bytes(path: str) -> Optional[int]:
    """The length of the header of a local safetensors file, by its content; None for anything else."""
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        begin = file.read(9)
    size = int.from_bytes(begin[:8], "little")
    return size if begin[8:] == b"{" and size <= min(HEADER_BYTES, os.path.getsize(path) - 8) else None


class Link:
    """The path by which the library opens a source: a safetensors file without such an ending gets a link that has it."""

    def __init__(self, source: str) -> None:
        self.path, self._folder = source, ""
        self.options: dict[str, Option] = {}
        if not source.endswith(ENDINGS) and header_bytes(source) is not None:
            self._folder, self._process = tempfile.mkdtemp(prefix="reshard-"), os.getpid()
            self.path = os.path.join(self._folder, os.path.basename(source) + ".safetensors")
            self.options = {"follow_links": True}  # nobody else can write to that folder
            os.symlink(os.path.abspath(source), self.path)

    def remove(self) -> None:
        if self._folder and self._process == os.getpid():  # a forked process has it, too
            shutil.rmtree(self._folder, ignore_errors=True)


def _end(view: Optional[View], link: Link) -> None:
    """Closes a view, which looks at its source once more, before the link goes."""
    if view is not None:
        view.close()
    link.remove()


class Opened:
    """A view of a source with the list of its tensors, opened anew by each process that uses it: after a fork, and where
    it was pickled."""

    def __init__(self, source: Union[str, "os.PathLike[str]"], rank: Optional[int], options: dict[str, Option]) -> None:
        self._made_of = os.fspath(source), rank, options
        self._open()

    def _open(self) -> None:
        source, rank, options = self._made_of
        link = getattr(self, "_link", None)  # that of the process that was forked, as long as it has one
        self._link = link if link is not None and os.path.lexists(link.path) else Link(source)
        view = None
        try:
            with self.told():
                view = _open(self._link.path, {**options, **self._link.options})
                self._tensors = view.tensors(rank)
        except BaseException:
            _end(view, self._link)
            raise
        self._view, self._process = view, os.getpid()
        self.close = weakref.finalize(self, _end, view, self._link)

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Errors name the source as it was given."""
        try:
            yield
        except ReshardError as why:
            why.strerror = str(why.strerror).replace(self._link.path, self.source)
            raise

    def __reduce__(self) -> "tuple[Any, ...]":
        self._view.__reduce__()  # refuses what cannot be pickled
        return Opened, self._made_of

    @property
    def source(self) -> str:
        return self._made_of[0]

    @property
    def tensors(self) -> Tensors:
        if self._process != os.getpid() and not self._view.closed:
            self.close.detach()
            self._open()
        return self._tensors
