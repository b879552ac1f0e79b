"""The rules of a shared HTTP cache: no I/O, and the time is an argument.

:func:`decide` says whether stored responses answer a request or the origin is asked, :func:`receive` what becomes of
the origin's response, and :func:`fail` what is done without one.
"""
