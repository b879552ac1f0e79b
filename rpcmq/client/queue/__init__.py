"""Work queues as a program uses them: items are put, and worked at."""
