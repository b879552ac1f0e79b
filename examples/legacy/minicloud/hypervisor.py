"""A hypervisor that only takes its time."""

import time

from nova import flags
from nova import log as logging
from nova.openstack.common import cfg

from minicloud import exception

LOG = logging.getLogger(__name__)

hypervisor_opts = [
    cfg.IntOpt('host_memory_mb',
               default=8192,
               help='memory of this host'),
    cfg.FloatOpt('boot_seconds',
                 default=0.05,
                 help='seconds that the start of an instance takes'),
    cfg.FloatOpt('snapshot_seconds',
                 default=0.2,
                 help='seconds that a snapshot takes'),
    ]

FLAGS = flags.FLAGS
FLAGS.register_opts(hypervisor_opts)


class FakeHypervisor(object):

    def __init__(self):
        self.instances = {}

    def spawn(self, instance):
        time.sleep(FLAGS.boot_seconds)
        self.instances[instance['id']] = dict(instance, reboots=0)

    def destroy(self, instance_id):
        self.get(instance_id)
        del self.instances[instance_id]

    def reboot(self, instance_id):
        self.get(instance_id)['reboots'] += 1

    def snapshot(self, instance_id):
        instance = self.get(instance_id)
        LOG.info(_('Snapshot of %s begins'), instance_id)
        time.sleep(FLAGS.snapshot_seconds)
        return 'image-of-%s' % instance['name']

    def get(self, instance_id):
        try:
            return self.instances[instance_id]
        except KeyError:
            raise exception.InstanceNotFound(instance_id=instance_id)

    def free_memory_mb(self):
        used = sum(x['memory_mb'] for x in self.instances.values())
        return FLAGS.host_memory_mb - used
