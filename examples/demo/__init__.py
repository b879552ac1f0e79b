"""A small cloud controller on rpcmq: ``python -m examples.demo`` (or ``make demo``).

Twelve processes over TCP: three routers that are linked as one mesh, each with a queue server, and at them

* ``api.py``: takes what users ask for and knows which instances there are;
* ``scheduler.py``: chooses the node for a new instance;
* ``compute.py``: a node that runs instances; there are three of them;
* ``network.py``: gives addresses to instances;
* ``billing.py``: charges for instances, from a work queue; there are two of them;
* ``users.py``, in the demo's own process: those who ask.

Read them in this order. ``context.py`` and ``exceptions.py`` are what they share; ``cluster.py`` starts and
ends the processes, and on the way a router, a biller and a node are killed. ``verdict.py`` checks at the end that
nothing was lost or done twice, by what each service has written into its ledger (``ledger.py``); ``kills.py``
says how long the death of the router was felt, ``report.py`` prints. Only the hypervisor is not real: where a
node would boot a machine, it sleeps some milliseconds.
"""
