"""Nova's helpers for its tests, below ``nova.test``."""
