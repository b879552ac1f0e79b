"""Benchmarks of rpcmq, side by side with others on the same machine, in the same run.

``python -m benchmarks [--quick] [names...]``. Each benchmark is one module with one function that
returns rows; a peer that is not installed is left out with a notice. Timing is measured here and
never asserted by a test.
"""
