# SPDX-License-Identifier: Apache-2.0
"""The memory of arrays that are to be filled: whether each element has its own."""
from __future__ import annotations

from typing import NamedTuple, Sequence

WORK = 1 << 20  # steps of numpy's search for a byte that two arrays share


class Place(NamedTuple):
    """Where the elements of an array lie. Sizes and strides are bytes."""

    device: str
    address: int  # of the first element
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int  # of an element
    reads: str  # what its bytes are taken for: the element type, and whether as conjugates or negatives

    def is_empty(self) -> bool:
        return 0 in self.shape

    def span(self) -> tuple[int, int]:
        """The lowest byte, and the one behind the highest."""
        ways = [stride * (count - 1) for stride, count in zip(self.strides, self.shape)]
        return (self.address + sum(way for way in ways if way < 0),
                self.address + sum(way for way in ways if way > 0) + self.size)

    def meets_itself(self) -> bool:
        """Whether two elements may share a byte: they do not if each stride leads over all that lies within it."""
        reach = self.size
        for stride, count in sorted((abs(stride), count) for stride, count in zip(self.strides, self.shape) if count > 1):
            if stride < reach:
                return True
            reach += stride * (count - 1)
        return False

    def equals(self, other: "Place") -> bool:
        """Whether each element lies where that of the other does, and is the same by the same bytes."""
        return self._replace(strides=()) == other._replace(strides=()) and all(
            a == b for a, b, count in zip(self.strides, other.strides, self.shape) if count > 1)


class _Shown:
    """A place as numpy takes it for an array. Nobody reads it."""

    def __init__(self, place: Place) -> None:
        self.__array_interface__ = {"version": 3, "data": (place.address, False), "shape": place.shape,
                                    "strides": place.strides, "typestr": f"|V{place.size}"}


def _are_apart(one: Place, other: Place) -> bool:
    """Whether two places whose spans meet certainly share no byte, such as columns of one matrix."""
    try:
        import numpy

        return not numpy.shares_memory(numpy.asarray(_Shown(one)), numpy.asarray(_Shown(other)), max_work=WORK)
    except (ImportError, OverflowError, RuntimeError):  # numpy's TooHardError is one of these
        return False


def judge(wanted: Sequence[tuple[str, Place]]) -> list[tuple[int, int]]:
    """Refuses names whose elements, or those of two, share memory. Equal places are returned, as the numbers of the first one
    and of another: the caller finds out whether both would hold the same."""
    for name, place in wanted:
        if not place.is_empty() and place.meets_itself():
            raise ValueError(f"{name} has several elements in the same memory, as expand() and as_strided() make them; try: an "
                             "array in which each has its own")
    order = sorted((place.device, *place.span(), number) for number, (_, place) in enumerate(wanted) if not place.is_empty())
    equal: list[tuple[int, int]] = []
    reaching: list[tuple[str, int, int]] = []  # the device, the end and the number of places before that end behind it
    for device, begin, end, number in order:
        reaching = [one for one in reaching if one[0] == device and one[1] > begin]
        name, place = wanted[number]
        same = next((other for _, _, other in reaching if wanted[other][1].equals(place)), None)
        if same is not None:  # whose others were asked about before
            equal.append((same, number))
            continue
        for _, _, other in reaching:
            before, taken = wanted[other]
            if not _are_apart(taken, place):
                raise ValueError(f"{before} and {name} lie in the same memory, which would be a mixture of both; try: only one "
                                 "of them, or memory of its own for each")
        reaching.append((device, end, number))
    return equal
