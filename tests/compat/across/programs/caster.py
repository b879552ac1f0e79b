"""Casts, and ends at once, as a command of old did. caster.py TOPIC COUNT"""

import sys

import compat.nova

compat.nova.install(tree=False)

from nova import context, rpc  # noqa: E402

for number in range(int(sys.argv[2])):
    rpc.cast(context.get_admin_context(), sys.argv[1], {"method": "note", "args": {"value": number}})
