"""The queue server: a process beside the router, which keeps the items of work queues and gives them to workers."""
