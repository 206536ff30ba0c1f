"""One place that turns whatever stopped a command into one message on stderr and an exit code.

Known errors are recognised by their shape, so that nothing is imported here: an exception with an integer `exit_code`
(the roots of `topology.errors`, `clusters.errors`, `replicator.errors`, `cutover.errors`, `spark.errors`,
`lab.errors`) is complete as it is; an exception of those packages without one ends with 2.
"""

from __future__ import annotations

import os
import sys
import traceback

import click

_OURS = "watershed"  # the import package (decision 0128)
# what a missing package is called on the command line of pip: import name -> extra of watershed
_EXTRAS = {
    "confluent_kafka": "kafka",
    "kio": "kafka",
    "crc32c": "kafka",
    "xxhash": "kafka",
    "prometheus_client": "kafka",
    "pyspark": "spark",
    "pandas": "spark",
    "pyarrow": "spark",
    "airflow": "airflow",
    "httpx": "airflow",
}


def report_error(error: BaseException, *, verbose: bool = False) -> int:
    """Print what is wrong and what to do; the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        click.echo("topology: interrupted", err=True)
        return 130
    if isinstance(error, BrokenPipeError):
        _quiet_pipe()
        return 0
    if verbose:
        traceback.print_exception(error)
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx else "topology"
        _say(f"{error.format_message()}\n(`{where} --help` shows how it is used)")
        return 2
    message, code = _message(error)
    _say(message)
    return code


def _say(message: str) -> None:
    """Paths and values of the user's choice are in messages: nothing in them may reach a terminal raw."""
    from watershed.topology.text_escaping import escape_control_lines

    click.echo(f"topology: {escape_control_lines(message)}", err=True)


def _message(error: BaseException) -> tuple[str, int]:
    code = getattr(error, "exit_code", None)
    if isinstance(error, click.ClickException):
        return error.format_message(), 2
    if isinstance(error, ModuleNotFoundError):
        return _missing(error), 2
    if isinstance(code, int):
        return str(error), code
    if type(error).__module__.partition(".")[0] == _OURS:
        return str(error), 2
    if isinstance(error, OSError) and error.strerror:
        at = f"{_name(error.filename)}: " if error.filename else ""
        return f"{at}{error.strerror}", 2
    return (
        f"unexpected {type(error).__name__}: {error}\n"
        "This is a defect of Watershed, not of your input. `topology -v …` shows where it happened."
    ), 2


def _name(path: object) -> str:
    from watershed.topology.text_escaping import escape_controls

    return escape_controls(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else str(path)


def _missing(error: ModuleNotFoundError) -> str:
    name = (error.name or "").partition(".")[0]
    if name in _EXTRAS:
        return (
            f"this command needs the package `{name}`, which is not installed: pip install 'watershed[{_EXTRAS[name]}]'"
        )
    if name == _OURS:
        return f"this command needs `{error.name}`, which this installation of Watershed does not have."
    return f"the package `{error.name}` is not installed: pip install {name}"


def _quiet_pipe() -> None:
    """The reader of our output went away (`| head`): nothing more to say, also not at interpreter exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
