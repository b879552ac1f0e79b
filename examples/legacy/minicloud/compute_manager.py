"""The compute manager runs the instances of its host."""

from nova import flags
from nova import log as logging
from nova.notifier import api as notifier

from minicloud import hypervisor
from minicloud import manager

LOG = logging.getLogger(__name__)

FLAGS = flags.FLAGS


class ComputeManager(manager.SchedulerDependentManager):

    def __init__(self, host=None, driver=None):
        self.driver = driver or hypervisor.FakeHypervisor()
        self.refreshed = []
        super(ComputeManager, self).__init__(host=host,
                                             service_name='compute')

    def init_host(self):
        self._update_capabilities()

    def run_instance(self, context, instance):
        LOG.audit(_('Instance %s is started'), instance['id'],
                  context=context)
        self._notify('create.start', instance)
        self.driver.spawn(instance)
        self._update_capabilities()
        self._notify('create.end', instance)

    def terminate_instance(self, context, instance_id):
        instance = self.driver.get(instance_id)
        self.driver.destroy(instance_id)
        self._update_capabilities()
        self._notify('delete.end', instance)

    def reboot_instance(self, context, instance_id):
        self.driver.reboot(instance_id)

    def snapshot_instance(self, context, instance_id):
        """The name of the image; it takes a while."""
        return self.driver.snapshot(instance_id)

    def get_diagnostics(self, context, instance_id):
        instance = self.driver.get(instance_id)
        return {'host': self.host,
                'asked_by': context.user_id,
                'name': instance['name'],
                'reboots': instance['reboots']}

    def get_instances(self, context):
        """One reply for each instance."""
        for instance in sorted(self.driver.instances.values(),
                               key=lambda x: x['name']):
            yield instance

    def refresh_security_group(self, context, group):
        """Sent to all hosts at once."""
        self.refreshed.append(group)

    def get_host(self, context):
        return {'host': self.host,
                'instances': len(self.driver.instances),
                'refreshed': self.refreshed}

    @manager.periodic_task
    def _update_capabilities(self, context=None):
        free = self.driver.free_memory_mb()
        self.update_service_capabilities({'free_memory_mb': free})

    def _notify(self, what, instance):
        notifier.notify(notifier.publisher_id('compute', self.host),
                        'compute.instance.%s' % what, notifier.INFO,
                        {'instance_id': instance['id'], 'host': self.host})
