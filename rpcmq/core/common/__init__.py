"""The parts that the engines of both programs share: sessions, timers, token buckets, topic patterns."""
