"""Tests, without a translation."""

import __builtin__
setattr(__builtin__, '_', lambda x: x)
