"""The engines of the router: links, topics, dispatch of calls and casts, PubSub, access control, views."""
