"""Where nobody has installed it: oslo.config, of which a service uses `cfg`."""
