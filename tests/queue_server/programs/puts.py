"""Puts items as a plain program, a patched one, from many threads, or in the child of a fork as well.

Or it ends as soon as it has put them, in order or at once.
"""

from __future__ import annotations

import os
import sys

KIND, URL = sys.argv[1:3]
if KIND == "patched":
    from gevent import monkey

    monkey.patch_all()

import threading  # noqa: E402

import rpcmq  # noqa: E402
from rpcmq import rpc  # noqa: E402


def put(name: str) -> None:
    """Put five items."""
    for n in range(5):
        assert rpc.put(None, "billing", {"method": "charge", "args": {"invoice": f"{name} {n}"}}).is_new


def main() -> None:
    """Put as ``KIND`` says."""
    rpc.configure(rpcmq.Client(URL))
    put("main")
    if KIND == "exits":
        sys.exit()
    if KIND == "exits at once":
        os._exit(0)
    if KIND in ("threads", "patched"):
        threads = [threading.Thread(target=put, args=(f"thread {n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if KIND == "forked":
        child = os.fork()
        put("parent" if child else "child")
        if not child:
            rpc.client().close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    if KIND == "plain":
        assert "gevent" not in sys.modules
    rpc.client().close()
    print("all were put", flush=True)


main()
