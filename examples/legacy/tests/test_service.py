"""Tests of the service: its consumers, its timers, its end."""

import eventlet
from eventlet import event

from nova import rpc
from nova import test

from minicloud import manager
from minicloud import service

from tests import base


class FakeManager(manager.Manager):
    """A manager that knows when it was called, and waits when told to."""

    def __init__(self, host=None):
        super(FakeManager, self).__init__(host)
        self.initialized = False
        self.ticks = 0
        self.begun = event.Event()
        self.go = event.Event()

    def init_host(self):
        self.initialized = True

    def test_method(self, context):
        return 'manager'

    def slow(self, context):
        self.begun.send()
        return self.go.wait()

    @manager.periodic_task
    def tick(self, context):
        self.ticks += 1

    @manager.periodic_task(ticks_between_runs=1)
    def seldom(self, context):
        raise test.TestingException()


class ExtendedService(service.Service):

    def test_method(self, context):
        return 'service'


class ServiceTestCase(base.TestCase):

    def _create(self, cls=service.Service, **kwargs):
        kwargs.setdefault('report_interval', 0)
        kwargs.setdefault('periodic_interval', 0)
        return cls.create(binary='minicloud-fake', host='node1',
                          manager='tests.test_service.FakeManager', **kwargs)

    def test_create(self):
        self.flags(report_interval=7, periodic_interval=0)
        svc = service.Service.create(
                binary='minicloud-fake', host='node1',
                manager='tests.test_service.FakeManager')
        self.assertEquals(svc.topic, 'fake')
        self.assertEquals(svc.report_interval, 7)
        self.assertEquals(svc.periodic_interval, 0)
        self.assertEquals(svc.manager.host, 'node1')

    def test_host_is_a_flag(self):
        self.flags(host='somewhere')
        svc = service.Service.create(
                binary='minicloud-fake',
                manager='tests.test_service.FakeManager')
        self.assertEquals(svc.host, 'somewhere')

    def test_messages_go_to_the_manager(self):
        self.assertEquals(self._create().test_method(None), 'manager')

    def test_a_method_of_the_service_goes_first(self):
        svc = self._create(ExtendedService)
        self.assertEquals(svc.test_method(None), 'service')

    def test_unknown_method(self):
        self.assertRaises(AttributeError, getattr, self._create(), 'nothing')

    def test_three_consumers(self):
        conn = self.mox.CreateMockAnything()
        self.mox.StubOutWithMock(rpc, 'create_connection')
        svc = self._create()
        rpc.create_connection(new=True).AndReturn(conn)
        conn.create_consumer('fake', svc, fanout=False)
        conn.create_consumer('fake.node1', svc, fanout=False)
        conn.create_consumer('fake', svc, fanout=True)
        conn.consume_in_thread()
        conn.close()
        self.mox.ReplayAll()

        svc.start()
        self.assertTrue(svc.manager.initialized)
        svc.stop()

    def test_report_state(self):
        reports = []

        def fake_fanout_cast(context, topic, msg):
            reports.append((topic, msg['method'],
                            msg['args']['service']['report_count']))

        self.stubs.Set(rpc, 'fanout_cast', fake_fanout_cast)
        svc = self._create()
        svc.report_state()
        svc.report_state()
        self.assertEquals(reports, [('scheduler', 'update_service', 1),
                                    ('scheduler', 'update_service', 2)])

    def test_report_state_survives_a_broker_that_is_away(self):
        def fail(*args):
            raise test.TestingException()

        self.stubs.Set(rpc, 'fanout_cast', fail)
        svc = self._create()
        svc.report_state()
        self.assertTrue(svc.unreported)
        self.stubs.UnsetAll()
        svc.report_state()
        self.assertFalse(svc.unreported)

    def test_timers_report_and_tick(self):
        reported = event.Event()

        def fake_fanout_cast(context, topic, msg):
            if msg['args']['service']['report_count'] == 3:
                reported.send()

        self.stubs.Set(rpc, 'fanout_cast', fake_fanout_cast)
        svc = self._create(report_interval=0.01, periodic_interval=0.01)
        svc.start()
        reported.wait()
        svc.stop()
        ticks = svc.manager.ticks
        self.assertTrue(ticks > 0)
        eventlet.sleep(0.05)
        self.assertEquals(svc.manager.ticks, ticks)

    def test_periodic_tasks(self):
        svc = self._create()
        svc.periodic_tasks()
        # What is due each second time fails now, and the other one runs.
        svc.periodic_tasks()
        self.assertEquals(svc.manager.ticks, 2)
        svc.periodic_tasks()
        self.assertRaises(test.TestingException, svc.periodic_tasks,
                          raise_on_error=True)

    def test_stop_waits_for_what_runs(self):
        svc = self._create()
        svc.start()
        call = eventlet.spawn(rpc.call, self.context, 'fake',
                              {'method': 'slow', 'args': {}})
        svc.manager.begun.wait()
        stop = eventlet.spawn(svc.stop)
        eventlet.sleep(0)
        self.assertEquals(svc.busy, 1)
        svc.manager.go.send('done')
        self.assertEquals(call.wait(), 'done')
        stop.wait()
        self.assertEquals(svc.busy, 0)

    def test_stop_gives_up_at_last(self):
        self.flags(drain_seconds=0)
        svc = self._create()
        svc.start()
        eventlet.spawn_n(rpc.cast, self.context, 'fake.node1',
                         {'method': 'slow', 'args': {}})
        svc.manager.begun.wait()
        svc.stop()
        self.assertEquals(svc.busy, 1)
        svc.manager.go.send('too late')
