"""The client's side of the messages."""

from nova import flags
from nova.openstack.common import rpc
import nova.openstack.common.rpc.proxy

FLAGS = flags.FLAGS


class BackupAPI(nova.openstack.common.rpc.proxy.RpcProxy):
    """1.0: first version. 1.1: describe_backup, walk_backups, who_asks."""

    BASE_RPC_API_VERSION = '1.0'

    def __init__(self):
        super(BackupAPI, self).__init__(
                topic=FLAGS.backup_topic,
                default_version=self.BASE_RPC_API_VERSION)

    def create_backup(self, ctxt, volume_id, url, host=None):
        return self.call(ctxt, self.make_msg('create_backup',
                         volume_id=volume_id, url=url),
                         topic=rpc.queue_get_for(ctxt, self.topic, host)
                         if host else None)

    def list_backups(self, ctxt, volume_id, host):
        return self.call(ctxt, self.make_msg('list_backups',
                         volume_id=volume_id),
                         topic=rpc.queue_get_for(ctxt, self.topic, host))

    def describe_backup(self, ctxt, name, host):
        return self.call(ctxt, self.make_msg('describe_backup', name=name),
                         topic=rpc.queue_get_for(ctxt, self.topic, host),
                         version='1.1')

    def walk_backups(self, ctxt, volume_id, host):
        return self.multicall(ctxt, self.make_msg('walk_backups',
                              volume_id=volume_id),
                              topic=rpc.queue_get_for(ctxt, self.topic, host),
                              version='1.1')

    def get_quiesced(self, ctxt, host):
        return self.call(ctxt, self.make_msg('get_quiesced'),
                         topic=rpc.queue_get_for(ctxt, self.topic, host))

    def who_asks(self, ctxt, deeper):
        return self.call(ctxt, self.make_msg('who_asks', deeper=deeper),
                         version='1.1')

    def forget(self, ctxt, volume_id):
        self.fanout_cast(ctxt, self.make_msg('forget', volume_id=volume_id))
