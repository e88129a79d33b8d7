# SPDX-License-Identifier: Apache-2.0
"""The interface of safetensors.safe_open on any source."""
from __future__ import annotations

import contextlib
import importlib
import json
import operator
import os
from typing import Any, Iterator, NoReturn, Optional, Sequence, Union

from ._library import ReshardError
from .loading import Opened, header_bytes
from .tensors import Tensor, Torch, memory_of
from .view import Option

BACKENDS = ("mmap", "pread")


class _Unknown(Exception):
    """The SafetensorError of a process without safetensors."""


def _known() -> type[Exception]:
    """The error that code written for safetensors catches."""
    try:
        found: type[Exception] = importlib.import_module("safetensors").SafetensorError
    except ImportError:
        return _Unknown
    return found


def _refuse(text: str, *kinds: type[Exception]) -> NoReturn:
    raise type("SafetensorError", (_known(), *kinds), {})(text)


def _text(why: OSError) -> str:
    return str(why.strerror)


@contextlib.contextmanager
def _told(name: Optional[str] = None) -> Iterator[None]:
    """Makes a ReshardError one of safetensors as well, whose text is the message alone."""
    try:
        yield
    except ReshardError as why:
        kind = type(type(why).__name__, (type(why), _known()), {"__str__": _text})
        made = kind(why.errno, f"No such file or directory: {name}" if name is not None else why.strerror)
        made.usage = why.usage
        raise made from None


def _shown(part: Any) -> str:
    """A part of an index, as safetensors writes it."""
    if not isinstance(part, slice):
        return str(part)
    ends = ["" if end is None else str(end) for end in (part.start, part.stop)]
    return ":".join(ends + ([str(part.step)] if part.step not in (None, 1) else []))


def _part(number: int, part: Any) -> Any:
    if isinstance(part, slice) or part is Ellipsis or part is None:
        return part
    try:
        if not isinstance(part, bool):
            return operator.index(part)
    except TypeError:
        pass
    _refuse(f"Unsupported slice index at position {number}: expected slice, int, or ellipsis", IndexError)


def _checked(index: Any, shape: Sequence[int]) -> tuple[Any, ...]:
    """The parts of an index, none of which leaves the tensor: numpy would cut them off, and safetensors does not."""
    if isinstance(index, list):
        if index:
            _refuse("Non empty lists are not implemented", IndexError)
        index = slice(0, 0)
    parts = [_part(n, part) for n, part in enumerate(index if isinstance(index, tuple) else (index,))]
    if parts.count(Ellipsis) > 1:
        _refuse("Only one ellipsis (...) is allowed in slice index", IndexError)
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        parts[at:at + 1] = [slice(None)] * (len(shape) - sum(part is not None for part in parts) + 1)
    inside = [part for part in parts if part is not None]
    what = f"Error during slicing [{', '.join(map(_shown, inside))}] with shape {list(shape)}"
    if len(inside) > len(shape):
        _refuse(f"{what}: more slicing indexes than dimensions in tensor", IndexError)
    for axis, (part, size) in enumerate(zip(inside, shape)):
        if not isinstance(part, slice):
            if part < -size:
                _refuse(f"Invalid index {part} for dimension {axis} of size {size}", IndexError)
            beyond = part if part >= size else None
        else:
            if part.step == 0:
                _refuse("Slice step must be a positive integer, got 0", ValueError)
            start, stop = (None if end is None else operator.index(end) for end in (part.start, part.stop))
            beyond = start if start is not None and start > size else stop - 1 if stop is not None and stop > size else None
        if beyond is not None:
            _refuse(f"{what}: index {beyond} out of bounds for tensor dimension #{axis} of size {size}", IndexError)
    return tuple(parts)


class _Slice:
    """A tensor that is read in part, as safetensors' get_slice returns it."""

    def __init__(self, file: "safe_open", tensor: Tensor) -> None:
        self._file, self._tensor = file, tensor

    def get_shape(self) -> list[int]:
        """In elements, also where several are packed into one of torch's."""
        *most, last = self._tensor.shape or [None]
        return [*most, last * self._tensor._type().packed] if last is not None else []

    def get_dtype(self) -> str:
        """As safetensors names it, such as BF16."""
        return str(self._tensor._type().safetensors)

    def __getitem__(self, index: Any) -> Any:
        self._file._all()
        parts = _checked(index, self._tensor.shape)
        with self._file._told():
            return self._file._place(self._tensor.select(parts, self._file._framework))


class safe_open:  # pylint: disable=invalid-name # safetensors calls it so
    """Any source with the interface of safetensors.safe_open, so that code written for that runs on it.

    framework is "pt" or "np", rank a destination rank, or None for whole tensors; options are those of View. device is
    where tensors of torch go. backend is safetensors' own, and changes nothing here. Errors are safetensors'
    SafetensorError where that is installed, and those of a source are ReshardError, too. It works in a process that was
    forked or spawned, such as a worker of a DataLoader.
    """

    def __init__(self, filename: Union[str, "os.PathLike[str]"], framework: str = "pt", device: Any = "cpu",
                 rank: Optional[int] = None, *, backend: str = "mmap", **options: Option) -> None:
        if backend not in BACKENDS:
            _refuse(f"backend \"{backend}\" is invalid (expected one of: {', '.join(map(json.dumps, BACKENDS))})")
        try:
            memory = memory_of(framework)
        except ValueError:
            _refuse(f"framework {framework} is invalid")
        self._framework, self._device = framework, "cpu" if device is None else device
        self._torch = isinstance(memory, Torch)
        if self._torch:
            try:
                memory.torch.device(self._device)
            except (RuntimeError, TypeError):
                _refuse(f"device {device} is invalid")
        else:
            if self._device != "cpu":
                _refuse(f"Device {device} is not supported for framework {framework}")
            self._array, self._number = memory.numpy.asarray, memory.numpy.generic  # for an index of every axis
        self._closed = False
        path = os.fspath(filename)
        with _told(path if "://" not in path and not os.path.exists(path) else None):
            self._opened = Opened(path, rank, options)

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._closed = True
        self._opened.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        with _told(), self._opened.told():
            yield

    def _place(self, array: Any) -> Any:
        if self._torch:
            return array.to(self._device) if hasattr(array, "to") else array
        return self._array(array) if isinstance(array, self._number) else array

    def _all(self) -> Any:
        if self._closed:
            _refuse("File is closed", ValueError)
        with self._told():
            return self._opened.tensors

    def _tensor(self, name: str) -> Tensor:
        tensors = self._all()
        if name not in tensors:
            _refuse(f"File does not contain tensor {name}")
        found: Tensor = tensors[name]
        return found

    def keys(self) -> list[str]:
        """The names, sorted."""
        return sorted(self._all())

    def _header(self) -> Optional[dict[str, Any]]:
        """The header of a local safetensors file; None for another source."""
        self._all()
        size = header_bytes(self._opened.source)
        if size is None:
            return None
        with open(self._opened.source, "rb") as file:
            found: dict[str, Any] = json.loads(file.read(8 + size)[8:])
        return found

    def offset_keys(self) -> list[str]:
        """The names in the order in which a local safetensors file has their data; those of another source as it has them."""
        header = self._header() or {}
        places = {name: tuple(header[name]["data_offsets"]) if name in header else () for name in self._all()}
        return sorted(places, key=lambda name: places[name])

    def metadata(self) -> Optional[dict[str, str]]:
        """That of a local safetensors file, or None if it has none; of another source the framework, as the header of a
        file would have it."""
        header = self._header()
        return {"format": "pt" if self._torch else "np"} if header is None else header.get("__metadata__")

    def get_tensor(self, name: str) -> Any:
        """All of a tensor."""
        tensor = self._tensor(name)
        with self._told():
            return self._place(tensor.read(self._framework))

    def get_tensors(self) -> dict[str, Any]:
        """All of all tensors, by name, in the order of offset_keys."""
        tensors = self._all()
        with self._told():
            found = tensors.load(self._framework)
        return {name: self._place(found[name]) for name in self.offset_keys()}

    def get_slice(self, name: str) -> _Slice:
        """A tensor that is read by indices: get_slice(name)[0:2, ::3]."""
        return _Slice(self, self._tensor(name))


def _safe_open_handle(file: Any, framework: str, device: Any = "cpu") -> safe_open:
    """Safetensors' own way for a file that is open: it is found by its name, where it must be still."""
    name = os.path.abspath(file.name)
    if hasattr(file, "fileno") and not (os.path.exists(name) and os.path.samestat(os.stat(name), os.fstat(file.fileno()))):
        _refuse(f"the open file is no longer {name}", ValueError)
    return safe_open(name, framework, device)
