"""Tests of the compute manager."""

import mox
from nose.plugins.skip import SkipTest

from nova import flags
from nova import rpc
from nova import test
from nova.notifier import test_notifier
from nova.rpc import common as rpc_common

from minicloud import compute_manager
from minicloud import exception
from minicloud import hypervisor

from tests import base

FLAGS = flags.FLAGS


class ComputeManagerTestCase(base.TestCase):

    def setUp(self):
        super(ComputeManagerTestCase, self).setUp()
        self.compute = compute_manager.ComputeManager(host='node1')

    def test_run_and_terminate(self):
        self.compute.run_instance(self.context, base.instance())
        self.assertEquals(self.compute.driver.free_memory_mb(),
                          FLAGS.host_memory_mb - 512)
        self.compute.terminate_instance(self.context, 'i-1')
        self.assertEquals(self.compute.driver.free_memory_mb(),
                          FLAGS.host_memory_mb)

    def test_terminate_unknown_instance(self):
        self.assertRaises(exception.InstanceNotFound,
                          self.compute.terminate_instance,
                          self.context, 'i-2')

    def test_notifications(self):
        self.compute.run_instance(self.context, base.instance())
        self.assertEquals([(x['event_type'], x['publisher_id'])
                           for x in test_notifier.NOTIFICATIONS],
                          [('compute.instance.create.start', 'compute.node1'),
                           ('compute.instance.create.end', 'compute.node1')])

    def test_driver_that_fails(self):
        driver = self.mox.CreateMock(hypervisor.FakeHypervisor)
        driver.spawn(mox.IsA(dict)).AndRaise(test.TestingException())
        self.mox.ReplayAll()
        compute = compute_manager.ComputeManager(host='node1', driver=driver)
        self.assertRaises(test.TestingException, compute.run_instance,
                          self.context, base.instance())
        self.assertEquals(len(test_notifier.NOTIFICATIONS), 1)

    def test_capabilities_are_published(self):
        self.mox.StubOutWithMock(rpc, 'fanout_cast')
        rpc.fanout_cast(self.context, 'scheduler',
                        {'method': 'update_service_capabilities',
                         'args': {'service_name': 'compute',
                                  'host': 'node1',
                                  'capabilities': {'free_memory_mb': 64}}})
        self.mox.ReplayAll()
        self.flags(host_memory_mb=64)
        self.compute.periodic_tasks(self.context, raise_on_error=True)

    def test_real_hypervisor(self):
        try:
            import libvirt  # noqa
        except ImportError:
            raise SkipTest(_('There is no libvirt here'))


class ComputeServiceTestCase(base.TestCase):
    """The manager as its callers see it."""

    def setUp(self):
        super(ComputeServiceTestCase, self).setUp()
        self.service = self.start_service('compute', host='node1')

    def _call(self, method, topic='compute.node1', **args):
        return rpc.call(self.context, topic,
                        {'method': method, 'args': args})

    def test_diagnostics(self):
        rpc.cast(self.context, 'compute.node1',
                 {'method': 'run_instance',
                  'args': {'instance': base.instance()}})
        rpc.cast(self.context, 'compute.node1',
                 {'method': 'reboot_instance', 'args': {'instance_id': 'i-1'}})
        # Casts run at once with the fake backend.
        self.assertEquals(self._call('get_diagnostics', instance_id='i-1'),
                          {'host': 'node1', 'asked_by': 'alice',
                           'name': 'web', 'reboots': 1})

    def test_unknown_instance(self):
        try:
            self._call('get_diagnostics', instance_id='i-2')
        except rpc_common.RemoteError as e:
            self.assertEquals(e.exc_type, 'InstanceNotFound')
            self.assertTrue('i-2' in e.value)
        else:
            self.fail('it was found')

    def test_instances_come_one_by_one(self):
        for name in ('b', 'a'):
            self.service.manager.driver.spawn(base.instance(id=name,
                                                            name=name))
        values = rpc.multicall(self.context, 'compute',
                               {'method': 'get_instances', 'args': {}})
        self.assertEquals([x['name'] for x in values], ['a', 'b'])

    def test_fanout(self):
        other = self.start_service('compute', host='node2')
        rpc.fanout_cast(self.context, 'compute',
                        {'method': 'refresh_security_group',
                         'args': {'group': 'web'}})
        for svc in (self.service, other):
            self.assertTrue('web' in svc.manager.refreshed)

    @test.skip_if(hypervisor.FakeHypervisor, 'The fake one has no console')
    def test_console(self):
        self._call('get_console_output', instance_id='i-1')
