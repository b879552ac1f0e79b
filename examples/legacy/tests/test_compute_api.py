"""Tests of the API's side: with services in this process, and without."""

from nova import rpc
from nova import utils
from nova.rpc import common as rpc_common

from minicloud import compute_api
from minicloud import exception

from tests import base


class ComputeAPITestCase(base.TestCase):

    def setUp(self):
        super(ComputeAPITestCase, self).setUp()
        self.api = compute_api.API()

    def test_diagnostics_asks_the_host(self):
        self.mox.StubOutWithMock(rpc, 'call')
        rpc.call(self.context, 'compute.node7',
                 {'method': 'get_diagnostics',
                  'args': {'instance_id': 'i-1'}}).AndReturn({'reboots': 3})
        self.mox.ReplayAll()
        self.assertEquals(
                self.api.get_diagnostics(self.context, 'node7', 'i-1'),
                {'reboots': 3})

    def test_any_host(self):
        self.mox.StubOutWithMock(rpc, 'call')
        rpc.call(self.context, 'compute',
                 {'method': 'get_host', 'args': {}}).AndReturn('some')
        self.mox.ReplayAll()
        self.assertEquals(self.api.get_host(self.context), 'some')

    def test_remote_errors_are_ours_again(self):
        def fake_call(context, topic, msg):
            raise rpc_common.RemoteError('InstanceNotFound', 'gone', [])

        self.stubs.Set(rpc, 'call', fake_call)
        self.assertRaises(exception.InstanceNotFound, self.api.terminate,
                          self.context, 'node1', 'i-1')

    def test_other_remote_errors_are_not(self):
        def fake_call(context, topic, msg):
            raise rpc_common.RemoteError('ValueError', 'odd', [])

        self.stubs.Set(rpc, 'call', fake_call)
        for method in (self.api.terminate, self.api.snapshot):
            try:
                method(self.context, 'node1', 'i-1')
            except rpc_common.RemoteError as e:
                self.assertEquals((e.exc_type, e.value), ('ValueError', 'odd'))
            else:
                self.fail('nothing was raised')

    def test_create(self):
        self.stubs.Set(utils, 'gen_uuid', lambda: 'u-1')
        scheduler = self.start_service('scheduler', host='ctl')
        compute = self.start_service('compute', host='node1')
        self.assertRaises(exception.NoValidHost, self.api.create,
                          self.context, 'web')
        compute.report_state()
        compute.periodic_tasks(raise_on_error=True)
        self.assertEquals(self.api.create(self.context, 'web', 1024),
                          {'id': 'u-1', 'name': 'web', 'memory_mb': 1024,
                           'user_id': 'alice', 'host': 'node1'})
        self.assertEquals([x['id'] for x in
                           self.api.get_instances(self.context, 'node1')],
                          ['u-1'])
        self.assertEquals(self.api.snapshot(self.context, 'node1', 'u-1'),
                          'image-of-web')
        self.api.reboot(self.context, 'node1', 'u-1')
        diagnostics = self.api.get_diagnostics(self.context, 'node1', 'u-1')
        # The service has registered twice for its topic, not for its host.
        self.assertEquals(diagnostics['reboots'], 1)
        self.assertEquals(scheduler.manager.capabilities,
                          {('compute', 'node1'): {'free_memory_mb': 7168}})

    def test_refresh_security_group(self):
        compute = self.start_service('compute', host='node1')
        self.api.refresh_security_group(self.context, 'web')
        self.assertTrue('web' in compute.manager.refreshed)
