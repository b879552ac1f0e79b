"""``nova.openstack.common.cfg`` under the name that it had until Essex m3."""

import sys

from nova.openstack.common import cfg

sys.modules[__name__] = cfg
