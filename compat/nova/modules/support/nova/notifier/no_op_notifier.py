"""``nova.openstack.common.notifier.no_op_notifier`` under the name that it had in Nova."""

import sys

from nova.openstack.common.notifier import no_op_notifier

sys.modules[__name__] = no_op_notifier
