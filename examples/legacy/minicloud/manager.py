"""Managers: what a service serves, and what it does from time to time."""

from nova import flags
from nova import log as logging
from nova import rpc

LOG = logging.getLogger(__name__)

FLAGS = flags.FLAGS


def periodic_task(*args, **kwargs):
    """Marks a method that each tick runs, or each ticks_between_runs-th."""
    def decorator(method):
        method._periodic_spacing = kwargs.get('ticks_between_runs', 0)
        return method

    if args:
        # Without arguments, the method itself is ours.
        return decorator(args[0])
    return decorator


class ManagerMeta(type):
    """Collects the periodic tasks of a class and of those above it."""

    def __init__(cls, name, bases, members):
        super(ManagerMeta, cls).__init__(name, bases, members)
        cls._periodic_tasks = dict(getattr(cls, '_periodic_tasks', {}))
        for key, value in members.items():
            if hasattr(value, '_periodic_spacing'):
                cls._periodic_tasks[key] = value._periodic_spacing


class Manager(object, metaclass=ManagerMeta):

    def __init__(self, host=None):
        self.host = host or FLAGS.host
        self._ticks_to_skip = dict(self._periodic_tasks)
        super(Manager, self).__init__()

    def init_host(self):
        """Called before the service consumes."""

    def periodic_tasks(self, context, raise_on_error=False):
        """Run what is due; a task that fails does not stop the others."""
        for name in sorted(self._periodic_tasks):
            if self._ticks_to_skip[name] > 0:
                self._ticks_to_skip[name] -= 1
                continue
            self._ticks_to_skip[name] = self._periodic_tasks[name]
            try:
                getattr(self, name)(context)
            except Exception as e:
                if raise_on_error:
                    raise
                LOG.exception(_('The periodic task %(name)s failed: %(e)s'),
                              {'name': name, 'e': e})


class SchedulerDependentManager(Manager):
    """A manager that tells the schedulers what its host can take."""

    def __init__(self, host=None, service_name='undefined'):
        self.last_capabilities = None
        self.service_name = service_name
        super(SchedulerDependentManager, self).__init__(host)

    def update_service_capabilities(self, capabilities):
        """Remember them for the next time they are published."""
        self.last_capabilities = capabilities

    @periodic_task
    def publish_service_capabilities(self, context):
        if not self.last_capabilities:
            return
        rpc.fanout_cast(context, FLAGS.scheduler_topic,
                        {'method': 'update_service_capabilities',
                         'args': {'service_name': self.service_name,
                                  'host': self.host,
                                  'capabilities': self.last_capabilities}})
