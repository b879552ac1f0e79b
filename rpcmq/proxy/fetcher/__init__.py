"""Fetchers: back ends that ask origins, over connections that are kept, and give front ends what came."""

from __future__ import annotations
