"""The first half of `after_cutover__<name>`: what is still to be watched when applications have moved. Nothing here
changes a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from plugins.watershed_apart import AskFailed, ask_apart
from plugins.watershed_courses import planned
from plugins.watershed_journal import chain_of, done_waves
from plugins.watershed_spark import SETTLE_SECONDS
from plugins.watershed_state import frozen_plan
from topology.quoting import lines_visible

if TYPE_CHECKING:
    from clusters.names import TopicPartition
    from cutover.actions import Action
    from cutover.ground import Ground
    from cutover.journal.chain import Chain
    from cutover.observations import LogsSeen, Observation
    from topology.plan import Plan

_POLL_SECONDS = 30.0
LIMIT = timedelta(days=400)
_LOOKING = ThreadPoolExecutor(max_workers=16, thread_name_prefix="watershed-after")


@dataclass(frozen=True, slots=True)
class Moved:
    """A wave that the journal has as done. sealed_ms: when, since 1970. soaked_ms: until when the way back is open."""

    wave: str
    run: str
    sealed_ms: int
    soaked_ms: int
    outcomes: Mapping[str, dict[str, Any]]


def moved_waves(plan: Plan, chain: Chain) -> list[Moved]:
    """In the order in which they were done."""
    from cutover.journal.chain import RUN, outcome_of

    assert plan.migration is not None
    found = []
    for name, run in done_waves(plan, chain).items():
        if name not in {wave.name for wave in plan.migration.waves}:
            continue  # the file does not know it any more
        entries, rollback = chain.run(run), plan.migration.wave(name).rollback
        sealed = entries[-1].at_ms
        steps = {entry.step for entry in entries} - {RUN}
        outcomes = {step: seen[0] for step in steps if (seen := outcome_of(entries, step)) is not None}
        until = rollback.until_ms if rollback is not None and rollback.until_ms is not None else 0
        found.append(Moved(name, run, sealed, sealed + until, outcomes))
    return found


class StragglerWatchOperator(BaseOperator):
    """Waits, without a worker slot, until no wave can be rolled back any more; fails as soon as anybody but the reverse
    flow writes to a topic at the source whose applications have moved."""

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: str, **kwargs: Any) -> None:
        super().__init__(retries=2, **kwargs)
        self.plan = plan

    def execute(self, context: Any) -> None:
        if not moved_waves(plan := frozen_plan(self.plan).read(), chain_of(plan)):
            raise AirflowSkipException("no wave is done by the journal: there is nothing to watch")
        self.defer(trigger=Soaked(self.plan), method_name="come_back", timeout=LIMIT)

    def come_back(self, context: Any, event: dict[str, Any]) -> None:
        if event["problem"]:
            raise AirflowFailException(lines_visible(event["problem"]))
        if not moved_waves(plan := frozen_plan(self.plan).read(), chain_of(plan)):
            raise AirflowSkipException("every wave was taken back: nothing has soaked")
        self.log.info("%s", lines_visible(event["seen"]))


class Soaked(BaseTrigger):
    """Looks again and again who writes to the source; fires when every done wave has soaked, or somebody did."""

    def __init__(self, plan: str, poll_seconds: float = _POLL_SECONDS, settle_seconds: float = SETTLE_SECONDS) -> None:
        super().__init__()
        self.plan, self.poll_seconds, self.settle_seconds = plan, poll_seconds, settle_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"plan": self.plan, "poll_seconds": self.poll_seconds, "settle_seconds": self.settle_seconds}
        return "plugins.watershed_after.Soaked", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        loop, said = asyncio.get_running_loop(), ""
        await asyncio.sleep(self.settle_seconds)
        watch = WatchApart(frozen_plan(self.plan).read())
        while True:
            try:
                text, problem, over = await loop.run_in_executor(_LOOKING, watch.look)
            except AirflowFailException as broken:
                text, problem, over = "", str(broken), True
            except AirflowException as trouble:
                text, problem, over = f"looking again: {trouble}", "", False
            if text != said:
                self.log.info("%s", lines_visible(text))
                said = text
            if over or problem:
                yield TriggerEvent({"seen": text, "problem": problem})
                return
            await asyncio.sleep(self.poll_seconds)


class Watch:
    """The source's log ends, as far as they are known to hold nothing but what the reverse flow brought."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ends: dict[str, dict[TopicPartition, int]] = {}

    def look(self) -> tuple[str, str, bool]:
        """(for people, who strands records, whether all waves have soaked)."""
        from cutover.offsets import from_json

        moved, now = moved_waves(self.plan, chain_of(self.plan)), time.time() * 1000
        for wave in moved:
            if "barrier" not in wave.outcomes:
                continue  # a failover: its source was gone
            ends = self.ends.get(wave.run) or from_json(wave.outcomes["barrier"]["ends"])
            try:
                self.ends[wave.run] = stranded(self.plan, wave, ends)
            except Stranded as somebody:
                return "", f"wave {wave.wave}: {somebody}", True
        left = [wave for wave in moved if wave.soaked_ms > now]
        when = ", ".join(f"{wave.wave} until {utc(wave.soaked_ms)}" for wave in left)
        return (f"nobody writes to the source; soaking: {when}" if left else "every wave has soaked"), "", not left


class WatchApart:
    """A `Watch` whose looks are taken in a process apart, for the triggerer."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ends: dict[str, Any] = {}

    def look(self) -> tuple[str, str, bool]:
        """As `Watch.look`. Raises AirflowException, AirflowFailException."""
        from clusters.errors import ClusterError

        about = {"plan": self.plan.hash, "ends": self.ends}
        try:
            told = ask_apart(self.plan.topology, "plugins.watershed_after:look_apart", about)
        except ClusterError as problem:
            raise AirflowException(lines_visible(str(problem))) from None
        except AskFailed as failed:
            is_final = failed.kind == AirflowFailException.__name__
            raise (AirflowFailException if is_final else AirflowException)(lines_visible(str(failed))) from None
        self.ends = told["ends"]
        return told["seen"], told["problem"], told["over"]


def look_apart(plan: str, ends: dict[str, Any]) -> dict[str, Any]:
    """One look, in the process apart; `ends` goes from one to the next."""
    from cutover.offsets import from_json, to_json

    watch = Watch(frozen_plan(plan).read())
    watch.ends = {run: from_json(each) for run, each in ends.items()}
    seen, problem, over = watch.look()
    return {"seen": seen, "problem": problem, "over": over, "ends": {r: to_json(e) for r, e in watch.ends.items()}}


class Stranded(Exception):
    """Somebody writes to the source."""


def stranded(plan: Plan, wave: Moved, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The source's ends of today. Raises Stranded when an application wrote there since; AirflowException when the
    cluster does not tell."""
    from clusters.settings import connection_settings
    from cutover.ground import Ground
    from cutover.live.applications import Applications
    from cutover.live.world import LiveWorld

    course = planned(plan, "migrate", wave.wave)
    ground = Ground(course.flow, course.wave, course.policy, dict(wave.outcomes))
    both = (course.flow.source, course.flow.target)
    settings = {alias: connection_settings(plan.cluster(alias)) for alias in both}
    world = LiveWorld(plan, course.flow, settings, Applications({}, None), time.monotonic)
    return answered(_strangers(ground, ends), world.answer)


def _strangers(
    ground: Ground, ends: Mapping[TopicPartition, int]
) -> Generator[Action, Observation, dict[TopicPartition, int]]:
    from cutover.fences.stragglers import refuse_stranded
    from cutover.ground import source_logs

    now: LogsSeen = yield from source_logs(ground)
    return (yield from refuse_stranded(ground, ends, now))


def answered(asking: Generator[Action, Observation, Any], answer: Any) -> Any:
    """Drive questions that change nothing to their end."""
    from cutover.actions import Pause, Say
    from cutover.errors import Refused
    from cutover.observations import Noted

    try:
        action = next(asking)
        while True:
            if isinstance(action, Pause):
                time.sleep(action.ms / 1000)
            talk = isinstance(action, Pause | Say)
            action = asking.send(Noted(int(time.monotonic() * 1000)) if talk else answer(action))
    except StopIteration as end:
        return end.value
    except Refused as why:
        if "stranded" in why.seen:
            raise Stranded(str(why)) from None
        raise AirflowException(lines_visible(str(why))) from None


def utc(ms: float) -> str:
    """For people; ms since 1970."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ms / 1000))
