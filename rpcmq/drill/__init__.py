"""The fault harness: a seeded load, injected faults, a history of all that happened, and checks of it.

``history`` writes down what happened, ``checks`` says what must hold. ``run`` drives real routers, services
and callers, and ``faults`` hurts them. ``rpcmq drill`` is its command.
"""
