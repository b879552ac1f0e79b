"""Nova's fakes for its tests."""
