"""Options of all tests."""


def set_defaults(conf):
    conf.set_default('fake_rabbit', True)
    conf.set_default('host', 'node1')
    conf.set_default('rpc_backend', 'nova.openstack.common.rpc.impl_fake')
    conf.set_default('notification_driver',
                     ['nova.openstack.common.notifier.test_notifier'])
