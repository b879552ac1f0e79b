"""Peers that break the protocol: each error is counted, attributed to its link, logged, and told to the peer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import Action, Answer, Disconnect, LogEvent
from rpcmq.core.router.model import Link
from rpcmq.core.router.turns import ERROR_STEPS, Turns
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.wire import FIRST_NODE_KIND, KEY, KIND_AT
from rpcmq.wire.bodies import ErrorBody, RefusedBody

__all__ = ["ProtocolErrors", "refuse_connection"]


def refuse_connection(act: Callable[[Action], None], route: bytes, reason: str, text: str) -> None:
    """Tell the connection ``route`` why it is refused, and break it."""
    act(Answer(route, RefusedBody(reason=reason, text=shorten(text)).message()))
    act(Disconnect(route))


class ProtocolErrors:
    """Counts and answers protocol errors.

    Args:
        refused: where they are counted, by reason.
        turns: where the work is counted.
        answered: kinds of which a message that breaks the protocol is answered with an ERROR.
        act: takes answers to connections without a link, and events for the log.
    """

    def __init__(
        self, refused: Counter[str], turns: Turns, answered: Collection[int], act: Callable[[Action], None]
    ) -> None:
        self._refused = refused
        self._turns = turns
        self._answered = answered
        self._act = act

    def of_message(self, now: float, link: Link, message: bytes, error: ProtocolError) -> None:
        """Handle the error of one message; those after it are handled as ever."""
        text = self._count(link, error)
        kind = message[KIND_AT]
        # Whoever asks a plugged-in node waits for an answer, also where there is no such node.
        if kind in self._answered or kind >= FIRST_NODE_KIND:
            body = ErrorBody(outcome=Outcome.PROTOCOL, text=text, details={"reason": error.reason, **error.details})
            link.send(body.message(key=message[KEY]))

    def of_connection(self, route: bytes, link: Link | None, error: ProtocolError) -> None:
        """Handle the error of a whole batch, or of a message about the link itself."""
        text = self._count(link, error)
        refusal = RefusedBody(reason="protocol", text=text).message()
        if link is None:
            self._act(Answer(route, refusal))
        else:
            link.send_last(refusal)

    def _count(self, link: Link | None, error: ProtocolError) -> str:
        self._refused[error.reason] += 1
        self._turns.spent += ERROR_STEPS
        text = shorten(str(error))
        if link is not None:
            link.counters[f"refused {error.reason}"] += 1
            self._act(LogEvent("offence", f"{link.identity}: {text}", link.identity))
        return text
