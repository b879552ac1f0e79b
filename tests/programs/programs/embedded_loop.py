"""A kernel as that of a notebook: an asyncio loop in the main thread, in which cells are run one by one.

    embedded_loop.py

A cell is a line of standard input, with "; " for line breaks. As in ipykernel, ``await`` may stand in it, its last
expression is shown, SIGINT interrupts it, and the loop goes on between cells.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import signal
import sys
from typing import Any

names: dict[str, Any] = {}


async def run(cell: str) -> None:
    """Run a cell and print ``Out`` with its value, or ``Error``."""
    tree = ast.parse(cell.replace("; ", "\n"))
    if isinstance(tree.body[-1], ast.Expr):
        tree.body[-1] = ast.Assign([ast.Name("_", ast.Store())], tree.body[-1].value)
    names["_"] = None
    code = compile(ast.fix_missing_locations(tree), "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    try:
        found = eval(code, names)
        if inspect.iscoroutine(found):
            await found
    except (Exception, KeyboardInterrupt, asyncio.CancelledError) as error:
        print("Error", type(error).__name__, error, flush=True)
    else:
        print("Out", json.dumps(names["_"], default=repr), flush=True)


async def main() -> None:
    loop = asyncio.get_running_loop()
    cells: asyncio.Queue[str] = asyncio.Queue()
    loop.add_reader(sys.stdin, lambda: cells.put_nowait(sys.stdin.readline()))
    print("ready", flush=True)
    while cell := (await cells.get()).strip():
        task = loop.create_task(run(cell))
        previous = signal.signal(signal.SIGINT, interrupter(loop, task))
        try:
            await asyncio.wait([task])
        finally:
            signal.signal(signal.SIGINT, previous)


def interrupter(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> Any:
    """Raise KeyboardInterrupt in a cell that computes or blocks; cancel one that awaits."""

    def interrupt(number: int, frame: object) -> None:
        if asyncio.current_task(loop) is task:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(task.cancel)

    return interrupt


asyncio.run(main())
