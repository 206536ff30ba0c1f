"""A Spark standalone cluster on the loopback interface, from the jars of the installed pyspark: a master and workers.

Every worker is a process that starts executors as further processes, as it would on a machine of its own; each has an
address of its own (127.0.0.1, 127.0.0.2, ...; Linux has them all), because Spark runs a speculative copy of a task on
another host only. The master remembers workers and applications on disk, so that it can be killed and started again.
Processes belong to whoever started them here: `close` ends exactly these, and the executors that a killed worker left.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from watershed.lab import detached_process
from watershed.lab.detached_process import ProcessIdentity
from watershed.lab.errors import LabError, ToolMissing
from watershed.lab.jars import find_java

_HOST = "127.0.0.1"
_READY_S = 120.0  # on an idle machine 3 s
SPARK_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_DAEMON_OPTIONS = f"{SPARK_JAVA_OPTIONS} -Dspark.worker.timeout=10"  # seconds; as docker/spark.sh has it
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_LISTENS = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:(\d+))")
_PAGE = re.compile(r"Bound MasterWebUI to .* started at (http://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")


@dataclass(frozen=True, slots=True)
class SparkExecutor:
    """A process that runs an application's tasks. `id` as Spark counts them in the application, `worker` as we do."""

    id: int
    worker: int
    process: ProcessIdentity


@dataclass(slots=True)
class SparkStandalone:
    """A master, and workers that can be lost and added; a context that ends with all of them gone.

    cores, memory: of each worker. environ: what workers have beyond a bare environment, and executors inherit.
    `url` is what WATERSHED_SPARK_MASTER takes, `page` what WATERSHED_SPARK_PAGE takes. Raises
    ToolMissing (Java, pyspark), LabError.
    """

    directory: Path
    workers: int = 2
    cores: int = 1
    memory: str = "1g"
    environ: dict[str, str] = field(default_factory=dict)
    url: str = field(init=False, default="")
    page: str = field(init=False, default="")
    _master: ProcessIdentity | None = field(init=False, default=None)
    _workers: dict[int, ProcessIdentity] = field(init=False, default_factory=dict)

    def __enter__(self) -> Self:
        try:
            self.start_master()
            starting = [self._start_worker() for _ in range(self.workers)]
            for number in starting:
                self._until_registered(number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start_master(self) -> None:
        """Start it, for the first time or again at the same address."""
        again = self.url.rpartition(":")[2] or "0"
        log = self.directory / "master.log"
        heard = len(_text(log))
        kept = self.directory / "recovery"
        kept.mkdir(parents=True, exist_ok=True)
        options = f"-Dspark.master.rest.enabled=false -Dspark.deploy.recoveryDirectory={kept}"
        options += " -Dspark.deploy.recoveryMode=FILESYSTEM"
        arguments = ["--host", _HOST, "--port", again, "--webui-port", "0"]
        self._master = self._spawn(_MASTER, arguments, log, {"SPARK_MASTER_OPTS": f"{_DAEMON_OPTIONS} {options}"})
        found = _await(lambda: _LISTENS.search(_text(log), heard), self._master, log)
        self.url = found[1]
        self.page = _await(lambda: _PAGE.search(_text(log), heard), self._master, log)[1]

    def kill_master(self) -> None:
        """SIGKILL; workers, executors and drivers go on and wait for it."""
        assert self._master is not None
        detached_process.kill_process(self._master)

    def start_worker(self) -> int:
        """One more worker; returns its number when the master knows it."""
        number = self._start_worker()
        self._until_registered(number)
        return number

    def lose_worker(self, number: int) -> None:
        """SIGKILL to a worker and all that it started, at once. Their sockets are closed, which others see."""
        for each in self._stop(self._workers.pop(number)):
            detached_process.kill_process(each)

    def silence_worker(self, number: int) -> list[ProcessIdentity]:
        """A worker and all that it started answer nothing any more, and their sockets stay open, as when their machine
        loses power. The caller kills what is returned."""
        return self._stop(self._workers.pop(number))

    def _stop(self, worker: ProcessIdentity) -> list[ProcessIdentity]:
        family = [worker]
        for each in family:
            detached_process.send_signal(each, signal.SIGSTOP)  # it starts nothing any more
            family += detached_process.list_children(each)
        return family

    def executors(self) -> list[SparkExecutor]:
        """The executors that run now, of all applications."""
        found = []
        for number, worker in self._workers.items():
            for child in detached_process.list_children(worker):
                words = _words(child)
                if "--executor-id" in words:
                    found.append(SparkExecutor(int(words[words.index("--executor-id") + 1]), number, child))
        return found

    def close(self) -> None:
        """End everything; a worker takes its executors along, one that was killed leaves them to us."""
        family = [each for each in (self._master, *self._workers.values()) if each is not None]
        for each in family:
            family += detached_process.list_children(each)
        detached_process.end_processes(family, grace=10.0)
        self._workers.clear()
        self._master = None

    def _start_worker(self) -> int:
        number = max([0, *self._workers, *(int(path.stem[7:]) for path in self.directory.glob("worker-*.log"))]) + 1
        work = self.directory / f"work-{number}"
        host = f"127.0.0.{number}"
        arguments = ["--host", host, "--port", "0", "--webui-port", "0", "--cores", str(self.cores)]
        arguments += ["--memory", self.memory, "--work-dir", str(work), self.url]
        log = self.directory / f"worker-{number}.log"
        options = {"SPARK_WORKER_OPTS": _DAEMON_OPTIONS, "SPARK_LOCAL_IP": host, "SPARK_LOCAL_HOSTNAME": host}
        self._workers[number] = self._spawn(_WORKER, arguments, log, options)
        return number

    def _until_registered(self, number: int) -> None:
        log = self.directory / f"worker-{number}.log"
        _await(lambda: _REGISTERED.search(_text(log)), self._workers[number], log)

    def _spawn(self, role: str, arguments: list[str], log: Path, extra: dict[str, str]) -> ProcessIdentity:
        home = _spark_home()
        environ = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "JAVA_HOME": str(Path(find_java()).resolve().parent.parent),
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self.directory / "conf"),  # not there: nothing but what is said here
            "SPARK_LOCAL_DIRS": str(self.directory / "local"),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_HOSTNAME": _HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            **extra,
            **self.environ,
        }
        (self.directory / "local").mkdir(parents=True, exist_ok=True)
        return detached_process.spawn_detached([str(home / "bin" / "spark-class"), role, *arguments], log, environ)


def _spark_home() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ToolMissing("pyspark", "pyspark is not installed", "install watershed[spark]")
    if shutil.which("bash") is None:
        raise ToolMissing("bash", "no bash found", "Spark's own start script needs it")
    return Path(found.origin).parent


def _await(condition: Callable[[], re.Match[str] | None], running: ProcessIdentity, log: Path) -> re.Match[str]:
    deadline = time.monotonic() + _READY_S
    while (found := condition()) is None:
        if not detached_process.is_alive(running):
            raise LabError(f"a process of the Spark cluster ended: {_text(log).strip()[-500:]}; its log: {log}")
        if time.monotonic() > deadline:
            raise LabError(f"a process of the Spark cluster was not ready within {_READY_S:.0f} s; its log: {log}")
        time.sleep(0.1)
    return found


def _words(of: ProcessIdentity) -> list[str]:
    try:
        return Path(f"/proc/{of.pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
