"""Queue servers as real processes."""

from __future__ import annotations

import sys
from pathlib import Path

from rpcmq.testing.processes import Program

__all__ = ["QueueServerProcess"]


class QueueServerProcess(Program):
    """A queue server over the store ``where``; returns when it has opened that.

    Args:
        url: of its router.
        owner: the name of its router.
    """

    def __init__(self, url: str, where: Path | str, owner: str = "here", *arguments: str) -> None:
        command = [
            sys.executable, "-m", "rpcmq.queue_server", "--router", url, "--owner", owner, "--store", str(where),
            *arguments,
        ]  # fmt: skip
        super().__init__(command, name=f"queue server {owner}")

    def _await_ready(self) -> None:
        self.expect("are served")
