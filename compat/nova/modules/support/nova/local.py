"""``nova.openstack.common.local`` under the name that it had in Essex."""

import sys

from nova.openstack.common import local

sys.modules[__name__] = local
