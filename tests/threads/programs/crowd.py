"""Programs of many plain threads that call at once: each scenario prints who has failed, the answers, and what is left.

crowd.py ROUTER SCENARIO
"""

import signal
import sys
import threading
import time
from collections.abc import Callable

from rpcmq import threads

URL = sys.argv[1]


def add(client: threads.Client, n: int) -> int:
    result: int = client.call(None, "compute", {"method": "add", "args": {"a": n}}, timeout=30)
    return result


def crowd(
    width: int, calls: int, after_each: Callable[[], object], meanwhile: Callable[[threads.Client], None]
) -> None:
    client = threads.Client(URL)
    add(client, 0)
    failed: list[str] = []
    answers: list[int] = []

    def run() -> None:
        try:
            for n in range(calls):
                assert add(client, n) == n
                answers.append(n)
                after_each()
        except Exception as error:
            failed.append(repr(error))

    running = [threading.Thread(target=run, daemon=True) for _ in range(width)]
    for thread in running:
        thread.start()
    meanwhile(client)
    for thread in running:
        thread.join(60)
    end = time.monotonic() + 30
    while client.process.calls.open and time.monotonic() < end:
        time.sleep(0.01)
    print(failed, len(answers), len(client.process.calls.open))


def calls_at_once() -> None:
    crowd(32, 100, lambda: None, lambda client: None)


def does_something_else() -> None:
    """Each thread that was woken does not call again at once: it wakes no other one."""
    crowd(32, 10, lambda: time.sleep(0.005), lambda client: None)


def interrupted() -> None:
    """Signals at any moment of the calls of one of the threads: the others get their answers."""

    def meanwhile(client: threads.Client) -> None:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        interrupts = 0
        while interrupts < 100:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.003 * (interrupts % 10) / 10)
                while True:
                    add(client, 1)
            except KeyboardInterrupt:
                interrupts += 1
        signal.signal(signal.SIGALRM, signal.SIG_IGN)

    crowd(16, 150, lambda: None, meanwhile)


globals()[sys.argv[2]]()
