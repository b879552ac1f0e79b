"""The account of a salvage: everything that was saved, is lost, or is in doubt."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Queue", "Report"]


@dataclass
class Queue:
    """The items of one queue in the new store.

    Attributes:
        ready, postponed, dead: the numbers of items by state.
        lost: (priority, first number, last number) of items that had been put and are not there. Some may have ended.
        is_end_lost: priorities of which the items that were put last are lost, so that their number is not known.
        may_run_again: items that are there, and may have ended: the record of that is lost.
    """

    ready: int = 0
    postponed: int = 0
    dead: int = 0
    lost: list[tuple[int, int, int]] = field(default_factory=list)
    is_end_lost: list[int] = field(default_factory=list)
    may_run_again: int = 0

    @property
    def lost_count(self) -> int:
        """The number of items that are lost, as far as it is known."""
        return sum(last - first + 1 for _, first, last in self.lost)


@dataclass
class Report:
    """The account.

    Attributes:
        pages: number of pages of the file.
        is_checked: whether these have checksums; else some of what is wrong may not be noticed.
        unreadable: pages that cannot be read.
        mended: pages of which a bit was put right.
        log_pages_lost: pages of the write-ahead log that cannot be read.
        is_last_commit_left_out: whether the last commit of the log is not whole.
        queues: by name.
        unplaced: items whose queue is not known; they are among the dead of a queue for them.
        notices: all else that is lost, and its consequence, in sentences.
    """

    pages: int = 0
    is_checked: bool = True
    unreadable: list[int] = field(default_factory=list)
    mended: list[int] = field(default_factory=list)
    log_pages_lost: int = 0
    is_last_commit_left_out: bool = False
    queues: dict[str, Queue] = field(default_factory=dict)
    unplaced: int = 0
    notices: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether everything was saved, and nothing is in doubt."""
        in_doubt = any(each.lost or each.is_end_lost or each.may_run_again for each in self.queues.values())
        return not (in_doubt or self.unplaced or self.notices or self.log_pages_lost or self.is_last_commit_left_out)

    def queue(self, name: str) -> Queue:
        """That of a queue."""
        return self.queues.setdefault(name, Queue())
