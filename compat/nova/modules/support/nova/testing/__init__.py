"""What Nova has for its tests, below ``nova.test``."""
