"""The items of work queues, which must outlast the queue server that took them."""
