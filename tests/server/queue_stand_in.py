"""Stands for a queue server: says who it is, and behaves as it is told.

It writes its pid to the file ``starts`` of its directory at each start, and the signals that it got to ``signals``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=Path)
    parser.add_argument("behaviour", choices=("serve", "refuse", "die", "slow", "deaf", "loud"))
    parser.add_argument("--router", required=True)
    parser.add_argument("--status-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--key-fd", type=int)
    given, flags = parser.parse_known_args()

    def note(file: str, text: object) -> None:
        with (given.place / file).open("a") as out:
            out.write(f"{text}\n")

    def say(waits_for: str = "", **more: object) -> None:
        said = {"pid": os.getpid(), "url": given.router, "flags": flags, "waits_for": waits_for, **more}
        data = json.dumps(said).encode() + b"\n"
        while data:
            try:
                data = data[os.write(given.status_fd, data) :]
            except BlockingIOError:
                if os.getppid() != given.parent:
                    return
                time.sleep(0.001)

    def on_signal(number: int, frame: object) -> None:
        note("signals", signal.Signals(number).name)
        if given.behaviour == "deaf" or (given.behaviour == "slow" and number == signal.SIGTERM):
            return
        sys.exit(0)

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    if given.key_fd is not None:
        note("key", Path(f"/proc/self/fd/{given.key_fd}").read_text())
    if given.behaviour == "refuse":
        say("its store is of a later version")
        note("starts", os.getpid())
        return 2
    # Before it is seen, and may be killed.
    note("starts", os.getpid())
    say(filling="x" * (3 << 20) if given.behaviour == "loud" else "")
    if given.behaviour == "die":
        return 7
    while True:
        time.sleep(0.05)
        say(parent=os.getppid())


if __name__ == "__main__":
    sys.exit(main())
