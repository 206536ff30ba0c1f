"""A read-only inventory of one live cluster.

Nothing is created, altered, committed or joined. What this user may not see, or this cluster cannot tell, is said in
the inventory's `not_seen`; only a cluster that cannot be scanned at all is an error.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from watershed.clusters.capabilities import BrokerAnswers, combine_answers, read_topic_ids
from watershed.clusters.control_topics import FLOWS_TOPIC
from watershed.clusters.errors import ProtocolError, RequestRefused, Unauthorised, Unreachable
from watershed.clusters.flow_records import describe_partition_orders, read_flows
from watershed.clusters.group_listing import GroupListing
from watershed.clusters.inventory_requests import ScannedConfigs, ScannedTopic, ScanRequests
from watershed.clusters.kafka_release import (
    METADATA_VERSION_FEATURE,
    detect_release,
    find_release_of_level,
    parse_release,
)
from watershed.clusters.settings import ConnectionSettings, build_wrong_cluster_error
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import admin_reads
from watershed.clusters.wire.connection import Connection
from watershed.topology.cluster_capabilities import ClusterCapabilities
from watershed.topology.inventory import InventoryAcl, InventoryCluster, InventoryFlow, InventoryGroup, InventoryTopic

_T = TypeVar("_T")

# Broker-wide values that decide what copying, sizing or moving runs into; and everything under the prefixes.
_BROKER_CONFIGS = frozenset(
    {
        "allow.everyone.if.no.acl.found",
        "authorizer.class.name",
        "auto.create.topics.enable",
        "compression.type",
        "default.replication.factor",
        "delete.topic.enable",
        "group.max.size",
        "inter.broker.protocol.version",
        "max.connections.per.ip",
        "message.max.bytes",
        "min.insync.replicas",
        "num.partitions",
        "offsets.retention.minutes",
        "offsets.topic.replication.factor",
        "producer.id.expiration.ms",
        "remote.log.storage.system.enable",
        "replica.fetch.max.bytes",
        "replica.selector.class",
        "transaction.max.timeout.ms",
        "transactional.id.expiration.ms",
        "unclean.leader.election.enable",
    }
)
_BROKER_PREFIXES = (
    "log.cleaner.delete.",
    "log.cleanup.",
    "log.message.",
    "log.retention.",
    "log.roll.",
    "log.segment.",
)
_NOT_TOLD = (Unauthorised, RequestRefused, ProtocolError)


def scan_cluster(settings: ConnectionSettings, *, sample_s: float = 5.0, timeout_s: float = 15.0) -> InventoryCluster:
    """Look at the cluster once, and at its log sizes twice, `sample_s` seconds apart (0: once, without rates).

    Raises Unreachable, WrongCluster, or Unauthorised when not even the cluster itself is shown.
    """
    with ExitStack() as stack:
        return _Scan(settings, timeout_s, stack).whole(sample_s)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """One look at the log sizes: bytes of each leader's log, and when its broker was asked (monotonic seconds)."""

    bytes: Mapping[TopicPartition, int]
    at: Mapping[TopicPartition, float]


class _Scan:
    """One scan under way: the connections, and what could not be seen so far."""

    def __init__(self, settings: ConnectionSettings, timeout_s: float, stack: ExitStack) -> None:
        self.settings = settings
        self.timeout_s = timeout_s
        self.not_seen: list[str] = []
        self.taken_ms = int(time.time() * 1000)
        self.survey = ScanRequests(settings, timeout_s)
        stack.callback(self.survey.close)
        self.cluster_id, self.ports = self.survey.brokers()
        if settings.cluster_id not in (None, self.cluster_id):
            raise build_wrong_cluster_error(settings, self.cluster_id)
        self.racks = {broker.id: broker.rack or "" for broker in self.ports}
        self.replica_racks: dict[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]] = {}
        self.inquiries = self._inquiries(stack)

    def whole(self, sample_s: float) -> InventoryCluster:
        described = self.survey.described(self.survey.topic_names())
        leaders = self._leaders(described)
        first = self._sizes(leaders)
        ends = self._told("end offsets", self.survey.ends, sorted(leaders)) or {}
        newest = self._newest(ends)
        configured = self._configured(list(described))
        configs = self._broker_configs()
        groups, acls, quotas, users = self._groups(ends), self._acls(), self._quotas(), self._users()
        last = self._again(first, leaders, sample_s)
        topics = {}
        for name, topic in described.items():
            partitions = [TopicPartition(name, number) for number in range(len(topic.leaders))]
            own = configured.get(name)
            topics[name] = InventoryTopic(
                name=name,
                id=topic.id,
                partitions=len(partitions),
                replication_factor=topic.replication_factor,
                internal=topic.internal,
                configs=own.effective if own else {},
                overridden=own.overridden if own else (),
                size_bytes=_size(last or first, partitions),
                rate_bytes=_rate(first, last, partitions),
                records_end=sum(ends.get(each, 0) for each in partitions),
                last_append_ms=max((newest[each] for each in partitions if each in newest), default=None),
                replica_racks=self._list_replica_racks(topic),
            )
        self._note_tiered(topics)
        orders = self._told("orders of Watershed", read_flows, self.settings) if FLOWS_TOPIC in topics else None
        kafka, capabilities = self._release(), self._capabilities()
        return InventoryCluster(
            alias=self.settings.alias,
            cluster_id=self.cluster_id,
            taken_ms=self.taken_ms,
            kafka=kafka,
            brokers=tuple(self.ports),
            configs=configs,
            topics=topics,
            groups=groups,
            acls=acls,
            quotas=quotas,
            flows={
                flow_id: InventoryFlow(order.topology, order.plan_hash, order.state, describe_partition_orders(order))
                for flow_id, order in (orders or {}).items()
            },
            capabilities=capabilities,
            users=users,
            not_seen=tuple(self.not_seen),
        )

    def _list_replica_racks(self, topic: ScannedTopic) -> tuple[tuple[str, ...], ...] | None:
        """See `InventoryTopic`. Topics whose replicas stand in the same racks share the answer: there are many."""
        racks = self.racks
        if not any(racks.values()):
            return None
        found = tuple(sorted({tuple(sorted(racks.get(node, "") for node in each)) for each in topic.replicas}))
        return self.replica_racks.setdefault(found, found)

    def _capabilities(self) -> ClusterCapabilities | None:
        """What all brokers that answer can be asked; None where none was asked over a connection of ours."""
        raw = next(iter(self.inquiries.values()), None)
        if raw is None:
            return None
        versions = tuple(each.versions for each in self.inquiries.values())
        _, without_id, has_topics = self._told("topic ids", read_topic_ids, raw) or ("", None, False)
        found = BrokerAnswers(
            self.settings.alias, self.cluster_id, self.taken_ms, len(self.ports), versions, without_id, has_topics
        )
        return combine_answers(found)

    def _inquiries(self, stack: ExitStack) -> dict[int, Connection]:
        """Raw connections by broker id. Where there is none, librdkafka alone answers, and knows less."""
        found: dict[int, Connection] = {}
        for broker, port in self.ports.items():
            try:
                inquiry = Connection(self.settings, (broker.host, port), timeout_s=self.timeout_s)
            except ProtocolError as error:
                self.not_seen.append(f"sizes, rates, quotas, exact group members and the release: {error}")
                return {}
            except (Unreachable, Unauthorised) as error:
                self.not_seen.append(f"sizes of what broker {broker.id} leads, and groups it coordinates: {error}")
                continue
            found[broker.id] = stack.enter_context(inquiry)
        return found

    def _leaders(self, described: Mapping[str, ScannedTopic]) -> dict[TopicPartition, int]:
        """Of the partitions that have a leader; the others cannot be asked anything."""
        leaders: dict[TopicPartition, int] = {}
        without = 0
        for name, topic in described.items():
            for number, leader in enumerate(topic.leaders):
                if leader is None:
                    without += 1
                else:
                    leaders[TopicPartition(name, number)] = leader
        if without:
            self.not_seen.append(f"sizes and offsets of {without} partitions that have no leader at the moment")
        return leaders

    def _sizes(self, leaders: Mapping[TopicPartition, int]) -> _Sizes | None:
        """None when no broker tells."""
        sizes: dict[TopicPartition, int] = {}
        times: dict[TopicPartition, float] = {}
        told = False
        for broker, inquiry in self.inquiries.items():
            found = self._told(f"log sizes of broker {broker}", admin_reads.read_log_sizes, inquiry)
            now = time.monotonic()
            told = told or found is not None
            for key, size in (found or {}).items():
                if leaders.get(key) == broker:
                    sizes[key], times[key] = size, now
        return _Sizes(sizes, times) if told else None

    def _again(self, first: _Sizes | None, leaders: Mapping[TopicPartition, int], sample_s: float) -> _Sizes | None:
        """The second look, `sample_s` after the first. What was asked in between counts for the wait."""
        if first is None or sample_s <= 0:
            return None
        began = max(first.at.values(), default=time.monotonic())
        time.sleep(max(0.0, began + sample_s - time.monotonic()))
        return self._sizes(leaders)

    def _newest(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        asked = [key for key, end in ends.items() if end > 0]
        return self._told("times of the newest records", self.survey.newest, asked) or {}

    def _configured(self, names: list[str]) -> dict[str, ScannedConfigs]:
        found = self._told("topic configs", self.survey.read_topic_configs, names)
        if found is not None and len(found) < len(names):
            self.not_seen.append(f"configs of {len(names) - len(found)} topics: they need DESCRIBE_CONFIGS")
        return found or {}

    def _broker_configs(self) -> dict[str, str]:
        lowest = min(broker.id for broker in self.ports)
        found = self._told("broker configs", self.survey.broker_configs, lowest) or {}
        return {
            key: value for key, value in found.items() if key in _BROKER_CONFIGS or key.startswith(_BROKER_PREFIXES)
        }

    def _groups(self, ends: Mapping[TopicPartition, int]) -> dict[str, InventoryGroup]:
        listed = self._listed_groups()
        with_offsets = [group.id for group in listed if group.type != "share"]
        committed, refused = self.survey.committed(with_offsets)
        if refused:
            self.not_seen.append(f"offsets of {len(refused)} groups: they need DESCRIBE on the group and its topics")
        if hidden := sum(group.members is None for group in listed):
            self.not_seen.append(f"members of {hidden} groups; those that are not empty count as one")
        beyond = self._beyond(committed, ends)
        groups = {}
        for group in sorted(listed, key=lambda group: group.id):
            offsets: dict[str, dict[int, int]] = defaultdict(dict)
            lag: dict[str, int] = defaultdict(int)
            for key, offset in sorted(committed.get(group.id, {}).items()):
                offsets[key.topic][key.partition] = offset
                if key in ends:
                    lag[key.topic] += max(0, ends[key] - offset)
            members = int(group.state != "Empty") if group.members is None else group.members
            groups[group.id] = InventoryGroup(
                group.id,
                group.state,
                group.type,
                members,
                dict(offsets),
                dict(lag),
                tuple(f"{key.topic}:{key.partition}" for key in beyond.get(group.id, ())),
            )
        return groups

    def _beyond(
        self, committed: Mapping[str, Mapping[TopicPartition, int]], ends: Mapping[TopicPartition, int]
    ) -> dict[str, list[TopicPartition]]:
        """Positions behind the end. The ends are older than the positions, so those of a suspicion are asked again."""
        perhaps = {
            group: [key for key, offset in sorted(offsets.items()) if offset > ends.get(key, offset)]
            for group, offsets in committed.items()
        }
        suspicious = sorted({key for keys in perhaps.values() for key in keys})
        if not suspicious:
            return {}
        now = self._told("end offsets", self.survey.ends, suspicious) or {}
        return {
            group: [key for key in keys if committed[group][key] > now.get(key, committed[group][key])]
            for group, keys in perhaps.items()
        }

    def _listed_groups(self) -> list[GroupListing]:
        if not self.inquiries:
            return self._told("groups", self.survey.list_groups) or []
        found: dict[str, GroupListing] = {}
        for broker, inquiry in self.inquiries.items():
            for group in self._told(f"groups of broker {broker}", admin_reads.read_group_listings, inquiry) or []:
                found[group.id] = group
        return list(found.values())

    def _acls(self) -> tuple[InventoryAcl, ...] | None:
        raw = next(iter(self.inquiries.values()), None)
        try:
            found = admin_reads.read_acls(raw) if raw is not None else self.survey.acls() or None
        except _NOT_TOLD as error:
            self.not_seen.append(f"ACLs: {error}")
            return None
        if found is None:
            why = "the cluster has no authorizer" if raw else "none are shown: there are none, or it refuses to tell"
            self.not_seen.append(f"ACLs: {why}")
        return found

    def _quotas(self) -> dict[str, dict[str, float]]:
        for inquiry in self.inquiries.values():
            return self._told("client quotas", admin_reads.read_quota_texts, inquiry) or {}
        return {}

    def _users(self) -> dict[str, dict[str, int]] | None:
        for inquiry in self.inquiries.values():
            return self._told("SCRAM users", admin_reads.read_scram_users, inquiry)
        return None

    def _release(self) -> str | None:
        """The oldest broker's release; a cluster that has not finalized it yet is said in `not_seen`."""
        found = [
            name
            for each in self.inquiries.values()
            if (name := detect_release(each.versions.ranges, each.versions.supported))
        ]
        if not found:
            return None
        oldest = min(found, key=parse_release)
        if len(set(found)) > 1:
            self.not_seen.append(f"one release: the brokers run {', '.join(sorted(set(found), key=parse_release))}")
        levels = [
            each.versions.finalized[METADATA_VERSION_FEATURE]
            for each in self.inquiries.values()
            if METADATA_VERSION_FEATURE in each.versions.finalized
        ]
        if levels and parse_release(find_release_of_level(min(levels))) < parse_release(oldest):
            level = find_release_of_level(min(levels))
            self.not_seen.append(f"features of {oldest}: metadata.version is finalized at {level} only")
        return oldest

    def _note_tiered(self, topics: Mapping[str, InventoryTopic]) -> None:
        tiered = sum(topic.config("remote.storage.enable") == "true" for topic in topics.values())
        if tiered:
            self.not_seen.append(f"what {tiered} topics keep in remote storage: their sizes are of the brokers' disks")

    def _told(self, what: str, ask: Callable[..., _T], *about: Any) -> _T | None:
        """The answer; None, and a line in `not_seen`, where the cluster refuses or is too old."""
        try:
            return ask(*about)
        except _NOT_TOLD as error:
            line = f"{what}: {error}"
            if line not in self.not_seen:  # log sizes are asked for twice
                self.not_seen.append(line)
            return None


def _size(sizes: _Sizes | None, partitions: list[TopicPartition]) -> int | None:
    """None when the log of one of them is not known: a part would be taken for the whole."""
    if sizes is None or any(key not in sizes.bytes for key in partitions):
        return None
    return sum(sizes.bytes[key] for key in partitions)


def _rate(first: _Sizes | None, last: _Sizes | None, partitions: list[TopicPartition]) -> int | None:
    """Bytes a second by which the logs grew. A log that shrank lost a segment to retention meanwhile and says nothing;
    None when that is all of them."""
    if first is None or last is None:
        return None
    rates = []
    for key in partitions:
        if key in first.bytes and key in last.bytes and last.bytes[key] >= first.bytes[key]:
            rates.append((last.bytes[key] - first.bytes[key]) / max(last.at[key] - first.at[key], 0.001))
    return round(sum(rates)) if rates else None
