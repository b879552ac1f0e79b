"""Each way to break the shim is caught by the test for it."""

from __future__ import annotations

import pytest

from tests.compat import mutations


@pytest.mark.parametrize("mutation", mutations.MUTATIONS, ids=lambda mutation: mutation.way)
def test_what_is_to_be_broken_is_there(mutation):
    assert mutations.broken(mutation)


def test_there_is_one_for_each_test():
    tests = (mutations.ROOT / mutations.TESTS).read_text().split("\ndef test_")[1:]
    assert sorted(each.test for each in mutations.MUTATIONS) == sorted(f"test_{text.split('(')[0]}" for text in tests)


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_is_caught(capsys):
    ended = mutations.main()
    table = capsys.readouterr().out
    assert ended == 0, table
    assert table.count("  yes\n") == len(mutations.MUTATIONS) == 11
