"""Modules that several OpenStack projects shared."""
