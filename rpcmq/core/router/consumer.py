"""Consumers and their credit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpcmq.core.router.least_busy import NOWHERE
from rpcmq.core.router.request import Delivery, Request
from rpcmq.core.router.waiting_queue import Queue

if TYPE_CHECKING:
    from rpcmq.core.router.link import Link
    from rpcmq.core.router.topics import Topic

__all__ = ["Consumer"]


class Consumer:
    """A process's registration on a topic. Mutated by the dispatch engine only."""

    __slots__ = (
        "accepts", "backlog", "credit", "granted", "in_flight", "level", "link", "peer_url", "progressed_at", "queues",
        "server", "settled", "stopping", "tag", "topic",
    )  # fmt: skip

    def __init__(self, link: Link, tag: int, topic: Topic, server: str, credit: int) -> None:
        self.link = link
        self.tag = tag
        self.topic = topic
        self.server = server
        #: The process's credit; and the credit in force, which is 0 while its link's window is full.
        self.granted = credit
        self.credit = 0 if link.is_full else credit
        self.accepts = link.accepts
        self.backlog: Queue[Request] = Queue(f"{topic.server(server).queue.name} (fanout)")
        #: The queues it takes messages from.
        self.queues = (topic.queue, topic.server(server).queue, self.backlog)
        self.in_flight: dict[bytes, Delivery] = {}
        self.settled = 0
        #: Time of its last answer, settlement, item or sign of life.
        self.progressed_at = 0.0
        #: URL of the process's peer socket; empty if it has none.
        self.peer_url = ""
        #: Its level in the topic's LeastBusy.
        self.level = NOWHERE
        self.stopping = False

    @property
    def ready(self) -> bool:
        """Whether it may be given work now."""
        return len(self.in_flight) < self.credit and not self.stopping and self.link.is_responsive
