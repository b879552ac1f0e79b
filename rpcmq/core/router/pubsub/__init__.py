"""PubSub: events to all subscribers."""
