# SPDX-License-Identifier: Apache-2.0
"""Loads from any source by one call, and the interface of safetensors.safe_open on any source."""
from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from .tensors import Tensors
from .view import Option, View


def _view(source: Union[str, "os.PathLike[str]"], options: dict[str, Option]) -> View:
    """A view of SOURCE; without options, of its whole tensors. A view needs one that asks for something."""
    return View(source, **(options or {"format": "pt"}))


def load(source: Union[str, "os.PathLike[str]"], rank: Optional[int] = None, framework: str = "numpy",
         names: Union[str, Sequence[str], None] = None, into: Optional[Mapping[str, Any]] = None,
         progress: Optional[Callable[[int, int], None]] = None, **options: Option) -> Any:
    """The tensors of a checkpoint as a rank has them, or whole ones, in a dict.

    options are those of View; the rest is as for View.load: load("src", rank=3, framework="torch",
    src_strategy="a.ckpt", dst_strategy="b.ckpt"). names are patterns of tensors; the option of a view with this word is a
    file that maps names: View("src", names="map.json").load(3).
    """
    with _view(source, options) as view:
        return view.load(rank, framework, names, into, progress)


class Opened:
    """A view of a source with the list of its tensors, opened anew by each process that uses it: after a fork, and where
    it was pickled."""

    def __init__(self, source: Union[str, "os.PathLike[str]"], rank: Optional[int], options: dict[str, Option]) -> None:
        self._made_of = source, rank, options
        self._open()

    def _open(self) -> None:
        source, rank, options = self._made_of
        self._view = _view(source, options)
        self._tensors = self._view.tensors(rank)
        self._process = os.getpid()

    def __reduce__(self) -> "tuple[Any, ...]":
        self._view.__reduce__()  # refuses what cannot be pickled
        return Opened, self._made_of

    @property
    def source(self) -> str:
        return self._view.source

    @property
    def tensors(self) -> Tensors:
        if self._process != os.getpid() and not self._view.closed:
            self._open()
        return self._tensors

    def close(self) -> None:
        self._view.close()


class _Slice:
    """A tensor that is read in part, as safetensors' get_slice returns it."""

    def __init__(self, tensor: Any, framework: str, place: Callable[[Any], Any]) -> None:
        self._tensor, self._framework, self._place = tensor, framework, place

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """As safetensors names it, such as BF16."""
        return str(self._tensor._type().safetensors)

    def __getitem__(self, index: Any) -> Any:
        return self._place(self._tensor.select(index, self._framework))


class safe_open:  # pylint: disable=invalid-name # safetensors calls it so
    """Any source with the interface of safetensors.safe_open, so that code written for that runs on it.

    framework is "pt" or "np", rank a destination rank, or None for whole tensors; options are those of View. device is
    where tensors of torch go. It works in a process that was forked or spawned, such as a worker of a DataLoader.
    """

    def __init__(self, source: Union[str, "os.PathLike[str]"], framework: str = "pt", device: Any = "cpu",
                 rank: Optional[int] = None, **options: Option) -> None:
        self._framework, self._device = framework, device
        self._opened = Opened(source, rank, options)

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._opened.close()

    def _place(self, array: Any) -> Any:
        return array if self._framework not in ("pt", "torch", "pytorch") else array.to(self._device)

    def keys(self) -> list[str]:
        """The names, sorted."""
        return sorted(self._opened.tensors)

    def offset_keys(self) -> list[str]:
        """The names in the order of the file."""
        return list(self._opened.tensors)

    def metadata(self) -> dict[str, str]:
        """The framework, as the header of a file would have it."""
        return {"format": "pt" if self._framework in ("pt", "torch", "pytorch") else "np"}

    def get_tensor(self, name: str) -> Any:
        """All of a tensor."""
        return self._place(self._opened.tensors[name].read(self._framework))

    def get_slice(self, name: str) -> _Slice:
        """A tensor that is read by indices: get_slice(name)[0:2, ::3]."""
        return _Slice(self._opened.tensors[name], self._framework, self._place)
