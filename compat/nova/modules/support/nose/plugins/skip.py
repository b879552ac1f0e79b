"""The exception that skips a test: unittest's own, as in nose."""

from unittest import SkipTest as SkipTest
