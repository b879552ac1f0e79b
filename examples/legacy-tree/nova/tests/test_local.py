import eventlet
from eventlet import greenthread

from nova import context
from nova.openstack.common import local
from nova import test


class Dict(dict):
    """Unlike a dict, may be referred to weakly."""


class LocalStoreTestCase(test.TestCase):

    def setUp(self):
        super(LocalStoreTestCase, self).setUp()
        self.v1 = Dict(a='1')
        self.v2 = Dict(a='2')

    def test_thread_unique_storage(self):
        """Make sure local store holds thread specific values."""
        expected_set = []
        local.store.a1 = self.v1

        def do_something():
            local.store.a1 = self.v2
            expected_set.append(getattr(local.store, 'a1'))

        def do_something2():
            expected_set.append(getattr(local.store, 'a1', None))

        eventlet.spawn(do_something).wait()
        eventlet.spawn(do_something2).wait()
        expected_set.append(getattr(local.store, 'a1'))
        self.assertEqual([self.v2, None, self.v1], expected_set)

    def test_strong_and_weak(self):

        def keep():
            local.strong_store.kept = Dict(a='3')
            local.store.kept = local.strong_store.kept
            local.store.gone = Dict(a='4')
            greenthread.sleep(0)
            return local.store.kept['a'], local.store.gone

        self.assertEqual(('3', None), eventlet.spawn(keep).wait())
        self.assertFalse(hasattr(local.strong_store, 'kept'))

    def test_context_is_stored(self):
        ctxt = context.RequestContext('111', '222', roles=['admin'])
        self.assertTrue(local.store.context is ctxt)
        admin = context.get_admin_context()
        self.assertTrue(local.store.context is ctxt)
        self.assert_(admin.is_admin)

    def test_context_over_the_wire(self):
        ctxt = context.RequestContext('111', '222', is_admin=True)
        self.assertEquals(['admin'], ctxt.roles)
        again = context.RequestContext.from_dict(ctxt.to_dict())
        self.assertDictMatch(ctxt.to_dict(), again.to_dict())
        self.assertEqual(['admin'], ctxt.elevated().roles)
