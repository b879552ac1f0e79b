import __builtin__
import StringIO
import sys

import eventlet
import mox

from nova import backup
from nova.backup import driver
from nova.backup import rpcapi
from nova import context
from nova import exception
from nova import flags
from nova.openstack.common import jsonutils
from nova.openstack.common.notifier import test_notifier
from nova.openstack.common import rpc
from nova.openstack.common.rpc import common as rpc_common
from nova import test
from nova import utils

FLAGS = flags.FLAGS


class BackupTestCase(test.TestCase):
    """Through the fake backend."""

    def setUp(self):
        super(BackupTestCase, self).setUp()
        self.service = self.start_service('backup', host='node1',
                                          periodic_interval=0)
        self.context = context.RequestContext('fake', 'fake')
        self.api = backup.API()

    def test_create(self):
        made = self.api.create(self.context, u'vol-1')
        self.assertDictMatch({'name': 'vol-1-1', 'host': 'DONTCARE'}, made)
        self.assertEquals(1, len(test_notifier.NOTIFICATIONS))
        msg = test_notifier.NOTIFICATIONS[0]
        self.assertEquals('backup.create.end', msg['event_type'])
        self.assertEquals('backup.node1', msg['publisher_id'])
        self.assertEquals('vol-1-1', msg['payload']['name'])

    def test_create_failure_is_raised_again(self):
        self.api.store = ''
        self.assertRaises(exception.BackupFailed, self.api.create,
                          self.context, 'vol-1')
        self.assertEquals([], self.service.manager.quiesced)

    def test_create_calls_the_driver(self):
        self.mox.StubOutWithMock(driver.FileDriver, 'create')
        driver.FileDriver.create('vol-1', mox.StrContains('volume=vol-1')
                                 ).AndReturn('made')
        self.mox.ReplayAll()
        made = self.api.create(self.context, 'vol-1', 'node1')
        self.assertEqual({'name': 'made', 'host': 'node1'}, made)

    def test_not_found(self):
        try:
            self.api.rpcapi.list_backups(self.context, 'vol-7', 'node1')
        except exception.VolumeNotFound, e:
            found = e
        self.assertTrue('vol-7' in str(found))
        self.assertEquals({'volume_id': 'vol-7'}, found.kwargs)

    def test_describe_and_walk(self):
        for _n in xrange(3):
            self.api.create(self.context, 'vol-1', 'node1')
        self.assertItemsEqual(['vol-1-1', 'vol-1-2', 'vol-1-3'],
                              self.api.walk(self.context, 'vol-1', 'node1'))
        found = self.api.rpcapi.describe_backup(self.context, 'vol-1-2',
                                                'node1')
        self.assertEquals('vol-1', found['of']['volume'])
        self.assert_(isinstance(found['at'], basestring))

    def test_who_asks(self):
        found = self.api.rpcapi.who_asks(self.context, 2)
        mine = self.context.request_id
        self.assertEqual([(mine, mine, 'fake', False)] * 3,
                         [tuple(each) for each in found])

    def test_forget_is_fanned_out(self):
        self.api.create(self.context, 'vol-1')
        self.api.rpcapi.forget(self.context, 'vol-1')
        self.failIf(self.service.manager.driver.made.has_key('vol-1'))

    def test_periodic_tasks(self):
        self.flags(max_backups=1)
        for _n in range(2):
            self.api.create(self.context, 'vol-1')
        self.service.periodic_tasks(raise_on_error=True)
        self.assertEqual(['vol-1-1'], self.service.manager.dropped)

    @test.skip_test('takes hours')
    def test_large_volumes(self):
        self.fail()


class RpcAPITestCase(test.TestCase):

    def test_versions_and_topics(self):
        ctxt = context.RequestContext('fake_user', 'fake_project')
        api = rpcapi.BackupAPI()
        self.fake_args = None

        def _fake_call(*args, **kwargs):
            self.fake_args = args
            return u'called'

        self.stubs.Set(rpc, 'call', _fake_call)
        self.assertEqual('called', api.describe_backup(ctxt, 'a', 'node2'))
        expected = {'method': 'describe_backup', 'args': {'name': 'a'},
                    'version': '1.1'}
        for arg, expected_arg in zip(self.fake_args,
                                     [ctxt, 'backup.node2', expected]):
            self.assertEqual(arg, expected_arg)


class RealBackendTestCase(test.TestCase):
    """Through the broker, or what stands for it in memory."""

    def setUp(self):
        super(RealBackendTestCase, self).setUp()
        self.flags(rpc_backend='nova.openstack.common.rpc.impl_kombu')
        rpc._RPCIMPL = None
        self.service = self.start_service('backup', host='node1',
                                          periodic_interval=0)
        self.api = backup.API()

    def tearDown(self):
        super(RealBackendTestCase, self).tearDown()
        rpc._RPCIMPL = None

    def test_every_handler_has_its_own_context(self):
        pool = eventlet.GreenPool()

        def ask(number):
            ctxt = context.RequestContext('fake', 'fake',
                                          request_id='req-%d' % number)
            return self.api.rpcapi.who_asks(ctxt, 1)

        for number, found in enumerate(pool.imap(ask, xrange(10))):
            self.assertEqual([['req-%d' % number, 'req-%d' % number, 'fake',
                               False]] * 2, map(list, found))

    def test_failures_are_rebuilt(self):
        ctxt = context.RequestContext('fake', 'fake')
        self.assertRaises(exception.VolumeNotFound,
                          self.api.rpcapi.list_backups, ctxt, 'vol-7', 'node1')
        self.assertRaises(rpc_common.RemoteError,
                          self.api.rpcapi.describe_backup, ctxt, 'x', 'node1')


class UtilsTestCase(test.TestCase):

    def test_import_class(self):
        self.assertEquals(backup.API, utils.import_class('nova.backup.API'))
        self.assertRaisesRegexp(ImportError, 'cannot be found',
                                utils.import_class, 'nova.nothing.API')

    def test_uid(self):
        self.assertTrue(utils.generate_uid('req').startswith('req-'))
        self.assertEquals('a', utils.utf8('a').decode('utf-8'))

    def test_primitives(self):
        self.assertEquals(u'text', jsonutils.to_primitive('text'))
        self.assertEquals({'a': [1, 'b']},
                          jsonutils.to_primitive({'a': iter([1, 'b'])}))

    def test_open(self):
        self.mox.StubOutWithMock(__builtin__, 'open')
        __builtin__.open('/etc/passwd').AndReturn(StringIO.StringIO('root'))
        self.mox.ReplayAll()
        self.assertEqual('root', open('/etc/passwd').read())

    def test_looping_call(self):
        seen = []

        def tick():
            seen.append(len(seen))
            if len(seen) == 3:
                raise utils.LoopingCallDone(sum(seen))

        timer = utils.LoopingCall(tick)
        self.failIf(timer)
        self.assertEquals(3, timer.start(interval=0).wait())
        self.failIf(timer)
        print >>sys.stderr, `seen`
