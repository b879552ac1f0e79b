"""Work queues: items that are kept until they are done."""
