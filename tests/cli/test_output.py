"""Tables on terminals of any width."""

from __future__ import annotations

import io

import pytest

from rpcmq.cli.output import Output, add_row, print_fitting, print_folded, print_with_reasons, table

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


LONG = "n" * 255


def folded(width: int | None, *spare: str) -> list[str]:
    output = Output()
    output.file = io.StringIO()
    if width is not None:
        output.width = width
    made = table("Processes", "identity", ">silent s", ">calls", "consumes", "mark")
    add_row(made, (LONG, 1_234_567, 89, "(another router)", ""))
    add_row(made, ("web", 12, 3, "compute", "slow"))
    print_folded(output, made, *spare)
    return output.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 64])
def test_a_long_name_goes_on_in_further_lines_and_numbers_stay_whole(width: int) -> None:
    _, header, *rows, last = folded(width, "calls", "silent s")
    assert max(map(len, rows)) <= width and header.split() == ["identity", "silent", "s", "calls", "consumes", "mark"]
    name = "".join(row.split()[0] for row in rows)
    assert name == LONG and rows[0].split()[1:] == ["1234567", "89", "(another", "router)"]
    assert last.split() == ["web", "12", "3", "compute", "slow"]


def test_columns_are_left_out_before_a_name_is_torn_to_pieces() -> None:
    *lines, note = folded(50, "calls", "silent s")
    assert note == "Not shown, for they do not fit: calls" and "1234567" in lines[2]
    assert min(len(line.split()[0]) for line in lines[2:-2]) >= 15


def test_nothing_is_cut_off_however_narrow_the_terminal() -> None:
    narrow, whole = ("".join("".join(folded(width)).split()) for width in (20, None))
    assert sorted(narrow) == sorted(whole)


def test_each_row_is_one_line_where_the_output_is_no_terminal() -> None:
    _, _, first, second = folded(None)
    assert first.split()[0] == LONG and first.split()[-1] == "router)" and second.split()[0] == "web"


def reasoned(width: int | None) -> list[str]:
    output = Output()
    output.file = io.StringIO()
    if width is not None:
        output.width = width
    made = table("Periodic items", "queue", "cron", ">next", "why")
    add_row(made, (LONG, "0 3 * * *", "2026-11-24 03:00:00", "the queue is full"))
    add_row(made, ("web", "0 3 * * *", "2026-11-25 03:00:00", ""))
    print_with_reasons(output, made, [("queue: the queue is full", "red")], "cron")
    return output.file.getvalue().splitlines()


def test_reasons_go_below_a_table_that_does_not_fit_and_times_stay_whole() -> None:
    _, header, *rows, note, reason = reasoned(40)
    assert (header.split(), note) == (["queue", "next"], "Not shown, for they do not fit: cron")
    assert "2026-11-24 03:00:00" in rows[0] and reason == "queue: the queue is full"
    _, header, *rows, reason = reasoned(60)
    assert header.split() == ["queue", "cron", "next"] and "2026-11-24 03:00:00" in rows[0]
    assert reason == "queue: the queue is full"


def test_reasons_are_in_the_rows_of_a_table_that_fits() -> None:
    _, _, first, second = reasoned(None)
    assert first.endswith("the queue is full") and second.split()[0] == "web"
