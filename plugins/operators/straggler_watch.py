"""The first half of `after_cutover__<name>`: watches the source after a cutover. Any write there except by the reverse
flow fails the run. Nothing here changes a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from watershed.plugins.operators.spark_application import TRIGGER_SETTLE_S
from watershed.plugins.shared_client_processes import QuestionFailed, ask_client_process
from watershed.plugins.state_folder import bring_plan, find_frozen_plan
from watershed.plugins.steps.migration_dag_tasks import preview_run_plan
from watershed.plugins.steps.run_journal import find_done_waves, read_chain_or_fail
from watershed.topology.text_escaping import escape_control_lines

if TYPE_CHECKING:
    from watershed.clusters.topic_partition import TopicPartition
    from watershed.cutover.actions import Action
    from watershed.cutover.journal.hash_chain import JournalChain
    from watershed.cutover.observations import Observation, ObservedLogs
    from watershed.cutover.run_context import RunContext
    from watershed.topology.plan import Plan

_Answer = TypeVar("_Answer")
_POLL_SECONDS = 30.0
DEFER_LIMIT = timedelta(days=400)
_WATCH_POOL = ThreadPoolExecutor(max_workers=16, thread_name_prefix="watershed-after")


@dataclass(frozen=True, slots=True)
class MovedWave:
    """A wave that is done, by the journal. sealed_ms: when it was done, in ms since 1970. soaked_ms: when the time for
    its rollback ends."""

    wave: str
    run: str
    sealed_ms: int
    soaked_ms: int
    outcomes: Mapping[str, dict[str, Any]]


def list_moved_waves(plan: Plan, chain: JournalChain) -> list[MovedWave]:
    """The waves that are done, by the journal, the earliest first."""
    from watershed.cutover.journal.hash_chain import RUN_STEP, find_step_outcome

    assert plan.migration is not None
    found = []
    for name, run in find_done_waves(plan, chain).items():
        if name not in {wave.name for wave in plan.migration.waves}:
            continue  # the file does not have this wave any more
        entries, rollback = chain.run(run), plan.migration.wave(name).rollback
        sealed = entries[-1].at_ms
        steps = {entry.step for entry in entries} - {RUN_STEP}
        outcomes = {step: seen[0] for step in steps if (seen := find_step_outcome(entries, step)) is not None}
        until = rollback.until_ms if rollback is not None and rollback.until_ms is not None else 0
        found.append(MovedWave(name, run, sealed, sealed + until, outcomes))
    return found


class StragglerWatchOperator(BaseOperator):
    """Waits, without a worker slot, until no wave can be rolled back any more; fails as soon as anybody but the reverse
    flow writes to a topic at the source whose applications have moved."""

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: str, **kwargs: Any) -> None:
        super().__init__(retries=2, **kwargs)
        self.plan = plan

    def execute(self, context: Any) -> None:
        """Defers, without a worker slot, until no wave can be rolled back any more. Skipped while no wave is done."""
        if not list_moved_waves(plan := find_frozen_plan(self.plan).read(), read_chain_or_fail(plan)):
            raise AirflowSkipException("no wave is done by the journal: there is nothing to watch")
        self.defer(trigger=WavesSoaked(self.plan), method_name="come_back", timeout=DEFER_LIMIT)

    def come_back(self, context: Any, event: dict[str, Any]) -> None:
        """Fails when somebody wrote to the source; skipped when every wave was taken back meanwhile."""
        if event["problem"]:
            raise AirflowFailException(escape_control_lines(event["problem"]))
        if not list_moved_waves(plan := find_frozen_plan(self.plan).read(), read_chain_or_fail(plan)):
            raise AirflowSkipException("every wave was taken back: nothing has soaked")
        self.log.info("%s", escape_control_lines(event["seen"]))


class WavesSoaked(BaseTrigger):
    """Polls the source's log ends. Fires when every done wave has soaked (the time for its rollback is over), or as
    soon as an application wrote there."""

    def __init__(
        self, plan: str, poll_seconds: float = _POLL_SECONDS, settle_seconds: float = TRIGGER_SETTLE_S
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's has no annotations
        self.plan, self.poll_seconds, self.settle_seconds = plan, poll_seconds, settle_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments, as Airflow's database keeps them."""
        kwargs = {"plan": self.plan, "poll_seconds": self.poll_seconds, "settle_seconds": self.settle_seconds}
        return "watershed.plugins.operators.straggler_watch.WavesSoaked", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Sends one event. seen: a text for people. problem: what went wrong, "" for nothing."""
        loop, said = asyncio.get_running_loop(), ""
        await asyncio.sleep(self.settle_seconds)
        await bring_plan(self, self.plan)
        watch = SourceWatchProxy(find_frozen_plan(self.plan).read())
        while True:
            try:
                text, problem, over = await loop.run_in_executor(_WATCH_POOL, watch.look)
            except AirflowFailException as broken:
                text, problem, over = "", str(broken), True
            except AirflowException as trouble:
                text, problem, over = f"looking again: {trouble}", "", False
            if text != said:
                self.log.info("%s", escape_control_lines(text))
                said = text
            if over or problem:
                yield TriggerEvent({"seen": text, "problem": problem})
                return
            await asyncio.sleep(self.poll_seconds)


class SourceWatch:
    """Remembers the source's log ends up to which only the reverse flow has written."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ends: dict[str, dict[TopicPartition, int]] = {}

    def look(self) -> tuple[str, str, bool]:
        """Reads journal and log ends once. Returns a text for people, the problem ("" for none), and whether all waves
        have soaked."""
        from watershed.cutover.offsets import decode_offsets

        moved, now = list_moved_waves(self.plan, read_chain_or_fail(self.plan)), time.time() * 1000
        for wave in moved:
            if "barrier" not in wave.outcomes:
                continue  # a failover, whose source was gone; or late groups, behind whom nobody writes
            ends = self.ends.get(wave.run) or decode_offsets(wave.outcomes["barrier"]["ends"])
            try:
                self.ends[wave.run] = require_no_stranded_records(self.plan, wave, ends)
            except RecordsStranded as somebody:
                return "", f"wave {wave.wave}: {somebody}", True
        left = [wave for wave in moved if wave.soaked_ms > now]
        when = ", ".join(f"{wave.wave} until {render_utc_time(wave.soaked_ms)}" for wave in left)
        return (f"nobody writes to the source; soaking: {when}" if left else "every wave has soaked"), "", not left


class SourceWatchProxy:
    """A `SourceWatch` that asks the clusters from a separate process: the triggerer itself opens no connection."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ends: dict[str, Any] = {}

    def look(self) -> tuple[str, str, bool]:
        """As `SourceWatch.look`. Raises AirflowException, AirflowFailException."""
        from watershed.clusters.errors import ClusterError

        about = {"plan": self.plan.hash, "ends": self.ends}
        try:
            told = ask_client_process(
                self.plan.topology, "watershed.plugins.operators.straggler_watch:watch_source_once", about
            )
        except ClusterError as problem:
            raise AirflowException(escape_control_lines(str(problem))) from None
        except QuestionFailed as failed:
            is_final = failed.kind == AirflowFailException.__name__
            raise (AirflowFailException if is_final else AirflowException)(escape_control_lines(str(failed))) from None
        self.ends = told["ends"]
        return told["seen"], told["problem"], told["over"]


def watch_source_once(plan: str, ends: dict[str, Any]) -> dict[str, Any]:
    """One poll, in the separate process. `ends`: what the poll before returned."""
    from watershed.cutover.offsets import decode_offsets, encode_offsets

    watch = SourceWatch(find_frozen_plan(plan).read())
    watch.ends = {run: decode_offsets(each) for run, each in ends.items()}
    seen, problem, over = watch.look()
    return {
        "seen": seen,
        "problem": problem,
        "over": over,
        "ends": {r: encode_offsets(e) for r, e in watch.ends.items()},
    }


class RecordsStranded(Exception):
    """An application wrote to the source after its wave moved: nothing copies those records any more."""


def require_no_stranded_records(
    plan: Plan, wave: MovedWave, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The source's log ends as they are now. Raises RecordsStranded when an application wrote there since,
    AirflowException when the cluster cannot be read."""
    from watershed.clusters.settings import resolve_connection_settings
    from watershed.cutover.live.action_handler import LiveActionHandler
    from watershed.cutover.live.application_control import NO_APPLICATIONS
    from watershed.cutover.run_context import RunContext
    from watershed.cutover.step_outcomes import StepOutcomes

    run_plan = preview_run_plan(plan, "migrate", wave.wave)
    run_context = RunContext(run_plan.flow, run_plan.wave, run_plan.policy, StepOutcomes(wave.outcomes))
    both = (run_plan.flow.source, run_plan.flow.target)
    settings = {alias: resolve_connection_settings(plan.cluster(alias)) for alias in both}
    handler = LiveActionHandler(plan, run_plan.flow, settings, NO_APPLICATIONS, time.monotonic)
    return drive_questions(_strangers(run_context, ends), handler.answer)


def _strangers(
    run_context: RunContext, ends: Mapping[TopicPartition, int]
) -> Generator[Action, Observation, dict[TopicPartition, int]]:
    from watershed.cutover.fences.stragglers import refuse_stranded_records
    from watershed.cutover.run_context import read_source_logs

    now: ObservedLogs = yield from read_source_logs(run_context)
    return (yield from refuse_stranded_records(run_context, ends, now))


def drive_questions(
    asking: Generator[Action, Observation, _Answer], answer: Callable[[Action], Observation]
) -> _Answer:
    """Answers every question of `asking` until it returns, and returns its result. Its actions change nothing.

    Raises RecordsStranded when an application wrote to the source, AirflowException for every other refusal."""
    from watershed.cutover.actions import PauseRun, ReportMessage
    from watershed.cutover.errors import Refused
    from watershed.cutover.observations import ActionDone

    try:
        action = next(asking)
        while True:
            if isinstance(action, PauseRun):
                time.sleep(action.ms / 1000)
            talk = isinstance(action, PauseRun | ReportMessage)
            action = asking.send(ActionDone(int(time.monotonic() * 1000)) if talk else answer(action))
    except StopIteration as end:
        found: _Answer = end.value
        return found
    except Refused as why:
        if "stranded" in why.seen:
            raise RecordsStranded(str(why)) from None
        raise AirflowException(escape_control_lines(str(why))) from None


def render_utc_time(ms: float) -> str:
    """A time for people, from ms since 1970."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ms / 1000))
