"""Stores of the caching proxy: memory, files, MongoDB."""
