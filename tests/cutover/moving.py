"""Steps of a migration alone, on real clusters: what group tests share, besides members that no client program is."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from kio.schema.types import GroupId
from kio.static.primitive import i16, i32, i32Timedelta

from watershed.clusters.group_offsets import GroupOffsets
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.actions import Action, PauseRun, RecallDeeds, ReportMessage
from watershed.cutover.groups.group_preflight import check_groups
from watershed.cutover.live.action_handler import LiveActionHandler
from watershed.cutover.live.application_control import DeclaredApplications
from watershed.cutover.live.applications.person_application import PersonAnswer, PersonRequest
from watershed.cutover.observations import ActionDone, RecalledDeeds
from watershed.cutover.policy import WavePolicy
from watershed.cutover.polling import ActionGenerator
from watershed.cutover.run_context import RunContext
from watershed.topology.migration_waves import Wave
from watershed.topology.plan import Plan

JOIN_GROUP, SYNC_GROUP, STREAMS_HEARTBEAT = 11, 14, 88
POLICY = WavePolicy(poll_ms=200, empty_times=3)


@dataclass
class Moving:
    """One wave of one flow. `confirm` is asked for whatever stops and starts an application."""

    plan: Plan
    settings: dict[str, ConnectionSettings]
    topics: dict[str, int]
    groups: tuple[str, ...]
    policy: WavePolicy = POLICY
    confirm: Callable[[str], bool] = lambda _question: True
    producers: tuple[str, ...] = ()
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        flow = self.plan.flows[0]
        self.context = RunContext(flow, Wave("all", tuple(self.topics), self.groups, self.producers), self.policy)
        self.world = LiveActionHandler(
            self.plan, flow, self.settings, DeclaredApplications(ask=self._ask), time.monotonic
        )

    def _ask(self, request: PersonRequest) -> PersonAnswer:
        return PersonAnswer("done" if self.confirm(request.task) else "refused", "a test")

    def preflight(self) -> list[str]:
        """What hinders; the steps below need it to have been."""
        problems: list[str] = []
        groups = self.drive(check_groups(self.context, set(self.topics), problems))
        self.context.outcomes["preflight"] = {"partitions": self.topics, "groups": groups}
        return problems

    def step(self, name: str, act: Callable[[RunContext, Any], ActionGenerator[None]]) -> Any:
        note: Any = {}
        self.drive(act(self.context, note))
        self.context.outcomes[name] = note
        return note

    def drive(self, asking: ActionGenerator[Any]) -> Any:
        answer: Any = None
        while True:
            try:
                action = asking.send(answer)
            except StopIteration as ended:
                return ended.value
            answer = self._answer(action)

    def _answer(self, action: Action) -> Any:
        if isinstance(action, ReportMessage):
            self.said.append(action.text)
            return ActionDone(0)
        if isinstance(action, PauseRun):
            time.sleep(action.ms / 1000)
            return ActionDone(0)
        return RecalledDeeds(0, ()) if isinstance(action, RecallDeeds) else self.world.answer(action)


@contextmanager
def streams_in_a_classic_group(settings: ConnectionSettings, group: str, topic: str) -> Iterator[None]:
    """One member of it, as Kafka Streams joins one: by the assignor `stream`. Its session ends after six seconds."""
    subscription = struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">i", -1)
    with GroupOffsets(settings) as at:
        inquiry = at.coordinator(group)
        joined = inquiry.ask(
            JOIN_GROUP, highest=3, group_id=GroupId(group), session_timeout=_ms(6_000), rebalance_timeout=_ms(6_000),
            member_id="", protocol_type="consumer", protocols=({"name": "stream", "metadata": subscription},),
        )  # fmt: skip
        inquiry.check(int(joined.error_code), "joining")
        synced = inquiry.ask(
            SYNC_GROUP, highest=2, group_id=GroupId(group), generation_id=joined.generation_id,
            member_id=joined.member_id, assignments=({"member_id": joined.member_id, "assignment": b""},),
        )  # fmt: skip
        inquiry.check(int(synced.error_code), "syncing")
        yield


@contextmanager
def streams_group(settings: ConnectionSettings, group: str, topic: str, store: str) -> Iterator[None]:
    """A member of a KIP-1071 group with one store, which leaves in the end."""
    with GroupOffsets(settings) as at:

        def beat(epoch: int, topology: Any) -> None:
            answer = at.coordinator(group).ask(
                STREAMS_HEARTBEAT, highest=0, group_id=GroupId(group), member_id="m1", member_epoch=i32(epoch),
                endpoint_information_epoch=i32(0), instance_id=None, rack_id=None, rebalance_timeout=_ms(10_000),
                topology=topology, active_tasks=() if topology else None, standby_tasks=() if topology else None,
                warmup_tasks=() if topology else None, process_id="p1" if topology else None, user_endpoint=None,
                client_tags=() if topology else None, task_offsets=None, task_end_offsets=None,
                shutdown_application=False,
            )  # fmt: skip
            at.coordinator(group).check(int(answer.error_code), "a heartbeat")

        changelog = {"name": store, "partitions": i32(0), "replication_factor": i16(0), "topic_configs": ()}
        part = {
            "subtopology_id": "0", "source_topics": (topic,), "source_topic_regex": (),
            "state_changelog_topics": (changelog,), "repartition_sink_topics": (), "repartition_source_topics": (),
            "copartition_groups": (),
        }  # fmt: skip
        beat(0, _topology(part))
        yield
        beat(-1, None)


def _topology(part: Any) -> Any:
    from kio.schema.streams_group_heartbeat.v0 import request

    from watershed.clusters.wire.request_codec import build_request

    return build_request(request.Topology, {"epoch": i32(0), "subtopologies": (part,)})


def _ms(ms: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=ms))


def with_groups(plan: Plan, sync: Any) -> Plan:
    return replace(plan, flows=(replace(plan.flows[0], sync=sync),))
