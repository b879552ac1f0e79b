"""Exceptions that a signal's handler raises, at any step of the code of given files."""

from __future__ import annotations

import dis
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
) -> bool:
    """Run ``operation``, and raise ``error`` at its step number ``step``; return False if it has fewer.

    Args:
        files: names of the files whose instructions count as steps.
        each_instruction: before each of them; else only where Python runs the handlers of signals: at the beginning of
            a function, after a call, and where a loop begins anew.
    """
    left = step
    last: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if Path(frame.f_code.co_filename).name not in files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            before = last.get(frame)
            last[frame] = frame.f_code.co_code[frame.f_lasti]
            if each_instruction or (before is not None and _runs_handlers(dis.opname[before])):
                left -= 1
                if left == -1:
                    raise error
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        operation()
    except error:
        pass
    finally:
        sys.settrace(outer)
    return left < 0


def _runs_handlers(instruction: str) -> bool:
    is_jump = "BACKWARD" in instruction and "NO_INTERRUPT" not in instruction
    return is_jump or instruction == "RESUME" or instruction.startswith("CALL")
