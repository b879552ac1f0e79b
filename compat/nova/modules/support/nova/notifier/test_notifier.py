"""``nova.openstack.common.notifier.test_notifier`` under the name that it had in Nova."""

import sys

from nova.openstack.common.notifier import test_notifier

sys.modules[__name__] = test_notifier
