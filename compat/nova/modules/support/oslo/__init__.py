"""The namespace of oslo.config."""
