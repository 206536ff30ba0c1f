"""Hosts of one Airflow on this machine: each has a process tree, a host name, a /tmp and folders of its own.

`unshare` gives a host its namespaces, which takes root; only the network is one. Of the test's folder a host sees its
own part and what all are said to share. Its first process is the host: whoever kills that kills all of it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from watershed.lab.detached_process import ProcessIdentity, is_alive, kill_process, list_children, spawn_detached
from watershed.lab.process_sessions import end_sessions, list_session_members

SCRIPT = """
set -e
hostname {name}
mount -t tmpfs tmpfs /mnt
mkdir /mnt/base
mount --rbind {base} /mnt/base
for other in {others}; do mount -t tmpfs -o ro tmpfs /mnt/base/$other; done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p {base}
mount --rbind /mnt/base {base}
echo there
while :; do sleep 60 & wait; done
"""  # the last line reaps whom other processes leave behind


def find_missing_hosts() -> str:
    """Why no host can be made here; "" when one can."""
    if os.geteuid() != 0:
        return "a host of its own takes root, for `unshare`"
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "unshare and nsenter are missing (Debian: apt-get install util-linux)"
    tried = subprocess.run([*_unshare(), "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"unshare: {tried.stderr.strip()}"


def _unshare() -> list[str]:
    return [str(shutil.which("unshare")), "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]


@dataclass(slots=True)
class Host:
    """A host. home: the folder that only this one sees. leader: of the session of its first process."""

    name: str
    home: Path
    leader: ProcessIdentity
    components: dict[str, ProcessIdentity] = field(default_factory=dict)

    @property
    def first(self) -> ProcessIdentity:
        """Its process 1, as it is seen from here."""
        [found] = list_children(self.leader)
        return found

    def run(self, name: str, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start a component on it, whose log is `NAME.log` in its home."""
        enter = [str(shutil.which("nsenter")), "-t", str(self.first.pid), "--mount", "--pid", "--uts", "--wd=/", "--"]
        environ = {**environ, "HOME": str(self.home / "home"), "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname"}
        (self.home / "home").mkdir(exist_ok=True)
        self.components[name] = spawn_detached([*enter, *argv], self.home / f"{name}.log", environ)

    def kill_component(self, name: str) -> None:
        """SIGKILL to it and to all that it has started, as when its container dies."""
        for process in list_session_members(self.components[name]):
            kill_process(process)

    def processes(self, *words: str) -> list[psutil.Process]:
        """Those on it whose command line has these words one after the other."""
        space, found = os.readlink(f"/proc/{self.first.pid}/ns/pid"), []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                line = process.cmdline()
                there = any(tuple(line[at : at + len(words)]) == words for at in range(len(line)))
                if there and os.readlink(f"/proc/{process.pid}/ns/pid") == space:
                    found.append(process)
        return found

    def name_process(self, process: psutil.Process) -> str:
        """HOST-PID, with the pid that it has on its host."""
        told = Path(f"/proc/{process.pid}/status").read_text()
        [pids] = [line.split()[1:] for line in told.splitlines() if line.startswith("NSpid:")]
        return f"{self.name}-{pids[-1]}"

    def kill(self) -> None:
        """SIGKILL to the host: nothing on it lives on."""
        os.kill(self.first.pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while is_alive(self.leader):
            assert time.monotonic() < deadline, f"{self.name} does not die"
            time.sleep(0.05)

    def end(self) -> None:
        """Ends all of it in good order, if it runs."""
        end_sessions(self.components.values(), grace=10.0)
        end_sessions([self.leader], grace=0.0)


def start_host(name: str, base: Path, others: Sequence[str]) -> Host:
    """A host with the folder `base/NAME`, which does not see those of the others. Raises AssertionError."""
    home = base / name
    home.mkdir(exist_ok=True)
    script = SCRIPT.format(name=name, base=shlex.quote(str(base)), others=" ".join(map(shlex.quote, others)))
    log = home / "host.log"
    log.unlink(missing_ok=True)
    leader = spawn_detached([*_unshare(), "/bin/sh", "-c", script], log)
    deadline = time.monotonic() + 30
    while "there" not in (log.read_text() if log.exists() else ""):
        assert is_alive(leader), f"{name}: {log.read_text()}"
        assert time.monotonic() < deadline, f"{name} did not start: {log.read_text()}"
        time.sleep(0.05)
    return Host(name, home, leader)


def airflow(*words: str) -> list[str]:
    """The command line of an Airflow component."""
    return [sys.executable, "-m", "airflow", *words]
