"""Notifications: what happened, for whoever listens."""
