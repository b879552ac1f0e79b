"""The router's WELCOME: whether the session goes on, and what was in flight if it does not."""

from __future__ import annotations

__all__ = ["Welcome"]


class Welcome:
    """The router's WELCOME, and the fate of the messages sent before it.

    Attributes:
        resumed: nothing was lost; the rest is empty then.
        sent: messages sent in the earlier session that were never acknowledged.
        unsent: messages that were never sent.
        same_handle: the keys of earlier messages are still ours.
        next_life: it is the router that we had before, and has been started since.
        elsewhere: it was reached by another url than the last one that welcomed us.
        drained: the last one had drained before it ended: it has told all that it had delivered.
    """

    __slots__ = ("drained", "elsewhere", "next_life", "resumed", "same_handle", "sent", "unsent")

    def __init__(
        self, resumed: bool, same_handle: bool, sent: list[bytes], unsent: list[bytes], next_life: bool = False,
        elsewhere: bool = False, drained: bool = False,
    ) -> None:  # fmt: skip
        self.resumed = resumed
        self.next_life = next_life
        self.elsewhere = elsewhere
        self.drained = drained
        self.same_handle = same_handle
        self.sent = sent
        self.unsent = unsent
