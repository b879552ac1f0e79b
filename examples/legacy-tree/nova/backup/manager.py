"""Runs on the nodes."""

import time

import driver

from nova import exception
from nova import flags
from nova import manager
from nova.openstack.common import jsonutils
from nova.openstack.common import local
from nova.openstack.common import log as logging
from nova.openstack.common.notifier import api as notifier
from nova.openstack.common import rpc
from nova import utils

FLAGS = flags.FLAGS
LOG = logging.getLogger(__name__)


class BackupManager(manager.Manager):
    """Makes backups of volumes, and forgets them again."""

    RPC_API_VERSION = '1.1'

    def __init__(self, *args, **kwargs):
        self.driver = driver.FileDriver()
        self.quiesced = []
        self.dropped = []
        super(BackupManager, self).__init__(*args, **kwargs)

    def create_backup(self, context, volume_id, url):
        started = time.time()
        self.quiesced.append(volume_id)
        try:
            name = self.driver.create(volume_id, url)
        except exception.NovaException:
            with exception.save_and_reraise_exception():
                self.quiesced.remove(volume_id)
        self.quiesced.remove(volume_id)
        notifier.notify(context, 'backup.%s' % self.host,
                        'backup.create.end', notifier.INFO,
                        {'name': name, 'took': utils.since(started)})
        return {'name': name, 'host': self.host}

    def list_backups(self, context, volume_id):
        return self.driver.list(volume_id)

    def describe_backup(self, context, name):
        return jsonutils.to_primitive({'of': self.driver.describe(name),
                                       'at': utils.utcnow()})

    def walk_backups(self, context, volume_id):
        for name in self.driver.list(volume_id):
            yield name

    def get_quiesced(self, context):
        return self.quiesced

    def who_asks(self, context, deeper=0):
        """The context, as given and as kept for this green thread."""
        found = [(context.request_id, local.store.context.request_id,
                  context.user_id, context.is_admin)]
        if deeper:
            found += rpc.call(context, FLAGS.backup_topic,
                              {'method': 'who_asks', 'version': '1.1',
                               'args': {'deeper': deeper - 1}})
        return found

    def forget(self, context, volume_id):
        self.driver.made.pop(volume_id, None)

    @manager.periodic_task
    def _drop_oldest(self, context):
        self.dropped += self.driver.drop_oldest(FLAGS.max_backups)

    @manager.periodic_task(ticks_between_runs=1)
    def _report(self, context):
        volumes = self.driver.made.keys()
        volumes.sort()
        LOG.info(_('%(host)s has backups of %(volumes)s'),
                 {'host': self.host, 'volumes': ', '.join(volumes)})
