"""Answers for fences and writers: who the applications are for the brokers, and what these say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from watershed.clusters import producer_fence
from watershed.clusters.errors import CannotFence, ClusterError, RequestUnsupported
from watershed.clusters.flow_records import read_flows
from watershed.clusters.partition_writers import (
    ProducerWrites,
    find_transactional_ids,
    read_producer_states,
    read_writes_since,
)
from watershed.clusters.producer_registry import read_producers
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire import admin_reads
from watershed.clusters.wire.connection import open_connection
from watershed.cutover.actions import Action, ClusterSide, FindWriters, LowerFence, RaiseFence, ReadFence
from watershed.cutover.observations import Observation, ObservedFence, ObservedWriter, ObservedWriters
from watershed.topology.application_controls import PlanApplication
from watershed.topology.plan import Plan, PlanFlow

_WRITING = ("WRITE", "ALL")


class LiveFences:
    """Answers ReadFence, RaiseFence, LowerFence and FindWriters. Raises ClusterError."""

    def __init__(
        self,
        plan: Plan,
        settings: Mapping[ClusterSide, ConnectionSettings],
        now: Callable[[], int],
    ) -> None:
        self._plan, self._settings, self._now = plan, settings, now

    def answers(self) -> dict[type[Action], Callable[..., Observation]]:
        """Action class → the method that answers it."""
        return {
            ReadFence: self.look,
            RaiseFence: self.rise,
            LowerFence: self.lower,
            FindWriters: self.writers,
        }

    def look(self, action: ReadFence) -> ObservedFence:
        """What stands at the brokers where the fence would be, and which other flows would carry it on."""
        settings = self._settings[action.side]
        if action.kind == "acl":
            found = producer_fence.inspect_acl_fence(settings, action.topics, self._principals(action.names))
        else:
            found = producer_fence.inspect_quota_fence(settings, self._clients(action.names), action.rate)
        other = self._settings["target" if action.side == "source" else "source"]
        return replace(self._seen(found), carriers=self._carriers(settings, other, action))

    def _carriers(self, here: ConnectionSettings, other: ConnectionSettings, action: ReadFence) -> tuple[str, ...]:
        """Flows of the same topology file are told of fences when it is compiled (`topology.unsynced_fences`)."""
        with open_connection(here) as inquiry:
            cluster_id = inquiry.cluster_id()
        return tuple(
            f"{record.flow.id} of {record.topology}"
            for record in read_flows(other).values()
            if record.topology != self._plan.topology
            and record.source_cluster_id == cluster_id
            and record.state != "stopped"
            and self._would_carry(record.flow, action)
        )

    def _would_carry(self, flow: PlanFlow, action: ReadFence) -> bool:
        if action.kind == "quota":  # of users and clients, whatever topics the flow selects
            parts = [(("user", user), ("client-id", client)) for user, client in self._clients(action.names)]
            entities = [tuple(part for part in each if part[1] is not None) for each in parts]
            return flow.sync.quotas.mode != "never" and any(map(flow.sync.quotas.selects, entities))
        acls = flow.sync.acls
        return acls.mode != "never" and any(flow.selects(each) and acls.names.selects(each) for each in action.topics)

    def rise(self, action: RaiseFence) -> ObservedFence:
        """Raises the fence and reads it back at every broker."""
        raise_ = producer_fence.raise_acl_fence if action.kind == "acl" else producer_fence.raise_quota_fence
        return self._seen(raise_(self._settings[action.side], action.snapshot))

    def lower(self, action: LowerFence) -> ObservedFence:
        """Puts back exactly the snapshot and reads it back at every broker."""
        lower = producer_fence.lower_acl_fence if action.kind == "acl" else producer_fence.lower_quota_fence
        return self._seen(lower(self._settings[action.side], action.snapshot))

    def writers(self, action: FindWriters) -> ObservedWriters:
        """Producers by the brokers' producer state, or by the batches since these offsets."""
        settings = self._settings[action.side]
        upto: dict[TopicPartition, int] = {}
        if action.since is None:
            found = read_producer_states(settings, action.places)
        else:
            found, upto = read_writes_since(settings, {place: action.since[place] for place in action.places})
        ids = {each.producer_id for each in found}
        flows = {each: record.flow for each, record in read_producers(settings).items() if each in ids}
        names, unnamed = _name_producers(settings, ids - flows.keys())
        writers = tuple(
            _writer(each, names.get(each.producer_id, ""), flows.get(each.producer_id, "")) for each in found
        )
        allowed = _allowed(settings, {place.topic for place in action.places})
        return ObservedWriters(self._now(), writers, upto, allowed, unnamed)

    def _seen(self, fence: producer_fence.FenceState) -> ObservedFence:
        return ObservedFence(self._now(), fence.up, fence.snapshot, fence.told)

    def _principals(self, names: tuple[str, ...]) -> set[str]:
        """Raises CannotFence for an application that has none in the file."""
        found = {name: self._application(name).principal for name in names}
        lacking = sorted(name for name, principal in found.items() if principal is None)
        if lacking:
            raise CannotFence(
                f"an acl fence denies principals, and the file tells none for {', '.join(lacking)}: add "
                f"`principal: User:…` to migration.applications.{lacking[0]}"
            )
        return {principal for principal in found.values() if principal is not None}

    def _clients(self, names: tuple[str, ...]) -> list[producer_fence.QuotaClient]:
        """Raises CannotFence for an application that has neither user nor client id in the file."""
        found: list[producer_fence.QuotaClient] = []
        for name in names:
            application = self._application(name)
            kind, _, user = (application.principal or "").partition(":")
            if application.principal is not None and (kind != "User" or not user):
                raise CannotFence(
                    f"quotas know users, and {name} is {application.principal}: use another kind of fence"
                )
            if not user and application.client_id is None:
                raise CannotFence(
                    f"a quota fence slows users or client ids, and the file tells neither for {name}: add `principal` "
                    f"or `client_id` to migration.applications.{name}"
                )
            found.append((user or None, application.client_id))
        return found

    def _application(self, name: str) -> PlanApplication:
        declared = self._plan.migration.applications if self._plan.migration is not None else {}
        return declared.get(name, PlanApplication())


def _writer(wrote: ProducerWrites, name: str, flow: str) -> ObservedWriter:
    return ObservedWriter(
        wrote.place,
        wrote.producer_id,
        wrote.epoch,
        wrote.last_ms,
        name,
        wrote.sequence,
        wrote.first,
        wrote.last,
        wrote.records,
        flow,
        wrote.marker,
    )


def _name_producers(settings: ConnectionSettings, producer_ids: Collection[int]) -> tuple[dict[int, str], str]:
    """Transactional ids by producer id, and why they are unknown ("": they are not)."""
    try:
        return find_transactional_ids(settings, producer_ids), ""
    except RequestUnsupported as error:
        return {}, f"transactional ids are unknown: cluster {settings.alias} is older than Kafka {error.release}"


def _allowed(settings: ConnectionSettings, topics: set[str]) -> tuple[str, ...]:
    """Whom ACLs let write to one of the topics; a hint, so that not being allowed to read them is no failure."""
    try:
        with open_connection(settings) as inquiry:
            acls = admin_reads.read_acls(inquiry)
    except ClusterError:
        return ()
    found = {
        acl.principal
        for acl in acls or ()
        if acl.permission == "ALLOW"
        and acl.operation in _WRITING
        and any(producer_fence.is_acl_on_topic(acl, each) for each in topics)
    }
    return tuple(sorted(found))
