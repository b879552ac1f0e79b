"""RoundRobin: calls and casts to one of many consumers, and answers home."""
