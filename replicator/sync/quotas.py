"""Client quotas that are carried over: limits of users, client ids, both together, and the defaults of each.

A limit counts for each broker, so a target with another number of brokers lets another sum through. Limits of IP
addresses are left out: clients have other addresses there; so are those of our own user, which would slow the copying.
A limit that only the target has is shown, never removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from watershed.clusters.errors import RequestUnsupported
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.admin_reads import QuotaEntity, read_client_quotas
from watershed.clusters.wire.admin_writes import alter_client_quotas
from watershed.clusters.wire.connection import open_connection
from watershed.replicator.sync import sync_kind
from watershed.replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from watershed.topology.drift import DriftClass, FieldDrift
from watershed.topology.plan import PlanFlow
from watershed.topology.shell_command import render_shell_command
from watershed.topology.sync_settings import SyncMode

_KIND: Final = "quota"
_RATE: Final = "producer_byte_rate"  # what a fence lowers (clusters.producer_fence)
_CARRIED: Final = frozenset({"user", "client-id"})
_TYPES: Final = {"user": "users", "client-id": "clients", "ip": "ips"}  # as kafka-configs says them
_ClusterQuotas = Mapping[QuotaEntity, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class QuotaKind:
    """See `replicator.sync.sync_kind.SyncKind`."""

    name: str = "quotas"

    def mode(self, flow: PlanFlow) -> SyncMode:
        """`sync.quotas` of the flow."""
        return flow.sync.quotas.mode

    def every_ms(self, flow: PlanFlow) -> int:
        """METADATA_INTERVAL_MS, for every flow."""
        return sync_kind.METADATA_INTERVAL_MS

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        """Client quotas that differ. Kafka before 2.6 keeps them in ZooKeeper and tells nobody (KIP-546)."""
        try:
            here, there = _quotas(sides.source), _quotas(sides.target)
        except RequestUnsupported as error:
            return [sync_kind.build_unsupported(flow, self.name, error, _carrying_by_hand(sides.target))]
        return find_quota_differences(flow, sides.flows, here, there, sides.target)

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        """Set the quotas that differ at the target."""
        if not differences:
            return []
        here = {render_quota_entity(entity): (entity, limits) for entity, limits in _quotas(sides.source).items()}
        asked = [each for each in differences if each.name in here and each.field in here[each.name][1]]
        wanted: dict[QuotaEntity, dict[str, float]] = {}
        for each in asked:
            entity, limits = here[each.name]
            wanted.setdefault(entity, {})[each.field] = limits[each.field]
        with open_connection(sides.target) as target:
            refused = alter_client_quotas(target, wanted)
        return [DifferenceOutcome(each, refused.get(here[each.name][0])) for each in asked]


def find_quota_differences(
    flow: PlanFlow, flows: Iterable[PlanFlow], here: _ClusterQuotas, there: _ClusterQuotas, target: ConnectionSettings
) -> list[FieldDrift]:
    """Limit by limit, in the order of entities. flows: all into the target. Pure."""
    beside = [
        each for each in flows if each.id != flow.id and each.source != flow.source and each.sync.quotas.mode != "never"
    ]
    found = []
    for entity in sorted({*here, *there}, key=render_quota_entity):
        before, wanted = there.get(entity, {}), here.get(entity, {})
        if not flow.sync.quotas.selects(entity) or _ours(entity, target):
            continue
        others = [each.id for each in beside if each.sync.quotas.selects(entity)]
        for key in sorted({*before, *wanted}):
            live, value = before.get(key), wanted.get(key)
            if live == value or (key == _RATE and flow.sync.quotas.is_fence(dict(entity))):
                continue
            if not _kept(entity):
                if value is None:
                    continue
                drift: DriftClass = "unsupported"
                why = "limits of IP addresses are not carried over: clients have other addresses there"
            elif value is None:
                if others:
                    continue
                drift, why = "unknown", _removing(flow, entity, key, target)
            elif live is not None and others:
                drift = "unknown"
                why = (
                    f"{', '.join(sorted(others))} carries quotas to {flow.target} too; exclude this one in all but one"
                )
            else:
                drift, why = "safe", ""
            found.append(
                FieldDrift(
                    flow.target,
                    _KIND,
                    render_quota_entity(entity),
                    key,
                    _number(live),
                    _number(value),
                    drift,
                    drift == "safe",
                    why,
                )
            )
    return found


def render_quota_entity(entity: QuotaEntity) -> str:
    """For people: `user=ann, client-id=<default>`; the user first."""
    parts = sorted(entity, key=lambda part: (part[0] != "user", part[0]))
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in parts)


def _quotas(settings: ConnectionSettings) -> _ClusterQuotas:
    with open_connection(settings) as inquiry:
        return read_client_quotas(inquiry)


def _kept(entity: QuotaEntity) -> bool:
    return all(each in _CARRIED for each, _ in entity)


def _ours(entity: QuotaEntity, target: ConnectionSettings) -> bool:
    """A limit of this process's own user says something of the copying, not of applications."""
    return target.username is not None and ("user", target.username) in entity


def _number(value: float | None) -> str | None:
    if value is None:
        return None
    return str(int(value)) if value.is_integer() else str(value)


def _carrying_by_hand(target: ConnectionSettings) -> str:
    showing = (
        f"{render_shell_command('kafka-configs', '--zookeeper', 'ZOOKEEPER', '--describe', '--entity-type', each)}"
        for each in ("users", "clients")
    )
    setting = render_shell_command(
        *("kafka-configs", "--bootstrap-server", ",".join(target.bootstrap), "--alter"),
        *("--entity-type", "users", "--entity-name", "USER", "--add-config", "LIMIT=VALUE"),
    )
    return f"{' and '.join(showing)} show them, {setting} sets one"


def _removing(flow: PlanFlow, entity: QuotaEntity, key: str, target: ConnectionSettings) -> str:
    parts = ["kafka-configs", "--bootstrap-server", ",".join(target.bootstrap), "--alter", "--delete-config", key]
    for each, name in sorted(entity, key=lambda part: (part[0] != "user", part[0])):
        parts += ["--entity-type", _TYPES.get(each, each)]
        parts += ["--entity-default"] if name is None else ["--entity-name", name]
    return (
        f"{flow.source} has no such limit: it was taken away there, or given at {flow.target} only. Nothing takes it "
        f"away by itself: {render_shell_command(*parts)}"
    )
