"""Stand-in for an oslo.config that is not installed; services use its `cfg`."""
