"""Access that a sync brought to a target: which rights it gave, and which users were made because it named them.

The records stand in `watershed.flows` of the flow's target. Only what they name is ever removed there again
(decision 0123). They are written before a right is given, so a crash leaves no right without its record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, TypeVar

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import read_latest_records
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.control_values import ControlValue
from watershed.clusters.errors import TopicMissing
from watershed.clusters.flow_records import NON_FLOW_PREFIXES, SYNCED_ACLS_PREFIX, SYNCED_USER_PREFIX, FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import PlanFlow

_WRITER: Final = "watershed-access"


@dataclass(frozen=True, slots=True)
class SyncedAcl:
    """A right that a sync gave. acl: in the target's names. origins: the rights of the source that it came from, when
    it was given. given_ms: when. revoked_ms: since when a comparison finds neither an origin nor another right of the
    source that explains it; None while there is one. Both are milliseconds since 1970."""

    acl: InventoryAcl
    origins: tuple[InventoryAcl, ...]
    given_ms: int
    revoked_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As it stands in its record. `origins` is left out where the one origin is the same right."""
        origins = {} if self.origins == (self.acl,) else {"origins": [asdict(each) for each in self.origins]}
        return {"acl": asdict(self.acl), **origins, "given_ms": self.given_ms, "revoked_ms": self.revoked_ms}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SyncedAcl:
        """Reads what `to_json` gave. Raises KeyError or TypeError for anything else."""
        acl = InventoryAcl(**value["acl"])
        origins = tuple(InventoryAcl(**each) for each in value["origins"]) if "origins" in value else (acl,)
        return cls(acl, origins, value["given_ms"], value["revoked_ms"])


@dataclass(frozen=True, slots=True)
class SyncedAcls(ControlRecordBody):
    """The rights to one resource (`TOPIC`, `orders`): a record stays small, and only changed ones are written."""

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat("a record of synced rights", FLOWS_TOPIC)
    flow: str
    resource: str
    name: str
    acls: tuple[SyncedAcl, ...]

    @property
    def key(self) -> str:
        """One record for each resource of a flow's target."""
        return f"{SYNCED_ACLS_PREFIX}{self.flow}|{self.resource}|{self.name}"


@dataclass(frozen=True, slots=True)
class SyncedUser(ControlRecordBody):
    """A SCRAM user with one mechanism that the sync named as missing at the target.

    missing_ms: when it was named first. made_ms: when a comparison first found it on both sides; None: not yet, so it
    is not known to be the one that was named. revoked_ms: since when the source lacks it. All are milliseconds since
    1970.
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat("a record of a synced user", FLOWS_TOPIC)
    flow: str
    user: str
    mechanism: str
    missing_ms: int
    made_ms: int | None = None
    revoked_ms: int | None = None

    @property
    def key(self) -> str:
        """One record for each user and mechanism of a flow's target."""
        return f"{SYNCED_USER_PREFIX}{self.flow}|{self.mechanism}|{self.user}"


@dataclass(frozen=True, slots=True)
class SyncedAccess:
    """All that is written down of one flow. record: its desired state; None where the flow was never applied. beside:
    all other flows into the cluster that are not stopped, also those of other topologies: what they need stays."""

    record: FlowRecord | None = None
    acls: tuple[SyncedAcl, ...] = ()
    users: tuple[SyncedUser, ...] = ()
    beside: tuple[PlanFlow, ...] = ()


def read_synced_access(target: ConnectionSettings, flow: str) -> SyncedAccess:
    """Empty without control topics. Raises ClusterError."""
    readers: Mapping[str, Callable[[ControlValue, str], FlowRecord | SyncedAcls | SyncedUser]] = {
        f"{SYNCED_ACLS_PREFIX}{flow}|": SyncedAcls.from_json,
        f"{SYNCED_USER_PREFIX}{flow}|": SyncedUser.from_json,
    }

    def read(value: ControlValue, key: str) -> FlowRecord | SyncedAcls | SyncedUser:
        return next((each for prefix, each in readers.items() if key.startswith(prefix)), FlowRecord.from_json)(
            value, key
        )

    try:
        found = read_latest_records(
            target,
            FLOWS_TOPIC,
            read,
            lambda key: key.startswith(tuple(readers)) or not key.startswith(NON_FLOW_PREFIXES),
        ).values()
    except TopicMissing:
        return SyncedAccess()
    flows = {each.flow.id: each for each in found if isinstance(each, FlowRecord)}
    return SyncedAccess(
        flows.get(flow),
        tuple(acl for each in found if isinstance(each, SyncedAcls) for acl in each.acls),
        tuple(each for each in found if isinstance(each, SyncedUser)),
        tuple(each.flow for name, each in flows.items() if name != flow and each.state != "stopped"),
    )


def write_synced_acls(
    target: ConnectionSettings, flow: str, before: Iterable[SyncedAcl], after: Iterable[SyncedAcl]
) -> None:
    """Writes the records that differ, and waits for each. Raises ClusterError."""
    _write(target, _group_acls(flow, before), _group_acls(flow, after))


def strike_out_acls(target: ConnectionSettings, flow: str, gone: Iterable[InventoryAcl]) -> None:
    """These rights are not the sync's any more: whoever gives them again has a reason. Raises ClusterError."""
    before, over = read_synced_access(target, flow).acls, frozenset(gone)
    write_synced_acls(target, flow, before, [each for each in before if each.acl not in over])


def write_synced_users(target: ConnectionSettings, before: Iterable[SyncedUser], after: Iterable[SyncedUser]) -> None:
    """Writes the records that differ, and waits for each. Raises ClusterError."""
    _write(target, {each.key: each for each in before}, {each.key: each for each in after})


_Record = TypeVar("_Record", SyncedAcls, SyncedUser)


def _write(target: ConnectionSettings, before: Mapping[str, _Record], after: Mapping[str, _Record]) -> None:
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    if not changed:
        return
    with ControlWriter(target, _WRITER) as writer:
        for key in changed:
            record = after.get(key)
            writer.put(FLOWS_TOPIC, key, None if record is None else record.to_json(), 0)


def _group_acls(flow: str, acls: Iterable[SyncedAcl]) -> dict[str, SyncedAcls]:
    found: dict[tuple[str, str], list[SyncedAcl]] = {}
    for each in sorted(acls, key=lambda each: str(each.acl)):
        found.setdefault((each.acl.resource, each.acl.name), []).append(each)
    records = (SyncedAcls(flow, resource, name, tuple(some)) for (resource, name), some in found.items())
    return {record.key: record for record in records}
