"""The base of minicloud's tests."""

from nova import context
from nova import flags
from nova import test
from nova.notifier import test_notifier

from minicloud import service

FLAGS = flags.FLAGS


class TestCase(test.TestCase):

    def setUp(self):
        super(TestCase, self).setUp()
        self.flags(rpc_backend='nova.rpc.impl_fake',
                   notification_driver='nova.notifier.test_notifier',
                   boot_seconds=0.0,
                   snapshot_seconds=0.0)
        test_notifier.NOTIFICATIONS = []
        self.context = context.RequestContext('alice', 'demo')

    def start_service(self, name, host='node1', **kwargs):
        manager = 'minicloud.%s_manager.%sManager' % (name, name.title())
        # No timer runs in a test that does not ask for it.
        kwargs.setdefault('report_interval', 0)
        kwargs.setdefault('periodic_interval', 0)
        svc = service.Service.create(binary='minicloud-%s' % name,
                                     manager=manager, host=host, **kwargs)
        svc.start()
        self._services.append(svc)
        return svc


def instance(**values):
    """An instance as the API makes it."""
    return dict({'id': 'i-1', 'name': 'web', 'memory_mb': 512,
                 'user_id': 'alice'}, **values)
