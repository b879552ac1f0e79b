"""``rpc_notifier`` under its older name."""

import sys

from nova.openstack.common.notifier import rpc_notifier

sys.modules[__name__] = rpc_notifier
