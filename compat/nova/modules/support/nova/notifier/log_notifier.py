"""``nova.openstack.common.notifier.log_notifier`` under the name that it had in Nova."""

import sys

from nova.openstack.common.notifier import log_notifier

sys.modules[__name__] = log_notifier
