"""Engines: pure state machines that take the clock as an argument and do no I/O."""
