"""``rpcmq latency package``."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from rpcmq.cli.exit_codes import failing
from rpcmq.cli.options import State, json_option
from rpcmq.cli.output import print_json

__all__ = ["package_command"]


@click.command("package")
@click.option(
    "--out",
    "directory",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write it.",
)
@json_option
@click.pass_obj
def package_command(state: State, directory: Path) -> None:
    """Write what spark-submit needs to run these commands on a cluster.

    That is rpcmq as a zip, a script that takes what `rpcmq latency` takes, and a list of what Python needs where the
    driver runs.
    """
    from rpcmq.latency.jobs.package import write_package

    with failing(directory):
        paths = write_package(directory)
    if state.json:
        print_json([str(path) for path in paths])
        return
    archive, script, needs = (shlex.quote(str(path)) for path in paths)
    click.echo(
        f"{archive}, {script}: where the driver runs, Python needs what is in {needs}. Start it with\n"
        f"spark-submit --master MASTER --py-files {archive} {script} report --log DIR --out DIR"
    )
