"""Views that processes asked for: the questions that wait, and the view that is being made.

Views cost the router far more than the messages that ask for them, so all who ask share one budget: views are made one
at a time, in small steps (:meth:`Queries.step`), and the shell says when and for how long. Links take turns; one
making of a view answers one question of each link that had asked for it before it began. A view is therefore not of
one instant, and never older than the question.

A link has at most ``MAX_ASKED`` questions waiting. While it is away they rest, and they go with the link.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

from rpcmq.core.router.base_link import outgoing_bytes
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.model import Link
from rpcmq.core.router.steps import Steps
from rpcmq.core.router.turns import ERROR_STEPS, Turns
from rpcmq.core.router.view_rows import View
from rpcmq.errors import Outcome
from rpcmq.wire import Kind, json_bytes, pack
from rpcmq.wire.bodies import ErrorBody

__all__ = ["MAX_ASKED", "Queries", "encoded"]

#: Questions of one link that wait; the next is refused.
MAX_ASKED = 64
#: Bytes that wait for a link before it is sent no view.
_MAX_WAITING_BYTES = 16 << 20
#: Rows that are encoded in one step.
_ROWS = 16


def encoded(answer: dict[str, Any]) -> Steps[bytes]:
    """``answer`` as compact JSON."""
    members: list[bytes] = []
    for name, value in answer.items():
        if type(value) is not list:
            members.append(json_bytes({name: value})[1:-1])
            continue
        rows: list[bytes] = []
        for first in range(0, len(value), _ROWS):
            rows.append(json.dumps(value[first : first + _ROWS], separators=(",", ":")).encode()[1:-1])
            yield
        members.append(json.dumps(name).encode() + b":[" + b",".join(rows) + b"]")
    return b"{" + b",".join(members) + b"}"


class Queries:
    """Takes questions, and makes and sends views step by step.

    Args:
        make_view: the steps that make the view of a name at a time; raises ProtocolError if there is none.
        turns: where work is counted.
    """

    def __init__(self, make_view: Callable[[float, str], View], turns: Turns) -> None:
        self._make_view = make_view
        self._turns_of_all = turns
        #: Key and view of what each link has asked, the oldest first.
        self._asked: dict[Link, deque[tuple[bytes, str]]] = {}
        #: Links that are connected and have asked, in their turns.
        self._turns: deque[Link] = deque()
        self._steps: Steps[bytes] | None = None
        self._payload = b""
        #: The links, and their keys, that get the view that is made, or was.
        self._takers: list[tuple[Link, bytes]] = []
        self._what = ""

    @property
    def is_anybody_waiting(self) -> bool:
        """Whether there is a step to take."""
        return bool(self._turns or self._takers)

    def ask(self, now: float, link: Link, key: bytes, what: str) -> None:
        """``link`` wants the view ``what``; its question has ``key``.

        Raises:
            ProtocolError: there is no such view.
        """
        self._make_view(now, what).close()
        asked = self._asked.get(link)
        if asked is None:
            asked = self._asked[link] = deque()
            self._turns.append(link)
        if len(asked) >= MAX_ASKED:
            text = (
                f"{len(asked)} views that this process asked for are still to be made; at most {MAX_ASKED} are allowed"
            )
            self._refuse(link, key, text)
            return
        asked.append((key, what))

    def connected(self, link: Link) -> None:
        """``link``, which may have been away, is there: its questions have their turns again."""
        if link in self._asked and link not in self._turns:
            self._turns.append(link)

    def forget(self, link: Link) -> None:
        """``link`` has ended."""
        if self._asked.pop(link, None) is not None and link in self._turns:
            self._turns.remove(link)

    def step(self, now: float) -> int:
        """Take one step of about 0.1 ms, if there is one to take.

        Returns:
            Bytes of the view that was sent by it.

        Raises:
            Exception: the view could not be made; those who wait for it are told.
        """
        if self._steps is not None:
            self._make(now)
        elif self._takers:
            link, key = self._takers.pop()
            if not self._takers:
                payload, self._payload = self._payload, b""
            else:
                payload = self._payload
            return self._answer(link, key, payload)
        elif self._turns:
            self._begin(now)
        return 0

    def _begin(self, now: float) -> None:
        """Begin with the oldest question of the link whose turn it is, for all who have asked the same."""
        while self._turns and not self._is_here(self._turns[0]):
            # Nobody reads the answer; if the link comes back its questions are where they were.
            self._turns.popleft()
        if not self._turns:
            return
        self._what = self._asked[self._turns[0]][0][1]
        served: list[Link] = []
        for link in self._turns:
            asked = self._asked[link]
            key = next((key for key, what in asked if what == self._what), None)
            if key is not None and self._is_here(link):
                asked.remove((key, self._what))
                self._takers.append((link, key))
                served.append(link)
        served_links = set(served)
        self._turns = deque(link for link in self._turns if link not in served_links)
        for link in served:
            if self._asked[link]:
                self._turns.append(link)
            else:
                del self._asked[link]
        self._steps = self._all_steps(now, self._what)

    def _is_here(self, link: Link) -> bool:
        return link.route is not None

    def _all_steps(self, now: float, what: str) -> Steps[bytes]:
        answer = yield from self._make_view(now, what)
        return (yield from encoded(answer))

    def _make(self, now: float) -> None:
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration as end:
            self._payload, self._steps = end.value, None
        except Exception:
            takers, self._takers, self._steps = self._takers, [], None
            for link, key in takers:
                self._refuse(link, key, "the router failed to make this view; its log has the error")
            raise

    def _answer(self, link: Link, key: bytes, payload: bytes) -> int:
        if link.state is LinkState.ENDED:
            return 0
        if not self._is_here(link):
            self._asked.setdefault(link, deque()).appendleft((key, self._what))
        elif (waiting := outgoing_bytes(link)) > _MAX_WAITING_BYTES:
            self._refuse(link, key, f"{waiting} bytes wait for this process already")
        else:
            link.send(pack(Kind.ANSWER, payload, format=1, key=key))
            return len(payload)
        return 0

    def _refuse(self, link: Link, key: bytes, text: str) -> None:
        if link.state is not LinkState.ENDED:
            self._turns_of_all.spent += ERROR_STEPS
            body = ErrorBody(outcome=Outcome.OVERLOADED, text=text, details={"limit": "views"})
            link.send(body.message(key=key))
