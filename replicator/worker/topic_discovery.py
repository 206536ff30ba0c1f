"""Which topics each flow has right now: every source is asked again and again, beside the copying.

One client a cluster stays open and is shared by all flows; one listing a source (a Metadata request) serves all flows
that are due, and a flow whose listings say what they said before costs nothing more.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import ClusterProtocol, TopicShape
from watershed.clusters.errors import ClusterError
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.replicator.copy.aligned.aligned_topic_choice import AlignmentDecisions
from watershed.replicator.errors import ReplicatorError
from watershed.replicator.limits import TargetLimits
from watershed.replicator.topic_mapping import (
    RECREATED_STATE,
    HoldReason,
    MappedTopic,
    apply_limits,
    place_topics,
    read_target_limits,
)

log = logging.getLogger("watershed.discovery")

_FAILED_AGAIN_S = 2.0
_LIMITS_S = 60.0  # how often the limits of known target topics are asked again

_Known = dict[str, MappedTopic]  # by source topic
_Administer = Callable[[ConnectionSettings], ClusterProtocol]
_Listings = tuple[dict[str, TopicShape], dict[str, TopicShape]]  # of the source and of the target
_Found = list[MappedTopic] | Exception


class _CachedAdmin:
    """One cluster's administration, kept open; opened anew after a failure and when its settings have changed."""

    def __init__(self, settings: Callable[[], ConnectionSettings], opened: _Administer) -> None:
        self._settings, self._open = settings, opened
        self._now: tuple[ConnectionSettings, ClusterProtocol] | None = None

    def get(self) -> ClusterProtocol:
        """Raises ClusterError (a secret that is missing, another cluster than the pinned one)."""
        settings = self._settings()
        if self._now is None or self._now[0] != settings:
            admin = self._open(settings)
            admin.check_identity()
            self._now = settings, admin
        return self._now[1]

    def failed(self) -> None:
        self._now = None


@dataclass(slots=True)
class _Flow:
    """What is remembered of a flow between two discoveries. `known` None: the ledger has to be read."""

    record: FlowRecord
    due: float = 0.0
    known: _Known | None = None
    listings: _Listings | None = None  # that `known` was made from
    limited: set[str] = field(default_factory=set)  # source topics whose limits at the target are known
    limits_due: float = 0.0


@dataclass(slots=True)
class TopicDiscovery:
    """`topics` by flow id: as of the newest answer; a list stays valid until the next one is there. `version` grows
    whenever a list changes. copied: what the ledger says of flows, by flow id."""

    target: ConnectionSettings
    connect: SettingsLookup
    copied: Callable[[Collection[str]], Mapping[str, _Known]]
    administer: _Administer = Admin
    decisions: AlignmentDecisions | None = None  # about equal offsets
    find_hold: Callable[[FlowRecord], HoldReason | None] = lambda _record: None  # why nothing of a flow may be copied
    topics: dict[str, list[MappedTopic]] = field(default_factory=dict)
    version: int = 0
    _flows: dict[str, _Flow] = field(default_factory=dict)
    _asked: dict[str, Future[dict[str, _Found]]] = field(default_factory=dict)  # by source alias
    _clients: dict[str, _CachedAdmin] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16, thread_name_prefix="discovery"))

    def step(self, flows: Mapping[str, FlowRecord]) -> None:
        """Take answers, and ask where it is time to; never waits."""
        now = time.monotonic()
        self._follow(flows)
        for source, future in list(self._asked.items()):
            if future.done():
                del self._asked[source]
                for flow_id, found in _results(future, self._flows_of(source)).items():
                    self._take(flow_id, found, now)
        due: dict[str, list[_Flow]] = defaultdict(list)
        for flow in self._flows.values():
            if flow.record.state == "running" and now >= flow.due and flow.record.flow.source not in self._asked:
                due[flow.record.flow.source].append(flow)
        for source, waiting in due.items():
            jobs = [(flow, flow.record) for flow in waiting]
            self._asked[source] = self._pool.submit(self._discover, source, jobs)

    def limits_of(self, flow_id: str, target_topic: str) -> TargetLimits:
        """What the target topic takes, as last asked."""
        topics = [each for each in self.topics.get(flow_id, []) if each.target_topic == target_topic]
        return TargetLimits(topics[0].max_batch) if topics else TargetLimits()

    def ask_limits(self, flow_id: str) -> None:
        """Somebody lowered a limit: ask again at once."""
        flow = self._flows.get(flow_id)
        if flow is not None:
            flow.due = flow.limits_due = 0.0

    def close(self) -> None:
        """End the pool; a discovery under way is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _follow(self, flows: Mapping[str, FlowRecord]) -> None:
        for flow_id in [flow_id for flow_id in self._flows if flow_id not in flows]:
            del self._flows[flow_id]
            self.version += self.topics.pop(flow_id, None) is not None
        for flow_id, record in flows.items():
            known = self._flows.get(flow_id)
            if known is None or _discovery_inputs(known.record) != _discovery_inputs(record):
                self._flows[flow_id] = _Flow(record)
            else:
                known.record = record

    def _flows_of(self, source: str) -> list[str]:
        return [flow_id for flow_id, flow in self._flows.items() if flow.record.flow.source == source]

    def _take(self, flow_id: str, found: _Found, now: float) -> None:
        flow = self._flows.get(flow_id)
        if flow is None:
            return
        if isinstance(found, Exception):
            reason = str(found) if isinstance(found, ClusterError | ReplicatorError) else repr(found)
            log.warning("discovery failed", extra={"flow": flow_id, "reason": reason})
            flow.due = now + _FAILED_AGAIN_S
            return
        flow.due = now + flow.record.flow.discovery_ms / 1000
        before = self.topics.get(flow_id)
        if before != found:
            self.topics[flow_id] = found
            self.version += 1
            _log_changes(flow_id, [each for each in found if each not in (before or [])])

    def _discover(self, source: str, jobs: list[tuple[_Flow, FlowRecord]]) -> dict[str, _Found]:
        """All due flows of one source; runs in the pool, at most once at a time for each source."""
        here = self._clients.setdefault(source, _CachedAdmin(lambda: self.connect(source), self.administer))
        there = self._clients.setdefault("", _CachedAdmin(lambda: self.target, self.administer))  # no alias is empty
        try:
            at_source, at_target = here.get(), there.get()
            listings = at_source.shapes(), at_target.shapes()
            if any(_must_read_ledger(flow, listings[0]) for flow, _ in jobs):
                self._read_ledger(jobs)
        except (ClusterError, ReplicatorError) as error:
            here.failed()
            there.failed()
            return {record.key: error for _, record in jobs}
        found: dict[str, _Found] = {}
        for flow, record in jobs:
            try:
                found[record.key] = self._discover_flow(flow, record, listings, at_source, at_target)
            except ClusterError as error:
                found[record.key] = error
                flow.listings = None
            except Exception as error:  # a fault of ours: the other flows go on
                log.exception("discovery", extra={"flow": record.key})
                found[record.key] = error
                flow.listings = None
        return found

    def _discover_flow(
        self, flow: _Flow, record: FlowRecord, listings: _Listings, source: ClusterProtocol, target: ClusterProtocol
    ) -> list[MappedTopic]:
        known, now = flow.known or {}, time.monotonic()
        retried = any(each.held is not None and each.held.cause is not None for each in known.values())
        if flow.listings != listings or retried:
            topics = place_topics(record.serving, *listings, known, source, target)
            flow.listings = listings
        else:
            topics = list(known.values())
        everything = now >= flow.limits_due
        existing = [each for each in topics if each.created or each.target_topic in listings[1]]
        asked = [
            each.target_topic
            for each in existing
            if everything or each.topic not in flow.limited or each.refused is not None
        ]
        limits = read_target_limits(target, asked)
        topics = apply_limits(topics, limits)
        if everything:
            flow.limits_due = now + _LIMITS_S
        # A topic that is absent at the target is asked as soon as it is there: before its first batch.
        flow.limited = {each.topic for each in existing if each.target_topic in limits or each.topic in flow.limited}
        flow.known = {each.topic: each for each in topics}  # as found: what is decided is said anew in every round
        if (hold := self.find_hold(record)) is not None:
            return [replace(each, refused=hold) for each in topics]
        return topics if self.decisions is None else self.decisions.placed(record.flow, topics, source, target)

    def _read_ledger(self, jobs: list[tuple[_Flow, FlowRecord]]) -> None:
        """What was copied before stands in the ledger: also topics that are gone since, and which ones they were."""
        copied = self.copied(list(self._flows))  # of all at once: sources are asked side by side
        for flow, record in jobs:
            known = flow.known or {}
            for name, each in copied.get(record.key, {}).items():
                known[name] = replace(known.get(name, each), source_ids=each.source_ids)
            flow.known, flow.listings = known, None


def _discovery_inputs(record: FlowRecord) -> tuple[object, ...]:
    return record.generation, record.flow, record.retired


def _results(future: Future[dict[str, _Found]], flows: list[str]) -> dict[str, _Found]:
    """By flow; a job that ended in a way nobody thought of (a fault of ours) is tried again like any other."""
    try:
        return future.result()
    except Exception as error:
        log.exception("discovery", extra={"flows": flows})
        return dict.fromkeys(flows, error)


def _must_read_ledger(flow: _Flow, here: dict[str, TopicShape]) -> bool:
    """At first, and when a topic has grown: whether it is still the one that was copied, the ledger knows."""
    if flow.known is None:
        return True
    return any(
        (name in here and here[name].partitions > each.partitions)
        or (each.held is not None and each.held.state == RECREATED_STATE)
        for name, each in flow.known.items()
    )


def _log_changes(flow_id: str, topics: list[MappedTopic]) -> None:
    for each in topics:
        where = {"flow": flow_id, "topic": each.topic, "target_topic": each.target_topic}
        if each.created or each.grown:
            log.info("topic created" if each.created else "topic grown", extra=where | {"partitions": each.partitions})
        for held in (each.held, each.refused):
            if held is not None:
                log.warning("partitions held", extra=where | {"reason": held.error, "remedy": held.remedy})
        if each.note:
            log.warning("partition counts differ", extra=where | {"reason": each.note})
