"""Serves uploads, or sends one: uploads.py serve ROUTER HOST, or uploads.py send ROUTER HOST MIB.

MIB 0 is without end. Each says how many MiB it has read, or was asked for, and how that has ended.
"""

import resource
import sys

import gevent

import rpcmq
from rpcmq.errors import RpcError

MIB = 1 << 20


class Files:
    def store(self, ctx, body):
        read = 0
        try:
            for chunk in body:
                if read % (4 * MIB) == 0:
                    print("read", read // MIB, flush=True)
                read += len(chunk)
        except RpcError as error:
            process = service.client.process
            print("broken", type(error).__name__, error, flush=True)
            print("kept", sum(each.queued_bytes for each in process.tasks.streams.open.values()), flush=True)
            raise
        return read

    def ping(self, ctx):
        return "pong"


def chunks(mib):
    sent = 0
    try:
        while not mib or sent < mib * 4:
            sent += 1
            if sent % 16 == 0:
                print("asked for", sent // 4, flush=True)
            yield bytes(MIB // 4)
    finally:
        print("closed", flush=True)


what, router, host, *rest = sys.argv[1:]
if what == "serve":
    service = rpcmq.Service("files", Files(), host=host, router=router)
    service.start()
    print("serving", flush=True)
    service.wait()
else:
    mib = int(rest[0])
    client = rpcmq.Client(router, f"to {host}")
    try:
        read = client.call(None, f"files.{host}", {"method": "store", "args": {"body": chunks(mib)}}, timeout=20)
        print("stored", read // MIB, flush=True)
    except RpcError as error:
        print("ended", type(error).__name__, error, flush=True)
    print("peak KiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
    gevent.sleep(0)
    client.close()
