"""``python -m rpcmq``: the ``rpcmq`` command."""

import sys

from rpcmq.cli import main

# A process is listed under the name of its program, which is not "__main__".
sys.argv[0] = "rpcmq"
main()
