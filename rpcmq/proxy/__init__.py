"""An HTTPS caching reverse proxy whose front ends, routers, fetchers and stores come and go while it serves.

It stands on rpcmq's public names alone: nothing in the routers knows HTTP.
"""
