# SPDX-License-Identifier: Apache-2.0
"""The lives of what the library opens.

A pointer is freed once, when no call uses it and all that was opened in it has been freed, whatever threads close what.
close() waits for that. A thread that is in a call cannot wait for itself, so what it closes there (a progress function, a
signal handler, the garbage collector) lets nobody in any more, and is freed at the end of that call. The collector may
run in any thread, also in one for which a call waits and that is in none itself: what it closes outside of calls is freed
at its end, or by a thread of its own where that would wait.

There is no lock: a signal or the collector may come between any two steps and close something else, a signal may end a
step by an exception, and a process that was forked has the locks of threads that it lacks. All that is shared is the dict
of calls, which single steps of the interpreter change; who waits looks at it from time to time.
"""
from __future__ import annotations

import _thread
import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
from typing import Any, Callable, Optional, TypeVar

Result = TypeVar("Result")
LOOK = 0.0005  # seconds; the first wait between two looks, which doubles up to LOOK_MOST
LOOK_MOST = 0.02


class _Call:
    """A call that a thread is in: it uses a gate, or frees one, or does neither."""

    __slots__ = ("frees", "later", "process", "thread", "uses")

    def __init__(self, uses: "Optional[Gate]" = None, frees: "Optional[Gate]" = None) -> None:
        self.uses, self.frees = uses, frees
        self.later: "list[Gate]" = []  # what is closed in it, to be freed at its end
        self.process, self.thread = os.getpid(), threading.get_ident()


_calls: "dict[_Call, None]" = {}  # the oldest first


def own_call() -> Optional[_Call]:
    """The outermost call that this thread is in."""
    here = os.getpid(), threading.get_ident()
    return next((call for call in list(_calls) if (call.process, call.thread) == here), None)


def aside(function: Callable[[], Any], owner: Optional[_Call] = None) -> None:
    """Calls a function in a thread for which others wait, and so it must not wait for these. What is closed meanwhile is
    freed at the end of owner, which is the call that waits, or by a thread of its own."""
    call = _Call()
    try:
        _calls[call] = None
        function()
    finally:
        _calls.pop(call, None)
        if owner is not None:
            owner.later.extend(call.later)
            call.later = []
        for gate in call.later:
            _close_apart(gate)


def _close_apart(gate: "Gate") -> None:
    """Closes a gate in a thread of its own, for which nobody waits."""
    if not gate.freed:
        with contextlib.suppress(RuntimeError):  # the interpreter ends: atexit frees views
            _thread.start_new_thread(gate.close, ())


_collections: "list[_Call]" = []  # the one that is under way


def _is_of_library() -> bool:
    """Whether this thread runs nothing of Python but functions that the library calls: closing a view waits for its end."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0] == __package__


def _hear_of_collector(phase: str, _info: Any) -> None:
    """Makes a collection a call, while which its thread waits for nothing."""
    while _collections:  # at its end; or an exception came in between, and this is the next one's beginning
        _calls.pop(_collections[-1], None)
        for gate in _collections[-1].later:
            if gate.is_busy() or _is_of_library():
                _close_apart(gate)
            else:
                gate.close()
        _collections.pop()
    if phase == "start":
        _collections.append(_Call())
        _calls[_collections[-1]] = None


gc.callbacks.append(_hear_of_collector)


class Gate:
    """A pointer that the library puts into out, if all goes well. above is the gate of the view in which it is opened, by a
    call that uses that."""

    def __init__(self, what: str, release: Callable[[Optional[int]], Any], above: "Optional[Gate]" = None) -> None:
        self.out = ctypes.c_void_p()
        self._what, self._release, self._above = what, release, above
        self._process = os.getpid()
        self._shut = self._freed = False
        self._below: "set[Gate]" = set()  # those that are not freed
        if above is not None:
            above._below.add(self)

    @property
    def closed(self) -> bool:
        return self._shut or not self.out.value or (self._above is not None and self._above.closed)

    @property
    def freed(self) -> bool:
        return self._freed

    @property
    def foreign(self) -> bool:
        """Whether the process was forked from that of the pointer, whose threads it lacks."""
        return self._process != os.getpid()

    def check_process(self) -> None:
        """Raises RuntimeError in a process that was forked from its own."""
        if self.foreign:
            raise RuntimeError(f"the {self._what} belongs to the process that this one was forked from; try: open it here")

    def use(self, function: Callable[[int], Result]) -> Result:
        """function(pointer), which nobody frees meanwhile. ValueError if it is closed."""
        self.check_process()
        call = _Call(uses=self)
        try:
            _calls[call] = None
            pointer = self.out.value
            if self.closed or not pointer:
                raise ValueError(f"the {self._what} is closed")
            return function(pointer)
        finally:
            _calls.pop(call, None)
            for gate in call.later:
                gate.close()

    def close(self) -> None:
        """Lets nobody in any more, and returns when it is freed; in a call of this thread, at once. Does nothing in a forked
        process."""
        if self.foreign:
            return
        self._shut = True
        call = own_call()
        if call is None:
            self._free()
        else:
            call.later.append(self)

    def is_busy(self) -> bool:
        """Whether calls use or free it, or what was opened in it."""
        return (any(self in (call.uses, call.frees) for call in list(_calls)) or
                any(gate.is_busy() for gate in list(self._below)))

    def _has_to_wait(self, own: _Call) -> bool:
        """Whether calls use it, or an older call than this one frees it."""
        older = True
        for call in list(_calls):
            older = older and call is not own
            if call.uses is self or (older and call.frees is self):
                return True
        return False

    def _free(self) -> None:
        """Frees what was opened in it, and then the pointer, unless another thread does: then it waits for that one."""
        own, pause = _Call(frees=self), LOOK
        try:
            _calls[own] = None
            self._shut = True
            while not self.foreign and self._has_to_wait(own):
                time.sleep(pause)
                pause = min(2 * pause, LOOK_MOST)
            for gate in list(self._below):
                gate._free()
            if not self.foreign and not self._freed:
                self._freed = True  # no other step comes before the next one
                self._release(self.out.value)
        finally:
            _calls.pop(own, None)
            for gate in own.later:
                gate.close()
        if self._above is not None:
            self._above._below.discard(self)
