"""``nova.openstack.common.notifier.rpc_notifier`` under the name that it had in Nova."""

import sys

from nova.openstack.common.notifier import rpc_notifier

sys.modules[__name__] = rpc_notifier
