"""A service whose workers oslo.service itself forks, watches and ends: its own launcher for each kind of process.

Arguments: kind of process, url, file in which workers write what they begin and end. SIGTERM ends it, or one worker.
"""

import sys

import kinds

kind, url, path = sys.argv[1:]
kinds.become(kind)

import os

import oslo_messaging
from journal import Endpoint
from oslo_config import cfg
from oslo_service import service

WORKERS, THREADS = 4, 4
endpoint = Endpoint(path)
transport = kinds.transport(url)


class Worker(service.Service):
    """As services of Nova are: a server for each worker, which ends what it has begun."""

    server = None

    def start(self):
        super().start()
        target = oslo_messaging.Target(topic="faults", server=f"worker-{os.getpid()}")
        self.server = oslo_messaging.get_rpc_server(transport, target, [endpoint])
        self.server.start(override_pool_size=THREADS)
        os.write(1, f"worker {os.getpid()}\n".encode())

    def stop(self, graceful=False):
        # In the parent, too, where there is none.
        if self.server is not None:
            self.server.stop()
            self.server.wait()
            os.write(1, f"ended {os.getpid()} 0\n".encode())
        super().stop(graceful)


# In use before it forks, as that of a service which notifies of its start.
transport._send(oslo_messaging.Target(topic="nobody-yet", fanout=True), {}, {"method": "started"})
conf = cfg.ConfigOpts()
conf([])
try:
    # It ends by SystemExit in one of both kinds.
    service.launch(conf, Worker(), workers=WORKERS).wait()
finally:
    os.write(1, b"codes [0, 0, 0, 0]\n")
