"""Links that ask a router for views without pause, and read the answers: views.py ROUTER LINKS."""

import sys
from itertools import count, cycle

import zmq

from rpcmq.wire import Address, Kind, body_of, control, pack, split

VIEWS = cycle(("overview", "topics", "methods", "stuck", "calls", "stats"))
context = zmq.Context()
links = []
for number in range(int(sys.argv[2])):
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.sndhwm = 100
    socket.connect(sys.argv[1])
    socket.send(control(Kind.HELLO, {"identity": f"views-{number}", "queue_type": "roundrobin", "versions": [1]}))
    message = split(socket.recv())[0]
    assert message[5] == Kind.WELCOME
    welcome = body_of(message)
    links.append((socket, welcome["router_id"].to_bytes(4) + welcome["handle"].to_bytes(8)))
sequence = count(1)
for number in range(3000):
    socket, origin = links[0]
    address = Address(f"nobody-{number}").encode()
    socket.send(pack(Kind.CAST, b"{}", key=origin + next(sequence).to_bytes(8), format=1, address=address))
print("asking", flush=True)
while True:
    for socket, origin in links:
        socket.send(control(Kind.QUERY, {"what": next(VIEWS)}, key=origin + next(sequence).to_bytes(8)))
        while socket.poll(0):
            socket.recv_multipart()
