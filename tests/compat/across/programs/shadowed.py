"""One end of a call that is watched in shadow mode.

shadowed.py serve STATE | shadowed.py call SHADOW
"""

import logging
import sys

import compat.nova

compat.nova.install()

from nova import context, flags, rpc  # noqa: E402


class Manager:
    def get_state(self, context):
        return {"state": sys.argv[2]}

    def reboot(self, context):
        return sys.argv[2]


if sys.argv[1] == "serve":
    connection = rpc.create_connection(new=True)
    connection.create_consumer("compute", Manager())
    thread = connection.consume_in_thread()
    print("serving")
    thread.join()
else:
    from compat.nova import shadow
    from rpcmq.testing import eventually

    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    flags.FLAGS.rpcmq_shadow = sys.argv[2]
    ctxt = context.get_admin_context()
    print("first says", rpc.call(ctxt, "compute", {"method": "get_state", "args": {}})["state"])
    print("first says", rpc.call(ctxt, "compute", {"method": "reboot", "args": {}}))
    watched = shadow.current()
    assert watched is not None
    counts = watched.counts
    eventually(lambda: sum(counts.values()), 20)
    print("counts", dict(counts))
    rpc.cleanup()
