"""``nova.openstack.common.notifier.api`` under the name that it had until Essex."""

import sys

from nova.openstack.common.notifier import api

sys.modules[__name__] = api
