"""An application that a program of the host stops and starts (`cutover.live.applications.allowed_programs`).

The program is called with `VERB APPLICATION [CLUSTER BOOTSTRAP]` behind its own arguments; the verbs are `status`,
`stop` and `start`. It prints a JSON object with {"state", "cluster"} on its last line, as an application's switch
answers (`http_application`). Exit code 0: done; 75 (EX_TEMPFAIL of sysexits.h): ask again; any other: no.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO

from watershed.cutover.live.applications.allowed_programs import (
    AllowedProgram,
    Caller,
    ProgramRefused,
    find_allowed_program,
)
from watershed.cutover.live.applications.application_adapter import (
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationState,
)
from watershed.cutover.live.applications.http_application import parse_answer_object, parse_application_state

_ASK_AGAIN = 75  # EX_TEMPFAIL
_MOST_OUTPUT = 64 * 1024  # bytes of what it prints that are looked at, from the end
_MOST_PRINTED = 16 * 1024 * 1024  # bytes; a program that prints more is killed before it fills a disk
_MOST_WORDS = 300  # characters of what the program says
_LOOK_S = 10.0
_ALWAYS = ("PATH", "LANG", "LC_ALL", "TZ")


@dataclass(frozen=True, slots=True)
class CommandApplication:
    """program: a name in the settings of the host. timeout in seconds, of one call. caller: who runs the migration."""

    name: str
    program: str
    timeout: float
    caller: Caller
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def read(self) -> ApplicationState:
        """`status APPLICATION`"""
        return self._call("status", (), {}, min(self.timeout, _LOOK_S))

    def tell(self, order: ApplicationOrder) -> ApplicationState:
        """`stop APPLICATION CLUSTER` or `start APPLICATION CLUSTER BOOTSTRAP`. The same, and role and key, stand in
        variables `WATERSHED_…`."""
        told = {f"WATERSHED_{name.upper()}": value for name, value in order.to_json().items()}
        arguments = (order.alias, ",".join(order.bootstrap)) if order.verb == "start" else (order.alias,)
        return self._call(order.verb, arguments, told, self.timeout)

    def follow(self, order: ApplicationOrder) -> ApplicationState:
        """What the program says of the application by now."""
        return self.read()

    def _call(self, verb: str, arguments: tuple[str, ...], told: Mapping[str, str], seconds: float) -> ApplicationState:
        try:
            program = find_allowed_program(self.program, self.caller, self.environ)
        except ProgramRefused as refused:
            raise ApplicationControlFailed(f"application {self.name}: {refused}", transient=False) from None
        if self.name.startswith("-"):
            raise ApplicationControlFailed(
                f"application {self.name}: programs would take its name for an option; take another way than `command`",
                transient=False,
            )
        code, out, err = self._run(program, [verb, self.name, *arguments], told, seconds)
        lines = out.strip().splitlines()
        value = parse_answer_object(lines[-1]) if lines else None
        if code:
            error = str(value.get("error") or "") if value else ""
            said = " ".join((error or (err.strip().splitlines() or [""])[-1]).split())[:_MOST_WORDS]
            message = f"application {self.name}: program {self.program} {verb} ended with exit code {code}"
            raise ApplicationControlFailed(message + (f": {said}" if said else ""), transient=code == _ASK_AGAIN)
        if value is None:
            raise ApplicationControlFailed(
                f"application {self.name}: the last line that program {self.program} {verb} prints is no JSON object; "
                'expected {"state": "running", "cluster": "ALIAS"}',
                transient=False,
            )
        return parse_application_state(self.name, value, "command")

    def _run(
        self, program: AllowedProgram, arguments: list[str], told: Mapping[str, str], seconds: float
    ) -> tuple[int, str, str]:
        """Exit code, the end of standard output, and that of standard error. Raises ApplicationControlFailed.

        Its output goes to files, so that it can never fill a pipe and stand still; at the end of its time it is killed
        with everything that it started in its session."""
        known = {name: self.environ[name] for name in (*_ALWAYS, *program.environment) if name in self.environ}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    [*program.argv, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env={**known, **told},
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                raise ApplicationControlFailed(
                    f"application {self.name}: program {self.program} cannot be run ({error.strerror})", transient=False
                ) from None
            try:
                why = _wait(process, (out, err), seconds)
            finally:
                _end_session(process)
            if why:
                raise ApplicationControlFailed(
                    f"application {self.name}: program {self.program} {arguments[0]} {why} and was killed; give it "
                    f"more time (migration.applications.{self.name}.timeout), or let it answer with the state "
                    "`stopping` or `starting`",
                    transient=False,
                )
            return process.returncode, _read_end(out), _read_end(err)


def _wait(process: subprocess.Popen[bytes], outputs: tuple[IO[bytes], ...], seconds: float) -> str:
    """Waits for the end of the program. Returns what it did instead, "" where it ended."""
    deadline, pause = time.monotonic() + seconds, 0.01
    while True:
        try:
            process.wait(pause)
        except subprocess.TimeoutExpired:
            pause = min(pause * 2, 0.25)
        else:
            return ""
        if time.monotonic() > deadline:
            return f"did not end in {seconds:g} s"
        if any(os.fstat(each.fileno()).st_size > _MOST_PRINTED for each in outputs):
            return f"printed more than {_MOST_PRINTED >> 20} MiB"


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Kills what is left of the program's session; one that ended in good order has nothing left, or what it started
    to stay (in a session of its own)."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read_end(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _MOST_OUTPUT))
    return file.read().decode(errors="replace")
