"""The names that tests import from nose, for suites run by another runner: ``SkipTest`` and ``attr``."""

from unittest import SkipTest as SkipTest
