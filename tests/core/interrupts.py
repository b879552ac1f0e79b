"""Exceptions that a signal's handler raises, at any step of the code of given files."""

from __future__ import annotations

import dis
import gc
import signal
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["is_interrupted"]


def is_interrupted(
    step: int,
    operation: Callable[[], object],
    files: Collection[str],
    error: type[BaseException] = KeyboardInterrupt,
    *,
    each_instruction: bool = True,
    again: int | None = None,
) -> bool:
    """Run ``operation``, and raise ``error`` at its step number ``step``; return False if it has fewer.

    Garbage is not collected meanwhile: what is raised in a finalizer goes nowhere, whatever it was called for.

    Args:
        files: names of the files whose instructions count as steps.
        each_instruction: before each of them; else only where Python runs the handlers of signals: at the beginning of
            a function, at the end of a call of one that is not Python's, and where a loop begins anew; and nowhere
            while this thread holds back signals.
        again: raise ``error`` a second time, so many steps after the first.
    """
    steps = _Steps(step, files, error, each_instruction, again)
    outer, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    if not each_instruction:
        sys.setprofile(steps.profile)
    # Python 3.12 has events of instructions only if a frame has asked for them before.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(steps.trace)
    try:
        operation()
    except error:
        pass
    finally:
        sys.settrace(outer)
        sys.setprofile(None)
        if collects:
            gc.enable()
    return steps.has_raised


class _Steps:
    """Counts steps, and raises at one of them.

    Python drops the function, of the two, that has raised: the other one goes on to the second time.
    """

    def __init__(
        self, left: int, files: Collection[str], error: type[BaseException], each: bool, again: int | None
    ) -> None:
        self._left, self._files, self._error, self._each, self._again = left, files, error, each, again
        self._last: dict[FrameType, int] = {}
        #: Frames in which a call has just ended that is no step any more.
        self._called: set[FrameType] = set()
        self.has_raised = False

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "call" and frame.f_back is not None:
            self._called.add(frame.f_back)
        if not self._is_counted(frame):
            return None
        frame.f_trace_opcodes = True
        # An instruction without a line is the compiler's own, such as of a generator that is closed; an exception there
        # goes nowhere.
        if event == "opcode" and frame.f_lineno is not None:
            before = self._last.get(frame)
            self._last[frame] = frame.f_code.co_code[frame.f_lasti]
            if self._each or (before is not None and _runs_handlers(dis.opname[before], frame in self._called)):
                self._step()
            self._called.discard(frame)
        return self.trace

    def profile(self, frame: FrameType, event: str, arg: Any) -> None:
        # The exception belongs to the call, as that of a handler does, and not to the next instruction.
        if event == "c_return" and self._is_counted(frame):
            self._called.add(frame)
            self._step()

    def _is_counted(self, frame: FrameType) -> bool:
        path = frame.f_code.co_filename
        return path != __file__ and Path(path).name in self._files

    def _step(self) -> None:
        if not self._each and signal.pthread_sigmask(signal.SIG_BLOCK, ()):
            return
        self._left -= 1
        if self._left == -1:
            if self._again is not None and not self.has_raised:
                self._left = self._again
            self.has_raised = True
            raise self._error


def _runs_handlers(instruction: str, has_called: bool) -> bool:
    is_jump = "BACKWARD" in instruction and "NO_INTERRUPT" not in instruction
    return is_jump or instruction == "RESUME" or (instruction.startswith("CALL") and not has_called)
