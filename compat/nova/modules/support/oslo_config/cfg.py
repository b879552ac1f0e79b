"""``nova.openstack.common.cfg`` under the name that it got after Havana."""

import sys

from nova.openstack.common import cfg

sys.modules[__name__] = cfg
