"""The caller's side of the compute nodes, for the API servers and all others."""

from nova import flags
from nova import rpc
from nova import utils
from nova.rpc import common as rpc_common

from minicloud import exception

FLAGS = flags.FLAGS


class API(object):

    def create(self, context, name, memory_mb=512):
        """Start an instance on the host that the scheduler finds."""
        instance = {'id': str(utils.gen_uuid()),
                    'name': name,
                    'memory_mb': memory_mb,
                    'user_id': context.user_id}
        try:
            host = rpc.call(context, FLAGS.scheduler_topic,
                            {'method': 'run_instance',
                             'args': {'instance': instance}})
        except rpc_common.RemoteError as e:
            if e.exc_type == 'NoValidHost':
                raise exception.NoValidHost(memory_mb=memory_mb)
            raise
        return dict(instance, host=host)

    def terminate(self, context, host, instance_id):
        self._call(context, 'terminate_instance', host, instance_id)

    def snapshot(self, context, host, instance_id):
        return self._call(context, 'snapshot_instance', host, instance_id)

    def get_diagnostics(self, context, host, instance_id):
        return self._call(context, 'get_diagnostics', host, instance_id)

    def reboot(self, context, host, instance_id):
        rpc.cast(context, self._queue(context, host),
                 {'method': 'reboot_instance',
                  'args': {'instance_id': instance_id}})

    def get_instances(self, context, host):
        """An iterator over the instances of a host."""
        return rpc.multicall(context, self._queue(context, host),
                             {'method': 'get_instances', 'args': {}})

    def get_host(self, context, host=None):
        """Ask a host, or any of them, for its state."""
        topic = self._queue(context, host) if host else FLAGS.compute_topic
        return rpc.call(context, topic, {'method': 'get_host', 'args': {}})

    def refresh_security_group(self, context, group):
        """Tell all hosts that its rules have changed."""
        rpc.fanout_cast(context, FLAGS.compute_topic,
                        {'method': 'refresh_security_group',
                         'args': {'group': group}})

    def get_services(self, context):
        return rpc.call(context, FLAGS.scheduler_topic,
                        {'method': 'get_services', 'args': {}})

    def _queue(self, context, host):
        return rpc.queue_get_for(context, FLAGS.compute_topic, host)

    def _call(self, context, method, host, instance_id):
        """Call one host; an instance that it lacks is our error here."""
        try:
            return rpc.call(context, self._queue(context, host),
                            {'method': method,
                             'args': {'instance_id': instance_id}})
        except rpc_common.RemoteError as e:
            if e.exc_type == 'InstanceNotFound':
                raise exception.InstanceNotFound(instance_id=instance_id)
            raise
