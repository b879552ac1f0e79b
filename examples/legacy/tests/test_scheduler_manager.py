"""Tests of the scheduler."""

from nova import rpc
from nova import utils

from minicloud import exception
from minicloud import scheduler_manager

from tests import base


class SchedulerTestCase(base.TestCase):

    def setUp(self):
        super(SchedulerTestCase, self).setUp()
        self.addCleanup(utils.clear_time_override)
        self.scheduler = scheduler_manager.SchedulerManager(host='ctl')
        self._report('node1', 1024)
        self._report('node2', 2048)

    def _report(self, host, free_memory_mb):
        self.scheduler.update_service(
                self.context, {'host': host, 'topic': 'compute',
                               'binary': 'minicloud-compute',
                               'report_count': 1})
        self.scheduler.update_service_capabilities(
                self.context, 'compute', host,
                {'free_memory_mb': free_memory_mb})

    def _expect(self, *hosts):
        """Have the instance run on these hosts, in this order."""
        self.mox.StubOutWithMock(rpc, 'cast')
        for host in hosts:
            rpc.cast(self.context, 'compute.%s' % host,
                     {'method': 'run_instance',
                      'args': {'instance': base.instance(memory_mb=1024)}})
        self.mox.ReplayAll()

    def _run(self):
        return self.scheduler.run_instance(self.context,
                                           base.instance(memory_mb=1024))

    def test_most_free_memory_first(self):
        self._expect('node2', 'node2', 'node1')
        self.assertEquals([self._run(), self._run(), self._run()],
                          ['node2', 'node2', 'node1'])
        self.assertRaises(exception.NoValidHost, self._run)

    def test_host_that_is_down(self):
        self.flags(service_down_time=10)
        utils.set_time_override(utils.utcnow())
        utils.advance_time_seconds(11)
        self._report('node1', 1024)
        self._expect('node1')
        self.assertEquals(self._run(), 'node1')
        self.assertEquals([(x['host'], x['up'])
                           for x in self.scheduler.get_services(self.context)],
                          [('node1', True), ('node2', False)])

    def test_nobody_is_there(self):
        scheduler = scheduler_manager.SchedulerManager(host='ctl')
        self.assertRaises(exception.NoValidHost, scheduler.run_instance,
                          self.context, base.instance())
