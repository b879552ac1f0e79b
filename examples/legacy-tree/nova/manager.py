"""Base class of managers, whose methods a service calls for messages and periodically."""

from nova import flags
from nova.openstack.common import log as logging
from nova.openstack.common.rpc import dispatcher as rpc_dispatcher

FLAGS = flags.FLAGS
LOG = logging.getLogger(__name__)


def periodic_task(*args, **kwargs):
    """Marks a method that is run at every n-th tick."""

    def decorator(f):
        f._periodic_task = True
        f._ticks_between_runs = kwargs.pop('ticks_between_runs', 0)
        return f

    if kwargs:
        return decorator
    else:
        return decorator(args[0])


class ManagerMeta(type):

    def __init__(cls, names, bases, dict_):
        super(ManagerMeta, cls).__init__(names, bases, dict_)
        cls._periodic_tasks = []
        cls._ticks_to_skip = {}
        for value in cls.__dict__.values():
            if getattr(value, '_periodic_task', False):
                cls._periodic_tasks.append((value.__name__, value))
                cls._ticks_to_skip[value.__name__] = value._ticks_between_runs
        cls._periodic_tasks.sort(key=lambda (name, task): name)


class Manager(object):
    __metaclass__ = ManagerMeta

    RPC_API_VERSION = '1.0'

    def __init__(self, host=None):
        if not host:
            host = FLAGS.host
        self.host = host
        super(Manager, self).__init__()

    def create_rpc_dispatcher(self):
        """Return the dispatcher for the messages of this manager."""
        return rpc_dispatcher.RpcDispatcher([self])

    def periodic_tasks(self, context, raise_on_error=False):
        for task_name, task in self._periodic_tasks:
            ticks_to_skip = self._ticks_to_skip[task_name]
            if ticks_to_skip > 0:
                self._ticks_to_skip[task_name] -= 1
                continue
            self._ticks_to_skip[task_name] = task._ticks_between_runs
            try:
                task(self, context)
            except Exception as e:
                if raise_on_error:
                    raise
                LOG.exception(_("Error during %(name)s: %(e)s") %
                              {'name': task_name, 'e': e})

    def init_host(self):
        """Called before the service takes messages."""
        pass
