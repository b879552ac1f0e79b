"""The router daemon: the engine and its shell, with signals, logs, limits and views around them."""
