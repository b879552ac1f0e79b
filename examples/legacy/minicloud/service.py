"""A service serves its manager's methods at a topic, and runs the manager's periodic tasks.

Each service has three consumers: the topic (one of the hosts gets a message), the topic with its host's
name behind a dot, and the topic's fan-out.
"""

import functools
import signal
import time

import eventlet
import greenlet

from nova import context
from nova import flags
from nova import log as logging
from nova import rpc
from nova import utils
from nova.openstack.common import cfg

LOG = logging.getLogger(__name__)

service_opts = [
    cfg.IntOpt('report_interval',
               default=10,
               help='seconds between two reports of a service'),
    cfg.IntOpt('periodic_interval',
               default=60,
               help='seconds between two runs of the periodic tasks'),
    cfg.IntOpt('drain_seconds',
               default=30,
               help='seconds that a service which stops waits for '
                    'what it is doing'),
    ]

FLAGS = flags.FLAGS
FLAGS.register_opts(service_opts)


class Service(object):
    """One manager on one host, from start() to stop()."""

    def __init__(self, host, binary, topic, manager,
                 report_interval=None, periodic_interval=None):
        self.host = host
        self.binary = binary
        self.topic = topic
        self.manager = utils.import_class(manager)(host=host)
        self.report_interval = report_interval
        self.periodic_interval = periodic_interval
        self.conn = None
        self.timers = []
        self.reports = 0
        self.unreported = False
        self.busy = 0

    def start(self):
        LOG.audit(_('Starting %(binary)s on %(host)s'), self.__dict__)
        self.manager.init_host()
        self.conn = rpc.create_connection(new=True)
        node_topic = '%s.%s' % (self.topic, self.host)
        # Share the topic with the other hosts, have one of our own, and
        # hear what goes to everybody.
        self.conn.create_consumer(self.topic, self, fanout=False)
        self.conn.create_consumer(node_topic, self, fanout=False)
        self.conn.create_consumer(self.topic, self, fanout=True)
        self.conn.consume_in_thread()
        if self.report_interval:
            self._start_timer(self.report_state, self.report_interval)
        if self.periodic_interval:
            self._start_timer(self.periodic_tasks, self.periodic_interval)
        LOG.audit(_('%(binary)s on %(host)s is ready'), self.__dict__)

    def _start_timer(self, function, interval):
        timer = utils.LoopingCall(function)
        timer.start(interval=interval, now=False)
        self.timers.append(timer)

    def __getattr__(self, key):
        """The consumers call us; what they look for is the manager's."""
        manager = self.__dict__.get('manager', None)
        method = getattr(manager, key)

        @functools.wraps(method)
        def counted(*args, **kwargs):
            self.busy += 1
            try:
                return method(*args, **kwargs)
            finally:
                self.busy -= 1

        return counted

    @classmethod
    def create(cls, binary, manager, host=None, topic=None,
               report_interval=None, periodic_interval=None):
        """A service with the options' values for what is not given."""
        if not host:
            host = FLAGS.host
        if not topic:
            topic = binary.rpartition('minicloud-')[2]
        if report_interval is None:
            report_interval = FLAGS.report_interval
        if periodic_interval is None:
            periodic_interval = FLAGS.periodic_interval
        return cls(host, binary, topic, manager,
                   report_interval, periodic_interval)

    def stop(self):
        """Take nothing more, and let what runs come to its end."""
        for timer in self.timers:
            timer.stop()
        self.timers = []
        if self.conn is not None:
            try:
                self.conn.close()
            except Exception:
                LOG.exception(_('The connection could not be closed'))
            self.conn = None
        deadline = time.time() + FLAGS.drain_seconds
        # What has just come in must begin, to be counted; on a busy host
        # that takes a moment.
        quiet = 0
        while quiet < 6 and time.time() < deadline:
            eventlet.sleep(0.05)
            quiet = 0 if self.busy else quiet + 1
        if self.busy:
            LOG.warn(_('%(binary)s leaves %(busy)d requests'), self.__dict__)
        LOG.audit(_('Stopped %(binary)s on %(host)s'), self.__dict__)

    def wait(self):
        for timer in self.timers:
            try:
                timer.wait()
            except Exception:
                LOG.exception(_('A timer has ended'))

    def report_state(self):
        """Tell the schedulers that we live."""
        self.reports += 1
        service = {'host': self.host, 'binary': self.binary,
                   'topic': self.topic, 'report_count': self.reports}
        try:
            rpc.fanout_cast(context.get_admin_context(),
                            FLAGS.scheduler_topic,
                            {'method': 'update_service',
                             'args': {'service': service}})
        except Exception:
            # The next one will do, and one line in the log is enough.
            if not self.unreported:
                self.unreported = True
                LOG.exception(_('Nobody can be told of our state'))
        else:
            if self.unreported:
                self.unreported = False
                LOG.error(_('Our state is known again'))

    def periodic_tasks(self, raise_on_error=False):
        self.manager.periodic_tasks(context.get_admin_context(),
                                    raise_on_error=raise_on_error)


_services = []


def serve(*services):
    for each in services:
        each.start()
        _services.append(each)


def wait():
    """Serve until SIGTERM or ^C, then stop in good order."""
    def sigterm(signo, frame):
        # Once is enough.
        signal.signal(signo, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, sigterm)
    try:
        for each in _services:
            try:
                each.wait()
            except greenlet.GreenletExit:
                pass
    except KeyboardInterrupt:
        LOG.audit(_('Asked to stop'))
    for each in _services:
        each.stop()
    rpc.cleanup()
