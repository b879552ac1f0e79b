"""What tests import of nose, for suites that another runner runs: ``SkipTest`` and ``attr``."""

from unittest import SkipTest as SkipTest
