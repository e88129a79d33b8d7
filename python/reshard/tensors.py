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
from ._gate import Gate, aside, own_call
from .places import Place, judge
from .view import View

Progress = Callable[[int, int], None]
Box = tuple[Sequence[int], Sequence[int]]  # begin and end along each axis
Names = Union[str, Sequence[str], None]
HUGE = 4 << 20  # bytes from which on numpy asks for huge pages
AWAY = 16 << 20  # bytes; what loads more leaves its thread to Ctrl-C and the progress
COMPARED = 16 << 20  # bytes of a tensor at a time
_NO_MEMORY = ("without memory that could be filled; try: an array that can be written to, or torch.distributed.checkpoint.load with "
              "reshard.torch.StorageReader")


class Type(NamedTuple):
    """An element type: its names in numpy and torch, and in safetensors."""

    name: str
    safetensors: str
    numpy: bool = True  # numpy has it by itself
    packed: int = 1  # elements of safetensors in one of torch's


TYPES = {"Bool": Type("bool", "BOOL"), "Int4": Type("int8", "I8"), "Int8": Type("int8", "I8"),
         "UInt8": Type("uint8", "U8"), "Int16": Type("int16", "I16"), "UInt16": Type("uint16", "U16"),
         "Int32": Type("int32", "I32"), "UInt32": Type("uint32", "U32"), "Int64": Type("int64", "I64"),
         "UInt64": Type("uint64", "U64"), "Float16": Type("float16", "F16"),
         "BFloat16": Type("bfloat16", "BF16", False), "Float32": Type("float32", "F32"),
         "Float64": Type("float64", "F64"), "Complex64": Type("complex64", "C64"),
         "Complex128": Type("complex128", "C128"), "Float8E4M3FN": Type("float8_e4m3fn", "F8_E4M3", False),
         "Float8E5M2": Type("float8_e5m2", "F8_E5M2", False),
         "Float8E8M0FNU": Type("float8_e8m0fnu", "F8_E8M0", False),
         "Float8E4M3FNUZ": Type("float8_e4m3fnuz", "F8_E4M3FNUZ", False),
         "Float8E5M2FNUZ": Type("float8_e5m2fnuz", "F8_E5M2FNUZ", False),
         "Float4E2M1FNx2": Type("float4_e2m1fn_x2", "F4", False, 2),
         "Float6E2M3FNx4": Type("float6_e2m3fn_x4", "F6_E2M3", False, 4),
         "Float6E3M2FNx4": Type("float6_e3m2fn_x4", "F6_E3M2", False, 4)}


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
        found = getattr(ml_dtypes, kind.name, None)
        if found is None:
            raise TypeError(f"{tensor.name} is {kind.name}, which ml_dtypes does not have; try: framework=\"torch\"")
        return self.numpy.dtype(found)

    def empty(self, tensor: "Tensor", shape: Sequence[int]) -> Any:
        return self.numpy.empty(tuple(shape), self.dtype(tensor))

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def is_plain(self, array: Any) -> bool:
        """Whether a box can be read straight into it."""
        return bool(array.flags.c_contiguous and array.flags.writeable)

    def why_not(self, array: Any) -> Optional[str]:
        """Why it cannot be filled, if so, and what to do."""
        if isinstance(array, self.numpy.ma.MaskedArray):
            return "whose mask would hide what it is filled with; try: its member data"
        return None if isinstance(array, self.numpy.ndarray) and array.flags.writeable else _NO_MEMORY

    def place(self, array: Any) -> Place:
        return Place("cpu", self.address(array), array.shape, array.strides, array.itemsize, str(array.dtype))

    def copy(self, to: Any, array: Any) -> None:
        self.numpy.asarray(to)[...] = array

    def note_change(self, array: Any) -> None:
        """Called when the memory of an array was written to."""

    def final(self, tensor: "Tensor", array: Any) -> Any:
        return array


class Torch:
    """Tensors of torch."""

    def __init__(self) -> None:
        import torch

        self.torch: Any = torch

    def dtype(self, tensor: "Tensor") -> Any:
        kind = tensor._type()
        found = getattr(self.torch, kind.name, None)
        if found is None:
            raise TypeError(f"{tensor.name} is {kind.name}, which torch {self.torch.__version__} does not have")
        return found

    def empty(self, tensor: "Tensor", shape: Sequence[int]) -> Any:
        # Under torch.device("meta") memory would be none.
        return self.torch.empty(tuple(shape), dtype=self.dtype(tensor), device="cpu")

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def is_plain(self, array: Any) -> bool:
        return bool(array.device.type == "cpu" and self.has_storage(array) and array.is_contiguous() and not array.is_conj()
                    and not array.is_neg())

    def has_storage(self, array: Any) -> bool:
        """Whether its elements lie in memory of its own, which was not freed: not those of a DTensor or another one that has
        others in it, of a sparse one, nor on the device meta."""
        if array.layout is not self.torch.strided or array.device.type == "meta":
            return False
        if not array.numel():
            return True
        try:
            storage = array.untyped_storage() if hasattr(array, "untyped_storage") else array.storage()
            begin, end = self._elements(array).span()
            return bool(array.data_ptr() and storage.data_ptr() <= begin and end <= storage.data_ptr() + storage.nbytes())
        except RuntimeError:  # torch's word for no storage
            return False

    def why_not(self, array: Any) -> Optional[str]:
        return None if isinstance(array, self.torch.Tensor) and self.has_storage(array) else _NO_MEMORY

    def _elements(self, array: Any) -> Place:
        size = array.element_size()
        return Place(str(array.device), self.address(array), tuple(array.shape), tuple(n * size for n in array.stride()), size,
                     f"{array.dtype}{' conj' * array.is_conj()}{' neg' * array.is_neg()}")

    def place(self, array: Any) -> Place:
        """Its elements; or the tensor itself, which takes an array by a way of its own."""
        return self._elements(array) if self.has_storage(array) else Place("object", id(array), (), (), 1, "")

    def copy(self, to: Any, array: Any) -> None:
        with self.torch.inference_mode() if to.is_inference() else self.torch.no_grad():
            to.copy_(array)

    def note_change(self, array: Any) -> None:
        """Raises its version, so that a backward pass that needs the old values fails."""
        graph = self.torch.autograd.graph
        if hasattr(graph, "increment_version"):
            graph.increment_version(array)
        elif not array.is_inference():  # before torch 2.1: by an operation on none of its elements
            with self.torch.no_grad():
                array.detach().unsqueeze(0)[:0].zero_()

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
    try:
        return _FRAMEWORKS[framework]()
    except ModuleNotFoundError as why:
        raise ModuleNotFoundError(f"{why.name} is not installed; try: pip install {why.name}, or another framework=",
                                  name=why.name) from None


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
        self._list._gate.check_process()  # an import may wait for a lock
        memory = memory_of(framework)
        array = memory.empty(self, self.shape if box is None else [b - a for a, b in zip(*box)])
        self._list._read([Wanted(self, box, memory.address(array), array)], None)
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
        self._list._read([Wanted(self, None, ctypes.addressof(buffer), buffer)], None)
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


class Wanted(NamedTuple):
    """A tensor, or a box of it, that is read to an address in the memory of some object."""

    tensor: Tensor
    box: Optional[Box]
    address: int
    memory: Any


class Target(NamedTuple):
    """A tensor, or a box of it, that an array of its shape is filled with. name is the array's."""

    name: str
    tensor: Tensor
    box: Optional[Box]
    array: Any


class Tensors(Mapping[str, Tensor]):
    """The tensors of a rank, or whole ones, by name, in the order of its file."""

    def __init__(self, view: View, folder: str) -> None:
        self._view, self._folder = view, folder  # the view must live as long
        self._library = view._library
        self._gate = Gate("list of tensors", self._library.reshard_tensors_close, view._gate)
        why = c.CError(ctypes.sizeof(c.CError))
        code = view._gate.use(lambda pointer: self._library.reshard_tensors_open(
            pointer, os.fsencode(folder), ctypes.byref(self._gate.out), ctypes.byref(why)))
        if code:
            raise c.error(code, why.message.decode("utf-8", "replace"), usage=bool(why.usage))
        self._all = {tensor.name: tensor for tensor in self._gate.use(self._list)}

    def close(self) -> None:
        """Frees it. Does nothing the second time; closing the view does it, too."""
        if hasattr(self, "_gate"):
            self._gate.close()

    def __del__(self) -> None:
        self.close()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def _list(self, pointer: int) -> list[Tensor]:
        found = (c.CTensor * self._library.reshard_tensors_count(pointer))()
        for number, one in enumerate(found):
            one.struct_size = ctypes.sizeof(c.CTensor)
            self._library.reshard_tensors_get(pointer, number, ctypes.byref(one))
        return [Tensor(self, number, one) for number, one in enumerate(found)]

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

    def _read(self, wanted: Sequence[Wanted], progress: Optional[Progress]) -> None:
        """Reads tensors or boxes of them to addresses."""
        loads = (c.CLoad * len(wanted))()
        kept = []  # what the loads point to
        total = 0
        for load, (tensor, box, address, _) in zip(loads, wanted):
            load.tensor, load.to = tensor._number, address
            total += tensor.nbytes
            if box is not None:
                if any(len(bound) != tensor.ndim for bound in box):
                    raise ValueError(f"{tensor.name} has {tensor.ndim} axes, and the box {box} has not")
                bounds = [(ctypes.c_uint64 * len(bound))(*bound) for bound in box]
                load.begin, load.end = bounds
                kept.append(bounds)
        if total < AWAY and progress is None:
            self._call(loads, None)
        else:
            self._gate.use(lambda _pointer: self._call_away(loads, [wanted, kept], progress))

    def _call(self, loads: Any, hear: Any) -> None:
        why = c.CError(ctypes.sizeof(c.CError))
        code = self._gate.use(lambda pointer: self._library.reshard_tensors_load(
            pointer, loads, len(loads), hear or c.ProgressFunction(), None, ctypes.byref(why)))
        if code:
            raise c.error(code, why.message.decode("utf-8", "replace"))

    def _new_cancel(self) -> Gate:
        cancel = Gate("load", self._library.reshard_cancel_free, self._view._gate)
        code = self._view._gate.use(lambda view: self._library.reshard_cancel_new(view, ctypes.byref(cancel.out)))
        if code:
            raise c.error(code)
        return cancel

    def _call_away(self, loads: Any, memory: Any, progress: Optional[Progress]) -> None:
        """Does so in another thread, so that Ctrl-C ends it and progress is called by this one."""
        state: dict[str, Any] = {"memory": memory}  # which is there as long as that thread
        cancel = self._new_cancel()
        ended, owner = threading.Event(), own_call()

        def hear(_context: Any, done: int, total: int) -> None:
            state["heard"] = done, total

        def work(stop: int) -> None:
            self._library.reshard_cancel_use(stop)
            try:
                self._call(loads, c.ProgressFunction(hear) if progress else None)
            finally:
                self._library.reshard_cancel_use(None)

        def run() -> None:
            if not state.setdefault("runs", True):  # the caller did not wait for its beginning
                return
            try:
                aside(lambda: cancel.use(work), owner)
            except BaseException as why:  # pylint: disable=broad-except # the caller raises it
                state["why"] = why
            finally:
                state["ended"] = True
                ended.set()

        try:
            threading.Thread(target=run, name="reshard load", daemon=True).start()
            while not ended.wait(0.1):
                if progress and "heard" in state:
                    progress(*state["heard"])
                self._gate.check_process()  # one that progress has forked lacks that thread
        except BaseException:
            if not self._gate.foreign:
                cancel.use(lambda stop: self._library.reshard_cancel_set(stop, True))
            raise
        finally:
            while state.setdefault("runs", False) and "ended" not in state and not self._gate.foreign:
                with contextlib.suppress(BaseException):  # whatever else a handler of signals raises
                    ended.wait()
            cancel.close()
        if "why" in state:
            raise state["why"]
        if progress and "heard" in state:
            progress(*state["heard"])

    def load(self, framework: str = "numpy", names: Names = None, into: Optional[Mapping[str, Any]] = None,
             progress: Optional[Progress] = None) -> Any:
        """All tensors, or those whose names match, by one call; see View.load."""
        self._gate.check_process()
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
            wanted.append(Wanted(tensor, None, memory.address(array), array))
        self._read(wanted, progress)
        for tensor, _, _, array in wanted:
            out[tensor.name] = memory.final(tensor, array)
        return out

    def _fill(self, memory: Any, only: Optional[dict[str, Tensor]], into: Mapping[str, Any],
              progress: Optional[Progress]) -> Mapping[str, Any]:
        """Reads into the arrays of a dict. All are compared before the first is touched."""
        if isinstance(memory, MindSpore):
            raise ValueError("into= takes arrays of numpy or torch; try: mindspore.load_param_into_net(net, the result)")
        targets = []
        for name, array in into.items():
            if only is not None and name not in only:
                continue
            tensor = self._all.get(name)
            if tensor is None:
                raise KeyError(f"{name} is not in {self._folder} of {self._view.source}; names= chooses some")
            why = memory.why_not(array)
            if why:
                raise ValueError(f"{name} is a {type(array).__name__} {why}")
            if tuple(array.shape) != tensor.shape or array.dtype != memory.dtype(tensor):
                raise ValueError(f"{name} is {tensor.dtype} {list(tensor.shape)} in the checkpoint, and {array.dtype} "
                                 f"{list(array.shape)} in the model")
            targets.append(Target(name, tensor, None, array))
        self._fill_all(memory, targets, progress)
        return into

    def _fill_all(self, memory: Any, targets: Sequence[Target], progress: Optional[Progress] = None) -> None:
        """Fills arrays, whose memory is judged before the first is touched."""
        filled = set(range(len(targets)))
        for one, other in judge([(target.name, memory.place(target.array)) for target in targets]):
            if not self._are_same(targets[one], targets[other]):
                raise ValueError(f"{targets[one].name} and {targets[other].name} have the same memory, and other contents in "
                                 f"{self._view.source}; try: only one of them, or memory of its own for each")
            filled.discard(other)
        wanted, copied = [], []
        for number in sorted(filled):
            _, tensor, box, array = targets[number]
            to = array
            if not memory.is_plain(array) or array.dtype != memory.dtype(tensor):
                to = memory.empty(tensor, array.shape)
                copied.append((array, to))
            wanted.append(Wanted(tensor, box, memory.address(to), to))
        try:
            self._read(wanted, progress)
            for array, to in copied:
                memory.copy(array, to)
        finally:
            for target in targets:  # also those that lie where another does, which may count for themselves
                if memory.why_not(target.array) is None:
                    memory.note_change(target.array)

    def _are_same(self, one: Target, other: Target) -> bool:
        """Whether two boxes of one shape, which are not empty, have the same contents."""
        if one.tensor.kind != other.tensor.kind:
            return False
        boxes = [target.box or _whole_box(target.tensor.shape) for target in (one, other)]
        lengths = [b - a for a, b in zip(*boxes[0])]
        row = one.tensor.nbytes // math.prod(one.tensor.shape) * math.prod(lengths[1:])
        rows = max(1, COMPARED // row)
        for at in range(0, lengths[0] if lengths else 1, rows):
            pieces = []
            for target, (begin, end) in zip((one, other), boxes):
                low = [begin[0] + at, *begin[1:]] if lengths else []
                high = [min(low[0] + rows, end[0]), *end[1:]] if lengths else []
                buffer = (ctypes.c_char * (row * (high[0] - low[0] if lengths else 1)))()
                pieces.append(Wanted(target.tensor, (low, high), ctypes.addressof(buffer), buffer))
            self._read(pieces, None)
            if pieces[0].memory.raw != pieces[1].memory.raw:
                return False
        return True
