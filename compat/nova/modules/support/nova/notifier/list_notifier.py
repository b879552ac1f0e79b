"""``nova.openstack.common.notifier.list_notifier`` under the name that it had in Nova."""

import sys

from nova.openstack.common.notifier import list_notifier

sys.modules[__name__] = list_notifier
