"""A manager with its consumers and its timers."""

import os
import signal

import greenlet

from nova import context
from nova import flags
from nova.openstack.common import log as logging
from nova.openstack.common import rpc
from nova import utils

FLAGS = flags.FLAGS
LOG = logging.getLogger(__name__)


class Service(object):

    def __init__(self, host, binary, topic, manager, report_interval=None,
                 periodic_interval=None, *args, **kwargs):
        self.host = host
        self.binary = binary
        self.topic = topic
        manager_class = utils.import_class(manager)
        self.manager = manager_class(host=self.host, *args, **kwargs)
        self.report_interval = report_interval
        self.periodic_interval = periodic_interval
        self.timers = []
        self.conn = None

    def start(self):
        self.manager.init_host()
        self.conn = rpc.create_connection(new=True)
        LOG.debug(_("Creating Consumer connection for Service %s") %
                  self.topic)
        rpc_dispatcher = self.manager.create_rpc_dispatcher()
        # Share this same connection for these Consumers
        self.conn.create_consumer(self.topic, rpc_dispatcher, fanout=False)
        node_topic = '%s.%s' % (self.topic, self.host)
        self.conn.create_consumer(node_topic, rpc_dispatcher, fanout=False)
        self.conn.create_consumer(self.topic, rpc_dispatcher, fanout=True)
        self.conn.consume_in_thread()
        if self.periodic_interval:
            periodic = utils.LoopingCall(self.periodic_tasks)
            periodic.start(interval=self.periodic_interval)
            self.timers.append(periodic)
        print '%s on %s is ready' % (self.binary, self.host)

    @classmethod
    def create(cls, host=None, binary=None, topic=None, manager=None,
               report_interval=None, periodic_interval=None):
        if not host:
            host = FLAGS.host
        if not topic:
            topic = binary.rpartition('nova-')[2]
        if not manager:
            manager = FLAGS.get('%s_manager' % topic, None)
        if report_interval is None:
            report_interval = FLAGS.report_interval
        if periodic_interval is None:
            periodic_interval = FLAGS.periodic_interval
        return cls(host, binary, topic, manager,
                   report_interval=report_interval,
                   periodic_interval=periodic_interval)

    def kill(self):
        self.stop()

    def stop(self):
        try:
            self.conn.close()
        except Exception:
            LOG.exception(_("Could not close the connection"))
        map(lambda timer: timer.stop(), self.timers)
        for x in self.timers:
            try:
                x.stop()
            except Exception:
                LOG.exception(_("Could not stop a timer"))
        self.timers = []

    def wait(self):
        for x in self.timers:
            try:
                x.wait()
            except Exception:
                LOG.exception(_("A periodic task has ended"))

    def periodic_tasks(self, raise_on_error=False):
        ctxt = context.get_admin_context()
        self.manager.periodic_tasks(ctxt, raise_on_error=raise_on_error)


class Launcher(object):
    """Runs services until it is told to end."""

    class SignalExit(SystemExit):
        pass

    def __init__(self):
        self._services = []

    def launch_server(self, server):
        server.start()
        self._services.append(server)

    def wait(self):

        def sigterm(signo, frame):
            raise Launcher.SignalExit

        signal.signal(signal.SIGTERM, sigterm)
        try:
            for server in self._services:
                try:
                    server.wait()
                except greenlet.GreenletExit:
                    pass
        except (Launcher.SignalExit, KeyboardInterrupt):
            print '%d ends' % os.getpid()
        finally:
            for server in self._services:
                server.stop()
            rpc.cleanup()
