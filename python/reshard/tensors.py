# SPDX-License-Identifier: Apache-2.0
"""The tensors of a view, read into memory of numpy, torch or MindSpore.

None of these is imported before it is asked for.
"""
from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import math
import mmap
import operator
import os
import threading
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from . import _library as c
from .view import View, _Gate

Progress = Callable[[int, int], None]
Box = tuple[Sequence[int], Sequence[int]]  # begin and end along each axis
Names = Union[str, Sequence[str], None]
HUGE = 4 << 20  # bytes from which on numpy asks for huge pages
AWAY = 16 << 20  # bytes; what loads more leaves its thread to Ctrl-C and the progress


class Type(NamedTuple):
    """An element type: its names in numpy and torch, and in safetensors."""

    name: str
    safetensors: str
    numpy: bool = True  # numpy has it by itself


TYPES = {"Bool": Type("bool", "BOOL"), "Int4": Type("int8", "I8"), "Int8": Type("int8", "I8"),
         "UInt8": Type("uint8", "U8"), "Int16": Type("int16", "I16"), "UInt16": Type("uint16", "U16"),
         "Int32": Type("int32", "I32"), "UInt32": Type("uint32", "U32"), "Int64": Type("int64", "I64"),
         "UInt64": Type("uint64", "U64"), "Float16": Type("float16", "F16"),
         "BFloat16": Type("bfloat16", "BF16", False), "Float32": Type("float32", "F32"),
         "Float64": Type("float64", "F64"), "Complex64": Type("complex64", "C64"),
         "Complex128": Type("complex128", "C128"), "Float8E4M3FN": Type("float8_e4m3fn", "F8_E4M3", False),
         "Float8E5M2": Type("float8_e5m2", "F8_E5M2", False),
         "Float8E8M0FNU": Type("float8_e8m0fnu", "F8_E8M0", False)}


def _whole_box(shape: Sequence[int]) -> Box:
    return (0,) * len(shape), tuple(shape)


# ---- memory of each framework --------------------------------------------------------------------

class Numpy:
    """Arrays of numpy."""

    def __init__(self) -> None:
        import numpy

        self.numpy = numpy

    def dtype(self, tensor: "Tensor") -> Any:
        """The dtype of a tensor's elements; those that numpy lacks are ml_dtypes'."""
        kind = tensor._type()
        if kind.numpy:
            return self.numpy.dtype(kind.name)
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(f"{tensor.name} is {kind.name}, which numpy does not have; try: pip install ml_dtypes, or "
                            "framework=\"torch\", or dtype=\"float32\"") from None
        return self.numpy.dtype(getattr(ml_dtypes, kind.name))

    def empty(self, tensor: "Tensor", shape: Sequence[int]) -> Any:
        return self.numpy.empty(tuple(shape), self.dtype(tensor))

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def is_plain(self, array: Any) -> bool:
        """Whether a box can be read straight into it."""
        return bool(array.flags.c_contiguous and array.flags.writeable)

    def has_memory(self, array: Any) -> bool:
        """Whether it can be filled."""
        return bool(array.flags.writeable)

    def copy(self, to: Any, array: Any) -> None:
        to[...] = array

    def final(self, tensor: "Tensor", array: Any) -> Any:
        return array


class Torch:
    """Tensors of torch."""

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def dtype(self, tensor: "Tensor") -> Any:
        kind = tensor._type()
        found = getattr(self.torch, kind.name, None)
        if found is None:
            raise TypeError(f"{tensor.name} is {kind.name}, which torch {self.torch.__version__} does not have")
        return found

    def empty(self, tensor: "Tensor", shape: Sequence[int]) -> Any:
        return self.torch.empty(tuple(shape), dtype=self.dtype(tensor))

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def is_plain(self, array: Any) -> bool:
        return bool(array.device.type == "cpu" and array.is_contiguous() and self.has_memory(array) and not array.is_conj()
                    and not array.is_neg())

    def has_memory(self, array: Any) -> bool:
        """Not on the device meta, nor if it is a DTensor or another one that has others in it."""
        return bool(array.device.type not in ("cpu", "meta") or not array.numel() or array.data_ptr())

    def copy(self, to: Any, array: Any) -> None:
        with self.torch.no_grad():
            to.copy_(array)

    def final(self, tensor: "Tensor", array: Any) -> Any:
        return array


class MindSpore(Numpy):
    """Parameters, as mindspore.load_checkpoint returns them."""

    def __init__(self) -> None:
        super().__init__()
        import mindspore

        self.mindspore = mindspore

    def dtype(self, tensor: "Tensor") -> Any:
        """That of the memory; final says what MindSpore takes it for."""
        kind = tensor._type()
        if kind.name == "bfloat16":
            from mindspore.common import np_dtype

            found = getattr(np_dtype, "bfloat16", None)
            return self.numpy.dtype(found if found is not None else "uint16")
        if not kind.numpy or kind.name.startswith("complex"):
            raise TypeError(f"{tensor.name} is {kind.name}, which mindspore.load_checkpoint does not take; try: "
                            "dtype=\"float32\"")
        return self.numpy.dtype(kind.name)

    def empty(self, tensor: "Tensor", shape: Sequence[int]) -> Any:
        """Small pages, as load_checkpoint takes them: numpy asks for huge ones, which a busy or virtual machine may first
        have to make."""
        dtype = self.dtype(tensor)
        size = dtype.itemsize * math.prod(shape)
        if size < HUGE:
            return super().empty(tensor, shape)
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return self.numpy.frombuffer(memory, dtype).reshape(tuple(shape))

    def final(self, tensor: "Tensor", array: Any) -> Any:
        if tensor.kind == "Int4" or (tensor.kind == "BFloat16" and array.dtype == self.numpy.uint16):
            from mindspore._c_expression import TensorPy

            dtype = self.mindspore.qint4x2 if tensor.kind == "Int4" else self.mindspore.bfloat16
            made = TensorPy.convert_bytes_to_tensor(array.tobytes(), tensor.shape, dtype)
            return self.mindspore.Parameter(made, name=tensor.name)
        # Called like this, without names, a Parameter takes the memory of the tensor. Else it copies it.
        return self.mindspore.Parameter(self.mindspore.Tensor.from_numpy(array), tensor.name)


_FRAMEWORKS: dict[str, Callable[[], Any]] = {"numpy": Numpy, "np": Numpy, "torch": Torch, "pt": Torch, "pytorch": Torch,
                                             "mindspore": MindSpore, "ms": MindSpore}


def memory_of(framework: str) -> Any:
    """Where tensors of a framework lie; ImportError if it is not installed."""
    if framework not in _FRAMEWORKS:
        raise ValueError(f"framework {framework!r} is not numpy, torch or mindspore")
    return _FRAMEWORKS[framework]()


# ---- tensors -------------------------------------------------------------------------------------

class Tensor:
    """A tensor of a view, not yet read. tensor[...] reads what it selects, as an array of numpy.

    kind is the element type as MindSpore names it, such as BFloat16.
    """

    __slots__ = ("_list", "_number", "kind", "name", "nbytes", "shape")

    def __init__(self, tensors: "Tensors", number: int, found: c.CTensor) -> None:
        self._list, self._number = tensors, number
        self.name: str = found.name.decode("utf-8", "surrogateescape")
        self.kind: str = found.dtype.decode()
        self.nbytes: int = found.bytes
        self.shape: tuple[int, ...] = tuple(found.shape[:found.ndim])

    def _type(self) -> Type:
        kind = TYPES.get(self.kind)
        if kind is None:
            raise TypeError(f"{self.name} is {self.kind}, which is no type of numpy or torch")
        return kind

    @property
    def dtype(self) -> str:
        """The element type as numpy and torch name it, such as bfloat16; or kind, if they have none."""
        return TYPES[self.kind].name if self.kind in TYPES else self.kind

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<reshard.Tensor {self.name} {self.dtype} {list(self.shape)}>"

    def read(self, framework: str = "numpy", box: Optional[Box] = None) -> Any:
        """All of it, or a box, as an array of that framework."""
        memory = memory_of(framework)
        array = memory.empty(self, self.shape if box is None else [b - a for a, b in zip(*box)])
        self._list._read([(self, box, memory.address(array))], None)
        return memory.final(self, array)

    def numpy(self) -> Any:
        """All of it, as an array of numpy."""
        return self.read("numpy")

    def torch(self) -> Any:
        """All of it, as a tensor of torch."""
        return self.read("torch")

    def value(self) -> Any:
        """The value if it is no tensor: a str, or the bytes of a map; else an array of numpy."""
        if self.kind in TYPES:
            return self.numpy()
        buffer = ctypes.create_string_buffer(self.nbytes)
        self._list._read([(self, None, ctypes.addressof(buffer))], None)
        return buffer.raw.decode("utf-32-le") if self.kind == "str" else buffer.raw

    def select(self, index: Any, framework: str = "numpy") -> Any:
        """tensor[index] as an array of that framework; index is one of numpy's basic ones."""
        box, rest = _select(self.shape, index)
        array = self.read(framework, box)
        return array[rest]

    def __getitem__(self, index: Any) -> Any:
        return self.select(index)


def _select(shape: Sequence[int], index: Any) -> tuple[Box, tuple[Any, ...]]:
    """The box that a basic index needs, and the index that selects the result from it."""
    parts = list(index) if isinstance(index, tuple) else [index]
    axes = sum(1 for part in parts if part is not None and part is not Ellipsis)
    if axes > len(shape) or sum(1 for part in parts if part is Ellipsis) > 1:
        raise IndexError(f"too many indices: the tensor has {len(shape)} axes")
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    at = next(i for i, part in enumerate(parts) if part is Ellipsis)
    parts[at:at + 1] = [slice(None)] * (len(shape) - axes)
    begin: list[int] = []
    end: list[int] = []
    rest: list[Any] = []
    for part in parts:
        if part is None:
            rest.append(None)
            continue
        size = shape[len(begin)]
        if isinstance(part, slice):
            chosen = range(size)[part]
            low, high = (min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1]) + 1) if len(chosen) else (0, 0)
            rest.append(slice(None, None, chosen.step))
        else:
            if isinstance(part, bool):  # numpy and torch take it for a mask
                raise IndexError("a bool is not a basic index")
            low = operator.index(part)
            if not -size <= low < size:
                raise IndexError(f"index {low} is out of bounds for axis {len(begin)} of size {size}")
            low += size if low < 0 else 0
            high = low + 1
            rest.append(0)
        begin.append(low)
        end.append(high)
    return (begin, end), tuple(rest)


class Tensors(Mapping[str, Tensor]):
    """The tensors of a rank, or whole ones, by name, in the order of its file."""

    def __init__(self, view: View, folder: str) -> None:
        self._gate = _Gate(None, "list of tensors")
        self._view, self._folder = view, folder  # the view must live as long
        self._library = view._library
        why = c.CError(ctypes.sizeof(c.CError))
        out = ctypes.c_void_p()
        with view._gate as pointer:
            code = self._library.reshard_tensors_open(pointer, os.fsencode(folder), ctypes.byref(out), ctypes.byref(why))
            if code:
                raise c.error(code, why.message.decode("utf-8", "replace"), usage=bool(why.usage))
            self._gate = _Gate(out.value, "list of tensors", self._library.reshard_tensors_close)
            view._files.add(self)
            view._gates.add(self._gate)
        self._all = {tensor.name: tensor for tensor in self._list()}

    def close(self) -> None:
        """Frees it. Does nothing the second time; closing the view does it, too."""
        if hasattr(self, "_gate"):
            self._gate.close()
            self._view._gates.discard(self._gate)

    def __del__(self) -> None:
        self.close()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def _list(self) -> Iterator[Tensor]:
        with self._gate as pointer:
            for number in range(self._library.reshard_tensors_count(pointer)):
                found = c.CTensor(ctypes.sizeof(c.CTensor))
                self._library.reshard_tensors_get(pointer, number, ctypes.byref(found))
                yield Tensor(self, number, found)

    def __getitem__(self, name: str) -> Tensor:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __repr__(self) -> str:
        rows = [(t.name, t.dtype, str(list(t.shape)), str(t.nbytes)) for t in self._all.values()]
        widths = [max(map(len, column), default=0) for column in zip(*rows)]
        lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows]
        return "\n".join([f"{len(rows)} tensors of {self._folder}", *lines])

    def _matching(self, names: Names) -> list[Tensor]:
        """Those that a pattern, or one of several, matches."""
        if names is None:
            return list(self._all.values())
        patterns = [names] if isinstance(names, str) else list(names)
        found = {name for pattern in patterns for name in fnmatch.filter(self._all, pattern)}
        unknown = [p for p in patterns if not fnmatch.filter(self._all, p)]
        if unknown:
            raise KeyError(f"no tensor matches {unknown[0]!r}; names= has patterns of tensors here. For a file that maps names, "
                           "try: View(SOURCE, names=FILE).load()")
        return [tensor for name, tensor in self._all.items() if name in found]

    # ---- reading

    def _read(self, wanted: Sequence[tuple[Tensor, Optional[Box], int]], progress: Optional[Progress]) -> None:
        """Reads tensors or boxes of them to addresses."""
        loads = (c.CLoad * len(wanted))()
        kept = []  # what the loads point to
        total = 0
        for load, (tensor, box, address) in zip(loads, wanted):
            load.tensor, load.to = tensor._number, address
            total += tensor.nbytes
            if box is not None:
                if any(len(bound) != tensor.ndim for bound in box):
                    raise ValueError(f"{tensor.name} has {tensor.ndim} axes, and the box {box} has not")
                bounds = [(ctypes.c_uint64 * len(bound))(*bound) for bound in box]
                load.begin, load.end = bounds
                kept.append(bounds)
        with self._gate as pointer:
            if total < AWAY and progress is None:
                self._call(pointer, loads, None)
            else:
                self._call_away(pointer, loads, progress)

    def _call(self, pointer: int, loads: Any, hear: Any) -> None:
        why = c.CError(ctypes.sizeof(c.CError))
        code = self._library.reshard_tensors_load(pointer, loads, len(loads), hear or c.ProgressFunction(), None,
                                                  ctypes.byref(why))
        if code:
            raise c.error(code, why.message.decode("utf-8", "replace"))

    def _call_away(self, pointer: int, loads: Any, progress: Optional[Progress]) -> None:
        """Does so in another thread, so that Ctrl-C ends it and progress is called by this one."""
        state: dict[str, Any] = {}
        cancel = ctypes.c_void_p()
        ended = threading.Event()

        def hear(_context: Any, done: int, total: int) -> None:
            state["heard"] = done, total

        def work() -> None:
            try:
                self._library.reshard_cancel_use(cancel)
                self._call(pointer, loads, c.ProgressFunction(hear) if progress else None)
            except BaseException as why:  # pylint: disable=broad-except # the caller raises it
                state["why"] = why
            finally:
                self._library.reshard_cancel_use(None)
                ended.set()

        with self._view._gate as view:
            code = self._library.reshard_cancel_new(view, ctypes.byref(cancel))
            if code:
                raise c.error(code)
            thread = threading.Thread(target=work, name="reshard load", daemon=True)
            thread.start()
            try:
                while not ended.wait(0.1):
                    if progress and "heard" in state:
                        progress(*state["heard"])
            except BaseException:
                self._library.reshard_cancel_set(cancel, True)
                raise
            finally:
                while not ended.is_set():  # its memory stays until then, also after a second Ctrl-C
                    with contextlib.suppress(KeyboardInterrupt):
                        ended.wait()
                thread.join()
                self._library.reshard_cancel_free(cancel)
        if "why" in state:
            raise state["why"]
        if progress and "heard" in state:
            progress(*state["heard"])

    def load(self, framework: str = "numpy", names: Names = None, into: Optional[Mapping[str, Any]] = None,
             progress: Optional[Progress] = None) -> Any:
        """All tensors, or those whose names match, by one call; see View.load."""
        memory = memory_of(framework)
        tensors = self._matching(names)
        if into is not None:
            return self._fill(memory, {t.name: t for t in tensors} if names is not None else None, into, progress)
        out: dict[str, Any] = {}
        wanted = []
        for tensor in tensors:
            if tensor.kind not in TYPES:
                if tensor.kind != "str" and isinstance(memory, MindSpore):
                    raise TypeError(f"{tensor.name} is a map; try: mindspore.load_checkpoint of the file")
                out[tensor.name] = tensor.value()
                continue
            out[tensor.name] = array = memory.empty(tensor, tensor.shape)
            wanted.append((tensor, None, memory.address(array)))
        self._read(wanted, progress)
        for tensor, _, _ in wanted:
            out[tensor.name] = memory.final(tensor, out[tensor.name])
        return out

    def _fill(self, memory: Any, only: Optional[dict[str, Tensor]], into: Mapping[str, Any],
              progress: Optional[Progress]) -> Mapping[str, Any]:
        """Reads into the arrays of a dict. All are compared before the first is touched."""
        if isinstance(memory, MindSpore):
            raise ValueError("into= takes arrays of numpy or torch; try: mindspore.load_param_into_net(net, the result)")
        wanted, copied = [], []
        for name, array in into.items():
            if only is not None and name not in only:
                continue
            tensor = self._all.get(name)
            if tensor is None:
                raise KeyError(f"{name} is not in {self._folder} of {self._view.source}; names= chooses some")
            if tuple(array.shape) != tensor.shape or array.dtype != memory.dtype(tensor):
                raise ValueError(f"{name} is {tensor.dtype} {list(tensor.shape)} in the checkpoint, and {array.dtype} "
                                 f"{list(array.shape)} in the model")
            if not memory.has_memory(array):
                raise ValueError(f"{name} is a {type(array).__name__} without memory that could be filled; try: an array that can "
                                 "be written to, or torch.distributed.checkpoint.load with reshard.torch.StorageReader")
            to = array
            if not memory.is_plain(array):
                to = memory.empty(tensor, tensor.shape)
                copied.append((array, to))
            wanted.append((tensor, None, memory.address(to)))
        self._read(wanted, progress)
        for array, to in copied:
            memory.copy(array, to)
        return into


