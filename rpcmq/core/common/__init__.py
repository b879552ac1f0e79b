"""What the engines of both programs are made of: sessions, timers, token buckets, topic patterns."""
