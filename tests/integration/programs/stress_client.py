"""The near end of the stress test: calls, streams and casts of random sizes, in bursts and with pauses.

    stress_client.py ROUTER MESSAGES SEED

Twice a second it tells how many messages have gone to and fro; at the end what it found.
"""

import faulthandler
import signal
import sys
from random import Random
from time import monotonic

import gevent
from gevent.event import Event

import rpcmq

faulthandler.register(signal.SIGUSR1, all_threads=False)
router, wanted, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random = Random(seed)
BYTES = random.randbytes(2_000_000)
client = rpcmq.Client(router, "near", timeout=60)
messages = 0
sent_casts = 0
back: list[int] = []
came_back = Event()


class Near:
    def back(self, ctx: object, payload: bytes, number: int) -> None:
        global messages
        messages += 1
        back.append(number)
        came_back.set()


def size() -> int:
    """Mostly small, at times around the sizes where the transport changes its way, at times large."""
    kind = random.random()
    if kind < 0.9:
        return random.randrange(300)
    if kind < 0.97:
        return random.randrange(20_000)
    if kind < 0.995:
        return random.randrange(32_700, 32_830)
    if kind < 0.9995:
        return random.randrange(300_000)
    return random.randrange(2_000_000)


def call() -> None:
    global messages
    asked = size()
    answer = client.call(None, "far", {"method": "echo", "args": {"payload": BYTES[: size()], "size": asked}})
    assert len(answer) == asked
    messages += 2


def stream() -> None:
    global messages
    sizes = [size() for _ in range(random.randrange(40))]
    items = client.multicall(None, "far", {"method": "stream", "args": {"sizes": sizes}})
    assert [len(item) for item in items] == sizes
    messages += 2 + len(sizes)


def cast() -> None:
    global messages, sent_casts
    args = {"payload": BYTES[: size()], "size": size(), "number": sent_casts}
    sent_casts += 1
    messages += 1
    client.cast(None, "far", {"method": "back", "args": args})


def work(turns: int) -> None:
    for _ in range(turns):
        kind = random.random()
        (call if kind < 0.6 else cast if kind < 0.99 else stream)()
        if kind > 0.98:
            gevent.sleep(random.random() * 0.003)


def tell() -> None:
    while True:
        print("at", messages)
        gevent.sleep(0.5)


service = rpcmq.Service("near", Near(), host="near", client=client, concurrency=200)
service.start()
gevent.spawn(tell)
while messages < wanted:
    width = random.choice((1, 1, 2, 8, 64, 64, 200))
    turns = max(1, 2000 // width // (10 if width == 1 else 1))
    gevent.joinall([gevent.spawn(work, turns) for _ in range(width)], raise_error=True)
    gevent.sleep(random.choice((0.0, 0.0, 0.01)))
deadline = monotonic() + 60
while len(back) < sent_casts and monotonic() < deadline:
    came_back.clear()
    came_back.wait(1.0)
lost = client.process.connection.lost_wakeups
print("done", messages, "casts", sent_casts, "back", len(back), "once", len(set(back)), "lost_wakeups", lost)
client.close()
