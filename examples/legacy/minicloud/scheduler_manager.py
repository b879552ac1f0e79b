"""The scheduler knows which hosts live and what they have free."""

from nova import flags
from nova import log as logging
from nova import rpc
from nova import utils
from nova.openstack.common import cfg

from minicloud import exception
from minicloud import manager

LOG = logging.getLogger(__name__)

scheduler_opts = [
    cfg.IntOpt('service_down_time',
               default=60,
               help='seconds after its last report when a service is down'),
    ]

FLAGS = flags.FLAGS
FLAGS.register_opts(scheduler_opts)


class SchedulerManager(manager.Manager):

    def __init__(self, host=None):
        self.reports = {}
        self.capabilities = {}
        super(SchedulerManager, self).__init__(host)

    def update_service(self, context, service):
        """A service of some host lives."""
        key = (service['topic'], service['host'])
        self.reports[key] = dict(service, updated_at=utils.utcnow())

    def update_service_capabilities(self, context, service_name, host,
                                    capabilities):
        self.capabilities[(service_name, host)] = dict(capabilities)

    def get_services(self, context):
        """Return the last report of each service."""
        services = []
        for key in sorted(self.reports):
            service = dict(self.reports[key])
            del service['updated_at']
            service['up'] = self._is_up(key)
            service['capabilities'] = self.capabilities.get(key)
            services.append(service)
        return services

    def run_instance(self, context, instance):
        """Have the host with the most free memory run it; its name."""
        free = [(capabilities['free_memory_mb'], host)
                for (topic, host), capabilities in self.capabilities.items()
                if topic == FLAGS.compute_topic
                and self._is_up((topic, host))
                and capabilities['free_memory_mb'] >= instance['memory_mb']]
        if not free:
            raise exception.NoValidHost(memory_mb=instance['memory_mb'])
        memory_mb, host = max(free)
        # The host will say so itself, but not before the next instance.
        key = (FLAGS.compute_topic, host)
        self.capabilities[key] = {
            'free_memory_mb': memory_mb - instance['memory_mb']}
        rpc.cast(context,
                 rpc.queue_get_for(context, FLAGS.compute_topic, host),
                 {'method': 'run_instance', 'args': {'instance': instance}})
        LOG.audit(_('Instance %(id)s goes to %(host)s'),
                  {'id': instance['id'], 'host': host}, context=context)
        return host

    def _is_up(self, key):
        service = self.reports.get(key)
        if service is None:
            return False
        age = utils.utcnow() - service['updated_at']
        return age.total_seconds() <= FLAGS.service_down_time
