"""Spark applications as tasks that hold no worker slot while they run, where the triggerer sees their folder.

No Spark provider: it would install a second copy of PySpark over ours (docs/decisions).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from watershed.clusters.private_files import read_private_file
from watershed.cutover.evidence.proof_summary import PROOF_COUNTS, PROVEN_VERDICTS, read_proof_summary
from watershed.plugins.api_server_watch import LEFT_S, ApiServerWatch
from watershed.plugins.detached_process import (
    DetachedProcess,
    ProcessStartFailed,
    build_clean_environment,
    start_detached,
)
from watershed.plugins.state_folder import find_frozen_plan, is_state_shared, locate_task_folder
from watershed.spark.session import is_local_master, read_spark_master
from watershed.topology.text_escaping import escape_control_lines, escape_controls

# A trigger that fires while the scheduler still has the deferring process on its list makes Airflow fail the task
# ("finished with state success, but the task instance's state attribute is queued").
TRIGGER_SETTLE_S = 3.0
_LOOK_S = 1.0


class SparkApplicationOperator(BaseOperator):
    """Run `python -m MODULE ARGUMENT…` as a detached Spark application and wait for it in the triggerer, or in the task
    where hosts of Airflow have a state folder each.

    In `arguments`, `{topology}` becomes the frozen topology file of `plan` (a plan hash) and `{out}` the folder
    of this attempt; empty ones are left out.  The application's exit code is the verdict: 0 fine, 1 different
    (never tried again), 2 error, 3 incomplete.  A retry after a lost Airflow process finds the application that
    is still running, or the result that nobody collected, and starts no second one; after a collected result it
    starts afresh in a new folder, so that evidence is never overwritten.

    Returns the path of `summary.json` when the application wrote one, else the folder.
    """

    template_fields: Sequence[str] = ("plan", "arguments")

    def __init__(
        self,
        *,
        module: str,
        arguments: Sequence[str],
        plan: str,
        timeout: timedelta = timedelta(hours=12),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.module = module
        self.arguments = list(arguments)
        self.plan = plan
        self.timeout = timeout
        self.awaited: DetachedProcess | None = None
        self.api_server: ApiServerWatch | None = None

    def execute(self, context: Any) -> str:
        """Finds the application of an earlier try or starts one, and leaves the worker slot."""
        topology = find_frozen_plan(self.plan).topology
        application = attach_or_start_spark(
            locate_task_folder(context), self.module, self.arguments, topology, self.log
        )
        if is_state_shared():
            self.defer(
                trigger=ProcessEnded(folder=str(application.folder)),
                method_name="collect",
                timeout=self.timeout,
            )
        self._wait_here(application)
        return self.collect(context, {"folder": str(application.folder)})

    def _wait_here(self, application: DetachedProcess) -> None:
        """Holds the worker slot. Raises AirflowException after `timeout`, when the application is ended."""
        self.awaited, shown, deadline = application, 0, time.monotonic() + self.timeout.total_seconds()
        self.api_server = ApiServerWatch()
        application.keep()
        while application.alive():
            self.api_server.look()
            shown = pass_log_on(application, shown, self.log)
            if time.monotonic() > deadline:
                application.end()
                raise AirflowException(f"{self.module} ran for {self.timeout} and was ended")
            time.sleep(_LOOK_S)
        pass_log_on(application, shown, self.log)
        self.awaited = None

    def on_kill(self) -> None:
        """Somebody marks or clears the task while it waits here: the application ends, as in the triggerer."""
        release_application(self.awaited, self.api_server, self.log)

    def collect(self, context: Any, event: dict[str, Any]) -> str:
        """Returns the summary's path. Exit code 1 (different) fails for good; everything else may be tried again."""
        application = DetachedProcess(Path(event["folder"]))
        # The exit code first: a program that has written it holds its lock for a moment more.
        is_running = application.exit_code() is None and application.alive()
        if is_running or not application.folder.exists():
            raise AirflowFailException(
                f"the triggerer, or this worker, does not see {application.folder}, in which {self.module} runs: share "
                "the folder WATERSHED_STATE between the hosts of Airflow, or set WATERSHED_STATE_SHARED=no on all"
            )
        (application.folder / "collected").touch()
        summary = application.folder / "summary.json"
        counted = _counts(summary)
        match application.exit_code():
            case 0:
                self.log.info("%s: %s", self.module, counted or "finished")
                return str(summary if summary.exists() else application.folder)
            case 1:
                raise AirflowFailException(f"{self.module}: different: {counted}; evidence in {application.folder}")
            case 3:
                raise AirflowException(f"{self.module}: incomplete: {counted}; evidence in {application.folder}")
            case None:
                raise AirflowException(f"{self.module} was killed; its log ends with:\n{application.tail()}")
            case code:
                raise AirflowException(f"{self.module} failed (exit {code}); its log ends with:\n{application.tail()}")


class ProcessEnded(BaseTrigger):
    """Fires when the program of a folder has ended, however it ended; passes its log on meanwhile. file, proven: as
    `is_awaited`.

    Somebody who marks or clears the waiting task ends the program; a restart of the triggerer does not.
    """

    def __init__(
        self,
        folder: str,
        poll_seconds: float = 1.0,
        settle_seconds: float = TRIGGER_SETTLE_S,
        file: str = "",
        proven: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no annotations
        self.folder, self.file, self.proven = folder, file, proven
        self.poll_seconds, self.settle_seconds = poll_seconds, settle_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, as Airflow's database keeps them."""
        kwargs = {"folder": self.folder, "poll_seconds": self.poll_seconds, "settle_seconds": self.settle_seconds}
        return "watershed.plugins.operators.spark_application.ProcessEnded", kwargs | {
            "file": self.file,
            "proven": self.proven,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event, with the program's folder and its exit code (None: killed)."""
        program = DetachedProcess(Path(self.folder))
        shown = 0
        await asyncio.sleep(self.settle_seconds)
        while True:
            running = is_awaited(program, self.file, proven=self.proven)
            shown = pass_log_on(program, shown, self.log)
            if not running:
                yield TriggerEvent({"folder": self.folder, "exit_code": program.exit_code()})
                return
            await asyncio.sleep(self.poll_seconds)

    async def on_kill(self) -> None:
        """Ends the program: Airflow calls this only when somebody marks or clears the waiting task."""
        await asyncio.to_thread(DetachedProcess(Path(self.folder)).end)


def release_application(awaited: DetachedProcess | None, api_server: ApiServerWatch | None, log: Any) -> None:
    """What a task that is told to end does with the application it waits for. Where the api-server is away, the next
    try finds it; a person's order ends it. awaited: None where the task waits for none."""
    if awaited is None:
        return
    if api_server is not None and api_server.has_been_away():
        log.warning(
            "Airflow's api-server is away: the application in %s goes on for %.0f minutes, for the next try of this "
            "task",
            awaited.folder,
            LEFT_S / 60,
        )
        awaited.leave(LEFT_S)
    else:
        awaited.dismiss()


def pass_log_on(program: DetachedProcess, shown: int, log: Any) -> int:
    """Log what the program printed since; returns the bytes shown so far (whole lines only)."""
    with contextlib.suppress(OSError):
        text = read_private_file(program.log, 64 * 1024, begin=shown)
        whole = text[: text.rfind(b"\n") + 1]
        for line in whole.decode(errors="replace").splitlines():
            log.info("%s", escape_controls(line.expandtabs(4)))
        return shown + len(whole)
    return shown


def is_awaited(program: DetachedProcess, file: str, *, proven: bool = False) -> bool:
    """Whether the program runs and has not come to its result. file: the result of one that goes on after it, by its
    name in the folder or its path; "" where the result is the end. proven: it goes on only after a summary that says
    so, and ends after another one, which takes some seconds."""
    if not program.alive():
        return False
    result = program.folder / file
    return not (file and (has_proven(result) if proven else result.exists()))


def has_proven(summary: Path) -> bool:
    """Whether the summary is there and its verdict is one of success: only then `spark.verify --stay` stays."""
    return read_proof_summary(summary).verdict in PROVEN_VERDICTS


def attach_or_start_spark(
    folder: Path, module: str, arguments: Sequence[Any], topology: Path, log: Any, *, orders: bool = False
) -> DetachedProcess:
    """The newest attempt below `folder` while it runs or waits to be collected, else a new one. orders: it takes
    commands (`start_detached`)."""
    tried = list_attempts(folder)
    if tried:
        last = tried[-1]
        if last.alive() or (last.exit_code() is not None and not (last.folder / "collected").exists()):
            log.info("found the application of an earlier try (pid %s) in %s", last.pid(), last.folder)
            return last
    fresh = folder / str(len(tried) + 1)
    told = [str(a).replace("{topology}", str(topology)).replace("{out}", str(fresh)) for a in arguments if a]
    try:
        application = start_detached(fresh, module, told, build_spark_environment(), orders=orders)
    except ProcessStartFailed as failure:
        raise AirflowException(escape_control_lines(str(failure))) from None
    log.info("started %s (pid %s), log and results in %s", module, application.pid(), fresh)
    return application


def list_attempts(folder: Path) -> list[DetachedProcess]:
    """Every attempt of a task, the newest last."""
    numbers = sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit())
    return [DetachedProcess(folder / str(number)) for number in numbers]


def build_spark_environment() -> dict[str, str]:
    """What every Spark application needs: this Python, and on a local master the loopback interface, unless Airflow's
    own environment says otherwise. On other masters the application finds its own address (`spark.session`)."""
    environ = build_clean_environment()
    told = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if is_local_master(read_spark_master(environ)):
        told["SPARK_LOCAL_IP"] = "127.0.0.1"
    return told | environ


def _counts(summary: Path) -> str:
    """One line for people from a proof's summary; empty without one."""
    try:
        told = json.loads(read_private_file(summary))
    except (OSError, ValueError, RecursionError):
        return ""
    if not isinstance(told, dict):
        return ""
    return f"{told.get('verdict')}: " + ", ".join(f"{n} {told[n]}" for n in ("unproven", *PROOF_COUNTS) if n in told)
