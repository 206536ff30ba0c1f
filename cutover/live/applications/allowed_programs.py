"""Which programs may stop and start applications on this host: its settings say so, never the topology file.

`WATERSHED_COMMANDS` names a YAML file of the host:

    programs:
      switch:
        argv: [/usr/local/bin/switch, --quiet]   # absolute; verb, application, cluster and bootstrap are appended
        environment: [HOME, SSH_AUTH_SOCK]       # variables of the caller that the program gets, besides PATH and LANG
        airflow: true                            # Airflow's workers may run it, too; without it only a terminal

A topology file names an entry (`command: switch`) and can say nothing else about it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from watershed.cutover.errors import CutoverError
from watershed.cutover.live.host_settings import HostSettingsRefused, read_host_settings

COMMANDS_VARIABLE = "WATERSHED_COMMANDS"
Caller = Literal["terminal", "airflow"]
_KEYS = frozenset({"argv", "environment", "airflow"})


class ProgramRefused(CutoverError):
    """This host does not let the program be run; the message says what its operator would have to do."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class AllowedProgram:
    """argv: the program's absolute path and its first arguments. environment: names of variables that it gets."""

    argv: tuple[str, ...]
    environment: tuple[str, ...] = ()
    airflow: bool = False


def find_allowed_program(name: str, caller: Caller, environ: Mapping[str, str]) -> AllowedProgram:
    """The program that this host means by the name. Raises ProgramRefused."""
    path = environ.get(COMMANDS_VARIABLE, "").strip()
    if not path:
        raise ProgramRefused(
            f"no program may be run here: whoever runs the migration lists them in a file of this host and sets "
            f"{COMMANDS_VARIABLE} to its path (docs/applications.md#command)"
        )
    programs = _read_programs(Path(path))
    if name not in programs:
        there = ", ".join(sorted(programs)) or "none"
        raise ProgramRefused(f"program {name} is not one of those that {path} allows ({there}); add it there")
    program = _parse_program(name, programs[name], path)
    if caller == "airflow" and not program.airflow:
        raise ProgramRefused(
            f"program {name} may be run from a terminal only: run `topology migrate` there, or let the operator of "
            f"Airflow's workers say `airflow: true` for it in {path}"
        )
    executable = Path(program.argv[0])
    if not executable.is_file() or not os.access(executable, os.X_OK):
        raise ProgramRefused(f"program {name}: {executable} is no program that can be run here; correct {path}")
    return program


def _read_programs(path: Path) -> dict[str, Any]:
    """Raises ProgramRefused: also for a file that somebody else could have written."""
    try:
        programs = read_host_settings(path, COMMANDS_VARIABLE, "programs", "docs/applications.md#command")
    except HostSettingsRefused as refused:
        raise ProgramRefused(str(refused)) from None
    if not isinstance(programs, dict):
        raise ProgramRefused(f"{path} has to hold `programs:` with a mapping; see docs/applications.md#command")
    return programs


def _parse_program(name: str, value: object, path: str) -> AllowedProgram:
    """Raises ProgramRefused."""
    wrong = ProgramRefused(
        f"program {name} in {path}: `argv` is a list of texts that begins with an absolute path, `environment` a list "
        "of names, `airflow` true or false, and there is nothing else"
    )
    if not isinstance(value, dict) or not set(value) <= _KEYS:
        raise wrong
    argv, environment, airflow = value.get("argv"), value.get("environment", []), value.get("airflow", False)
    texts = [*argv, *environment] if isinstance(argv, list) and isinstance(environment, list) else [None]
    if not argv or not all(isinstance(each, str) for each in texts) or not isinstance(airflow, bool):
        raise wrong
    if not Path(argv[0]).is_absolute():
        raise wrong
    return AllowedProgram(tuple(argv), tuple(environment), airflow)
