"""The items of work queues, which must outlast the router that took them."""
