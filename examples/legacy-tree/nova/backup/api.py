"""The interface for programs."""

import urllib

from nova.backup import rpcapi


class API(object):

    def __init__(self, store='store.example.org'):
        self.store = store
        self.rpcapi = rpcapi.BackupAPI()

    def url(self, volume_id):
        return 'backup://%s/?%s' % (self.store,
                                    urllib.urlencode({'volume': volume_id}))

    def create(self, context, volume_id, host=None):
        return self.rpcapi.create_backup(context, volume_id,
                                         self.url(volume_id), host)

    def walk(self, context, volume_id, host):
        return list(self.rpcapi.walk_backups(context, volume_id, host))
