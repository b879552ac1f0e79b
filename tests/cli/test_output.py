"""Tables on terminals of any width."""

from __future__ import annotations

import io

import pytest

from rpcmq.cli.output import Output, add_row, print_fitting, table

NAME = "cloud/conductor.object_class_action_versions"


def shown(width: int) -> list[str]:
    output = Output()
    output.file, output.width = io.StringIO(), width
    made = table("Methods", "method", ">time", ">records", ">p50", ">p95", ">queue p99", ">server p99")
    add_row(made, (NAME, "2.36 s", 1_234_567, "19.3 ms", "84.1 ms", "124 ms", "99.9 ms"), "yellow")
    print_fitting(output, made, "queue p99", "none of them", "server p99", "p50", "p95")
    return output.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "left_out"), [(120, ""), (92, "queue p99"), (80, "queue p99, server p99")])
def test_a_narrow_terminal_gets_fewer_columns_and_whole_names(width: int, left_out: str) -> None:
    title, header, row, *rest = shown(width)
    assert title.strip() == "Methods" and max(map(len, (header, row))) <= width
    assert row.split()[0] == NAME and "84.1 ms" in row and "2.36 s" in row
    assert rest == ([f"Not shown, for they do not fit: {left_out}"] if left_out else [])
