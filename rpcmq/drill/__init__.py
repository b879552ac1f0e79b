"""The fault harness: a seeded load, injected faults, a history of all that happened, and checks of it.

``history`` writes down what happened, ``checks`` says what must hold. ``simulation`` drives the engines on a
virtual network; ``run`` drives real routers, services and callers. ``rpcmq drill`` is its command.
"""
