"""Makes the backups: a file for each."""

import ConfigParser
import itertools
import os
import StringIO
import urlparse

from nova import exception
from nova import flags

FLAGS = flags.FLAGS


class FileDriver(object):

    def __init__(self):
        self.made = {}
        self.numbers = itertools.count(1)

    def create(self, volume_id, url):
        parts = urlparse.urlparse(url)
        if not parts.netloc:
            raise exception.BackupFailed(volume_id, 'no host in %r' % url)
        number = self.numbers.next()
        name = u'%s-%d' % (volume_id, number)
        path = os.path.join(FLAGS.state_path, name)
        with file(path, 'w') as made:
            print >>made, '[backup]\nvolume = %s\nurl = %s' % (volume_id, url)
        os.chmod(path, 0640)
        self.made.setdefault(volume_id, []).append(name)
        return name

    def describe(self, name):
        parser = ConfigParser.SafeConfigParser()
        with open(os.path.join(FLAGS.state_path, name)) as made:
            parser.readfp(StringIO.StringIO(made.read()))
        return dict(parser.items('backup'))

    def list(self, volume_id):
        if not self.made.has_key(volume_id):
            raise exception.VolumeNotFound(volume_id=volume_id)
        return self.made[volume_id]

    def drop_oldest(self, keep):
        dropped = []
        for volume_id, names in self.made.items():
            while len(names) > keep:
                name = names.pop(0)
                os.unlink(os.path.join(FLAGS.state_path, name))
                dropped.append(name)
        return dropped
