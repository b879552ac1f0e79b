"""``nova.openstack.common.cfg`` under the name that it has from Grizzly on."""

import sys

from nova.openstack.common import cfg

sys.modules[__name__] = cfg
