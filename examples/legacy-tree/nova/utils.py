"""Odds and ends."""

import datetime
import random
import string
import sys
import time

from eventlet import event
from eventlet import greenthread

from nova.openstack.common import log as logging

LOG = logging.getLogger(__name__)


def import_class(import_str):
    """The class of that name."""
    mod_str, _sep, class_str = import_str.rpartition('.')
    try:
        __import__(mod_str)
        return getattr(sys.modules[mod_str], class_str)
    except (ImportError, ValueError, AttributeError), exc:
        LOG.debug(_('Inner Exception: %s'), exc)
        raise ImportError, _('Class %s cannot be found') % import_str


def utcnow():
    return datetime.datetime.utcnow()


def generate_uid(topic, size=8):
    choices = string.letters + string.digits
    return '%s-%s' % (topic, ''.join([random.choice(choices)
                                      for _x in xrange(size)]))


def utf8(value):
    if isinstance(value, unicode):
        return value.encode('utf-8')
    assert isinstance(value, str)
    return value


class LoopingCallDone(Exception):

    def __init__(self, retvalue=True):
        self.retvalue = retvalue


class LoopingCall(object):
    """Calls a function again and again, in a green thread."""

    def __init__(self, f=None, *args, **kw):
        self.args = args
        self.kw = kw
        self.f = f
        self._running = False

    def __nonzero__(self):
        return self._running

    def start(self, interval, initial_delay=None):
        self._running = True
        done = event.Event()

        def _inner():
            if initial_delay:
                greenthread.sleep(initial_delay)
            try:
                while self._running:
                    self.f(*self.args, **self.kw)
                    if not self._running:
                        break
                    greenthread.sleep(interval)
            except LoopingCallDone, e:
                self.stop()
                done.send(e.retvalue)
            except Exception:
                LOG.exception(_('in looping call'))
                done.send_exception(*sys.exc_info())
                return
            else:
                done.send(True)

        self.done = done
        greenthread.spawn(_inner)
        return self.done

    def stop(self):
        self._running = False

    def wait(self):
        return self.done.wait()


def since(started):
    return long((time.time() - started) * 1000)
