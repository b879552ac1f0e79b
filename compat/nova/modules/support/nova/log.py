"""``nova.openstack.common.log`` under the name that it had until Essex."""

import sys

from nova.openstack.common import log

sys.modules[__name__] = log
