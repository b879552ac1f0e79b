"""The base of all tests."""

import functools
import shutil
import tempfile

import eventlet
import mox
import nose.plugins.skip
import stubout
import unittest2 as unittest

from nova import flags
from nova.openstack.common.notifier import test_notifier
from nova.openstack.common import rpc
from nova import service
from nova.tests import fake_flags

FLAGS = flags.FLAGS

eventlet.monkey_patch(os=False)


class skip_test(object):
    """Decorator that skips a test."""

    def __init__(self, msg):
        self.message = msg

    def __call__(self, func):
        @functools.wraps(func)
        def _skipper(*args, **kw):
            raise nose.SkipTest(self.message)
        return _skipper


class TestCase(unittest.TestCase):

    def setUp(self):
        super(TestCase, self).setUp()
        self.mox = mox.Mox()
        self.stubs = stubout.StubOutForTesting()
        self._services = []
        self._overridden_opts = []
        self.state_path = tempfile.mkdtemp()
        fake_flags.set_defaults(FLAGS)
        flags.parse_args(['test'], default_config_files=[])
        self.flags(state_path=self.state_path)
        test_notifier.NOTIFICATIONS = []

    def tearDown(self):
        try:
            self.mox.UnsetStubs()
            self.stubs.UnsetAll()
            self.stubs.SmartUnsetAll()
            self.mox.VerifyAll()
        finally:
            for x in self._services:
                x.kill()
            rpc.cleanup()
            FLAGS.reset()
            self.reset_flags()
            shutil.rmtree(self.state_path)
            super(TestCase, self).tearDown()

    def flags(self, **kw):
        for k, v in kw.iteritems():
            FLAGS.set_override(k, v)
            self._overridden_opts.append(k)

    def reset_flags(self):
        for k in self._overridden_opts:
            FLAGS.clear_override(k)
        self._overridden_opts = []

    def start_service(self, name, host=None, **kwargs):
        kwargs.setdefault('binary', 'nova-%s' % name)
        svc = service.Service.create(host=host, **kwargs)
        svc.start()
        self._services.append(svc)
        return svc

    def assertDictMatch(self, d1, d2):
        keys = d1.keys()
        keys.sort()
        others = d2.keys()
        others.sort()
        self.assertEquals(keys, others)
        for key in keys:
            if 'DONTCARE' not in (d1[key], d2[key]):
                self.assertEquals(d1[key], d2[key])
