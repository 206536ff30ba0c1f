"""Programs that outlive the Airflow task that started them: Spark applications and fleets of workers.

A program is one Python module, run as `python -m watershed.plugins.detached_process FOLDER MODULE ARGUMENT…` in a
session of its own.  Its folder holds

    process.json   an id of its own, pid, start time (ticks since boot), where pids mean something, module, arguments
    log            everything it prints
    exit           its exit code, written last
    lock           locked as long as it runs: no second one can start in the folder, and who holds the
                   lock is alive whatever happened to pid numbers
    asked-to-end   written by who wants it to end and cannot signal it, from another container say: the program's id,
                   seconds until the hard end, and not before when (seconds since 1970)
    orders         of a program that takes commands: a named pipe, its standard input

A folder without `exit` whose lock is free belongs to a program that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import termios
import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from watershed import IMPORT_ROOT
from watershed.clusters.private_files import make_folder, open_for_append, read_file_end, replace_file
from watershed.topology.text_escaping import escape_control_lines

_LOG_END = 64 * 1024  # bytes of a log's end that are read for its last lines
_START_SECONDS = 30.0
_ASKED_TO_END = "asked-to-end"
_DISMISSED_GRACE_S = 20.0
_ASKED_S = 1.0  # how often a program looks for it


class ProcessStartFailed(Exception):
    """The program could not be started; the message carries the end of its log."""


@dataclass(frozen=True, slots=True)
class DetachedProcess:
    """A program by the folder it runs in."""

    folder: Path

    @property
    def log(self) -> Path:
        """Standard output and error of the program."""
        return self.folder / "log"

    def pid(self) -> int | None:
        """None until the program has written it, and for a folder without a program."""
        with contextlib.suppress(OSError, ValueError):
            return int(json.loads((self.folder / "process.json").read_text())["pid"])
        return None

    def alive(self) -> bool:
        """Whether the program holds the folder's lock: true on every machine that shares the folder."""
        try:
            with (self.folder / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # others may look at the same moment
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def exit_code(self) -> int | None:
        """None while it runs, and for ever when it was killed."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "exit").read_text())
        return None

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        return read_log_end(self.log, lines)

    def order(self, line: str) -> bool:
        """Pass a line to its standard input; False when nobody is there to read it, or it does not fit a pipe:
        then nothing of it is written, because a part without its end would keep the reader from all that follow."""
        try:
            pipe = os.open(self.folder / "orders", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            content = f"{line}\n".encode()
            return _fits_pipe(pipe, len(content)) and os.write(pipe, content) == len(content)
        except OSError:
            return False
        finally:
            os.close(pipe)

    def dismiss(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send it the signal, without waiting for its end. What has ended is left alone.

        What runs on another machine, or in another container, is asked to end (SIGTERM). No other signal gets there.
        """
        pid = self.pid()
        if pid is None or not self.alive():
            return
        if self._is_here(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        elif number == signal.SIGTERM:
            self._ask_to_end(_DISMISSED_GRACE_S)

    def leave(self, seconds: float) -> None:
        """Let it end by itself after so many seconds, unless somebody keeps it before."""
        self._ask_to_end(_DISMISSED_GRACE_S, time.time() + seconds)

    def keep(self) -> None:
        """Whoever waits for it again takes back that it was left."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            if json.loads((self.folder / _ASKED_TO_END).read_text())["at"] > time.time():
                (self.folder / _ASKED_TO_END).unlink(missing_ok=True)

    def _ask_to_end(self, grace: float, at: float = 0.0) -> None:
        """Only the program that is known now: one that starts meanwhile has another id."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            identity = json.loads((self.folder / "process.json").read_text())["id"]
            _write(self.folder / _ASKED_TO_END, json.dumps({"id": identity, "grace": grace, "at": at}))

    def _is_here(self, pid: int) -> bool:
        """Whether the pid is the program's, and not another one's of another machine or container."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            known = json.loads((self.folder / "process.json").read_text())
            same_pids = known.get("pids_of") in (None, _identify_pid_space())
            return same_pids and bool(known["started"] == _started(str(pid)))
        return False

    def end(self, grace: float = 20.0) -> None:
        """SIGTERM to it (it ends its children), SIGKILL to its group after `grace` seconds; nothing to end is fine.

        What runs on another machine, or in another container, signals itself: it looks for `asked-to-end`.
        """
        pid = self.pid()
        if pid is None or not self.alive():
            return
        if not self._is_here(pid):
            self._ask_to_end(grace)
            self._wait_for_end(grace + _ASKED_S + 5.0)
            return
        for send, number, patience in ((os.kill, signal.SIGTERM, grace), (os.killpg, signal.SIGKILL, 5.0)):
            if not self.alive():
                return
            with contextlib.suppress(ProcessLookupError):
                send(pid, number)
            self._wait_for_end(patience)

    def _wait_for_end(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.1)


def _fits_pipe(pipe: int, size: int) -> bool:
    """Whether a pipe takes so many bytes whole: up to PIPE_BUF whole or not at all, more only when it is empty."""
    if size <= select.PIPE_BUF:
        return True
    waiting = int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
    return waiting == 0 and size <= fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def read_log_end(log: Path, lines: int) -> str:
    """The last lines of a log, with control characters made visible: names of brokers and files are in them."""
    try:
        text = read_file_end(log, _LOG_END).decode(errors="replace").expandtabs(4)
        return escape_control_lines("\n".join(text.splitlines()[-lines:]))
    except OSError:
        return "(no log)"


def start_detached(
    folder: Path, module: str, arguments: Sequence[str], environ: Mapping[str, str], *, orders: bool = False
) -> DetachedProcess:
    """Starts the module, or finds it running in the folder. Returns once it holds its lock. orders: its standard input
    is a pipe for commands (`DetachedProcess.order`) that never reaches its end.

    Raises ProcessStartFailed.
    """
    program = DetachedProcess(folder)
    if program.alive():
        return program
    make_folder(folder)
    for name in ("process.json", "exit", _ASKED_TO_END):
        (folder / name).unlink(missing_ok=True)
    with os.fdopen(open_for_append(program.log), "ab") as log, _standard_input(folder, orders=orders) as stdin:
        child = subprocess.Popen(
            [sys.executable, "-m", "watershed.plugins.detached_process", str(folder), module, *arguments],
            cwd=folder,
            env={**environ, "PYTHONPATH": str(IMPORT_ROOT), "PYTHONUNBUFFERED": "1"},
            stdin=stdin,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while program.pid() is None:
        if child.poll() is not None and program.pid() is None:
            raise ProcessStartFailed(f"{module} did not start:\n{program.tail()}")
        if time.monotonic() > deadline:
            raise ProcessStartFailed(f"{module} did not start within {_START_SECONDS:.0f} s; see {program.log}")
        time.sleep(0.02)
    return program


@contextlib.contextmanager
def _standard_input(folder: Path, *, orders: bool) -> Iterator[int]:
    """What the program reads its commands from. The program holds both ends of the pipe: it survives the process that
    sends commands, and a sender gets an error as soon as the program has ended."""
    if orders:
        (folder / "orders").unlink(missing_ok=True)
        os.mkfifo(folder / "orders", 0o600)
    opened = os.open(folder / "orders", os.O_RDWR) if orders else os.open(os.devnull, os.O_RDONLY)
    try:
        yield opened
    finally:
        os.close(opened)


def build_clean_environment() -> dict[str, str]:
    """The environment of a program: ours without Airflow's configuration (it holds signing keys).

    `AIRFLOW_CONN_*` stays: plans refer to credentials by connection id.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__")}


def main(arguments: Sequence[str]) -> int:
    """Run one module under the folder's lock and leave its exit code there."""
    folder, module, *rest = arguments
    lock = os.fdopen(open_for_append(Path(folder) / "lock"), "ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0  # another one was faster: it is the one that counts
    identity = _identity(module, rest)
    _write(Path(folder) / "process.json", json.dumps(identity, indent=1))
    threading.Thread(target=_end_when_asked, args=(Path(folder), identity["id"]), daemon=True).start()
    code = _run(module, rest)
    _write(Path(folder) / "exit", str(code))
    return code


def _end_when_asked(folder: Path, identity: object) -> None:
    while True:
        with contextlib.suppress(OSError, ValueError, KeyError):
            asked = json.loads((folder / _ASKED_TO_END).read_text())
            if asked["id"] == identity and asked["at"] <= time.time():
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(asked["grace"])
                os.killpg(os.getpid(), signal.SIGKILL)
        time.sleep(_ASKED_S)


def _run(module: str, arguments: Sequence[str]) -> int:
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        if ending.code is None:
            return 0
        if isinstance(ending.code, int):
            return ending.code
        sys.stderr.write(f"{ending.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 (the exit code must be written whatever ends the module)
        traceback.print_exc()
        return 2
    return 0


def _identity(module: str, arguments: Sequence[str]) -> dict[str, object]:
    return {
        "schema": 1,
        "id": uuid.uuid4().hex,
        "pid": os.getpid(),
        "started": _started("self"),
        "pids_of": _identify_pid_space(),
        "module": module,
        "arguments": list(arguments),
    }


def _identify_pid_space() -> str:
    """The machine and the container within which pids mean something."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _started(process: str) -> int:
    """Ticks since boot. Raises OSError when there is no such process."""
    stat = Path(f"/proc/{process}/stat").read_text()
    return int(stat[stat.rindex(")") + 2 :].split()[19])


def _write(path: Path, text: str) -> None:
    replace_file(path, text.encode())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
