"""Steps that are not to be left half done."""

from __future__ import annotations

from collections.abc import Callable

import gevent

__all__ = ["uninterrupted"]


def uninterrupted(action: Callable[[], None]) -> None:
    """Run ``action`` to its end in a greenlet of its own; raise only then what is thrown at the caller meanwhile.

    Raises:
        BaseException: what was thrown at the caller first, or what ``action`` raised.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:  # the caller raises it
            raised.append(error)

    thrown: list[BaseException] = []
    worker = gevent.spawn(run)
    while not worker.ready():
        try:
            worker.join()
        except BaseException as error:  # raised below
            thrown.append(error)
    if problems := thrown + raised:
        raise problems[0]
