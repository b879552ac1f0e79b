"""Listens to notifications as a member of a pool, and puts all of them back. Arguments: url, topic, pool.

With "hold" as a further one it holds what it is given.
"""

import sys
import threading

import oslo_messaging
from oslo_config import cfg
from oslo_messaging import conffixture


class PutsBack:
    def info(self, ctxt, publisher_id, event_type, payload, metadata):
        print("put back", payload["n"], flush=True)
        return oslo_messaging.NotificationResult.REQUEUE


class Holds:
    def info(self, ctxt, publisher_id, event_type, payload, metadata):
        print("has", payload["n"], flush=True)
        threading.Event().wait()


url, topic, pool, *options = sys.argv[1:]
conf = cfg.ConfigOpts()
conffixture.ConfFixture(conf)
conf([])
transport = oslo_messaging.get_notification_transport(conf, url)
target = oslo_messaging.Target(topic=topic)
endpoint = Holds() if options else PutsBack()
oslo_messaging.get_notification_listener(transport, [target], [endpoint], allow_requeue=True, pool=pool).start()
print("listening", flush=True)
threading.Event().wait()
