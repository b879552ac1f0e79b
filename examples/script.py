"""A script: reboots the instances that are not active, and ends.

    python -m examples.script [--user NAME]

``RPCMQ_ROUTER`` names the router; compute_service.py is the service.
"""

from __future__ import annotations

import argparse
import sys

from examples.compute_service import Compute
from rpcmq import as_cast, rpc
from rpcmq.errors import CallError, RouterUnreachable


def main() -> int:
    parser = argparse.ArgumentParser(description="Reboot the instances that are not active.")
    parser.add_argument("--user", default="nobody", help="on whose behalf")
    ctx = {"user": parser.parse_args().user}
    compute = rpc.stub(Compute, "compute", timeout=5)
    try:
        for instance_id in compute.list_instances(ctx):
            state = compute.show(ctx, instance_id)
            print(f"{instance_id}: {state}")
            if state != "active":
                # The end of the program hands over what was cast.
                as_cast(compute.reboot)(ctx, instance_id)
    except (CallError, RouterUnreachable) as error:
        print(f"script: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
