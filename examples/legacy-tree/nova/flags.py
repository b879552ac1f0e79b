"""The options that all of it shares."""

import os
import socket
import sys

from nova.openstack.common import cfg

FLAGS = cfg.CONF


def parse_args(argv, default_config_files=None):
    FLAGS.disable_interspersed_args()
    return argv[:1] + FLAGS(argv[1:], project='nova',
                            default_config_files=default_config_files)


core_opts = [
    cfg.StrOpt('host',
               default=socket.gethostname(),
               help='Name of this node'),
    cfg.StrOpt('backup_topic',
               default='backup',
               help='the topic backup nodes listen on'),
    cfg.StrOpt('backup_manager',
               default='nova.backup.manager.BackupManager',
               help='full class name for the Manager for backup'),
    cfg.StrOpt('state_path',
               default=os.getcwdu(),
               help='where nodes keep what they make'),
    cfg.IntOpt('report_interval',
               default=10,
               help='seconds between two reports of a node'),
    cfg.IntOpt('periodic_interval',
               default=60,
               help='seconds between two runs of the periodic tasks'),
    cfg.IntOpt('max_backups',
               default=sys.maxint,
               help='backups that a node keeps of a volume'),
]

FLAGS.register_cli_opts(core_opts)
