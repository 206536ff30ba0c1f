"""The program by which the demonstration stops and starts an application, as somebody's own tool would
(docs/applications.md#command): `application_switch WHERE status|stop|start NAME [CLUSTER [BOOTSTRAP]]`. WHERE is the
directory of the applications on this machine, or `containers`."""

from __future__ import annotations

import json
import sys

import click

from watershed.lab.demo.container_application import list_container_applications
from watershed.lab.errors import ApplicationFailed
from watershed.lab.sample_applications import (
    SampleApplication,
    ask_application,
    list_applications,
    start_client,
    stop_client,
)

TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h


def main(arguments: list[str]) -> int:
    """Prints the application's state as JSON. Returns the exit code."""
    where, verb, name, *rest = arguments
    found = (list_container_applications() if where == "containers" else list_applications(where)).get(name)
    if found is None:
        click.echo(json.dumps({"error": f"there is no application {name} in {where}"}))
        return 1
    try:
        seen = _switch(found, verb, rest)
    except ApplicationFailed as problem:
        click.echo(json.dumps({"error": str(problem)}))
        return 1
    except OSError as problem:
        click.echo(json.dumps({"error": f"{name} does not answer: {problem}"}))
        return TRY_AGAIN
    click.echo(json.dumps({"state": seen["state"], "cluster": seen["cluster"]}))
    return 0


def _switch(application: SampleApplication, verb: str, rest: list[str]) -> dict[str, object]:
    if verb == "stop":
        return stop_client(application)
    if verb == "start":
        return start_client(application, rest[0], rest[1])
    return ask_application(application)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
