"""Access that a sync brought to a target: which rights it gave, and which users were made because it named them.

The records stand in `watershed.flows` of the flow's target. Only what they name is ever removed there again
(decision 0123). They are written before a right is given, so a crash leaves no right without its record. Each right has
a record of its own: a worker and `topology apply` may give rights to one topic at once, and neither writes over what
the other wrote.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final, TypeVar

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_records import read_latest_records
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter, encode_control_value
from watershed.clusters.control_values import ControlValue
from watershed.clusters.errors import TopicMissing
from watershed.clusters.flow_records import NON_FLOW_PREFIXES, SYNCED_ACLS_PREFIX, SYNCED_USER_PREFIX, FlowRecord
from watershed.clusters.settings import ConnectionSettings
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import PlanFlow

_WRITER: Final = "watershed-access"
_DIGEST: Final = 16  # hexadecimal digits: 64 bits for the few rights to one resource


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
class SyncedRight(ControlRecordBody):
    """A right in a record of its own. v0.1.0 passes its key over: it would copy what it finds under `synced_acls|FLOW|`
    into its own records at each change, and never delete it here."""

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat("a record of a synced right", FLOWS_TOPIC)
    flow: str
    right: SyncedAcl

    @property
    def key(self) -> str:
        """One record for each right at a flow's target."""
        acl = self.right.acl
        digest = hashlib.sha256(encode_control_value(asdict(acl))).hexdigest()[:_DIGEST]
        return f"{_build_right_prefix(self.flow)}{acl.resource}|{acl.name}|{digest}"


@dataclass(frozen=True, slots=True)
class SyncedAcls(ControlRecordBody):
    """All rights to one resource in one record, as v0.1.0 writes them. resource, name: such as `TOPIC` and `orders`."""

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
    all other flows into the cluster that are not stopped, also those of other topologies: what they need stays. stored,
    shared: the records of `acls` by their keys; shared ones are of v0.1.0."""

    record: FlowRecord | None = None
    acls: tuple[SyncedAcl, ...] = ()
    users: tuple[SyncedUser, ...] = ()
    beside: tuple[PlanFlow, ...] = ()
    stored: Mapping[str, SyncedRight] = field(default_factory=dict)
    shared: Mapping[str, SyncedAcls] = field(default_factory=dict)


_Found = FlowRecord | SyncedRight | SyncedAcls | SyncedUser


def read_synced_access(target: ConnectionSettings, flow: str) -> SyncedAccess:
    """Empty without control topics. Raises ClusterError."""
    readers: Mapping[str, Callable[[ControlValue, str], _Found]] = {
        _build_right_prefix(flow): SyncedRight.from_json,
        f"{SYNCED_ACLS_PREFIX}{flow}|": SyncedAcls.from_json,
        f"{SYNCED_USER_PREFIX}{flow}|": SyncedUser.from_json,
    }

    def read(value: ControlValue, key: str) -> _Found:
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
    stored = {each.key: each for each in found if isinstance(each, SyncedRight)}
    shared = {each.key: each for each in found if isinstance(each, SyncedAcls)}
    acls = {acl.acl: acl for each in shared.values() for acl in each.acls}
    acls |= {each.right.acl: each.right for each in stored.values()}
    return SyncedAccess(
        flows.get(flow),
        tuple(acls.values()),
        tuple(each for each in found if isinstance(each, SyncedUser)),
        tuple(each.flow for name, each in flows.items() if name != flow and each.state != "stopped"),
        stored,
        shared,
    )


def write_synced_acls(target: ConnectionSettings, flow: str, before: SyncedAccess, after: Iterable[SyncedAcl]) -> None:
    """Writes the records that differ, and waits for them. Records of v0.1.0 are written anew, one for each right.
    Raises ClusterError."""
    _write(target, before.stored, {each.key: each for each in (SyncedRight(flow, acl) for acl in after)})
    if before.shared:  # last: a crash in between loses none
        now = read_synced_access(target, flow).shared  # what v0.1.0 wrote meanwhile is taken apart the next time
        _write(target, {key: each for key, each in before.shared.items() if now.get(key) == each}, {})


def confirm_given_acls(
    target: ConnectionSettings, flow: str, given: Iterable[SyncedAcl], gone: Iterable[InventoryAcl]
) -> None:
    """After rights were given. given: written down before; one that another writer struck out meanwhile is
    written again. gone: rights that the target refused and does not have. Raises ClusterError."""
    now, over = read_synced_access(target, flow), frozenset(gone)
    known = {each.acl: each for each in now.acls}
    wanted = {each.acl: each for each in given} | known
    write_synced_acls(target, flow, now, [each for acl, each in wanted.items() if acl not in over])


def strike_out_acls(target: ConnectionSettings, flow: str, gone: Iterable[SyncedAcl]) -> None:
    """These rights are not the sync's any more: whoever gives them again has a reason. One that a sync has given again
    meanwhile stays written down. Raises ClusterError."""
    now, over = read_synced_access(target, flow), {(each.acl, each.given_ms) for each in gone}
    write_synced_acls(target, flow, now, [each for each in now.acls if (each.acl, each.given_ms) not in over])


def write_synced_users(target: ConnectionSettings, before: Iterable[SyncedUser], after: Iterable[SyncedUser]) -> None:
    """Writes the records that differ, and waits for them. Raises ClusterError."""
    _write(target, {each.key: each for each in before}, {each.key: each for each in after})


_Record = TypeVar("_Record", SyncedRight, SyncedAcls, SyncedUser)


def _write(target: ConnectionSettings, before: Mapping[str, _Record], after: Mapping[str, _Record]) -> None:
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    if not changed:
        return
    with ControlWriter(target, _WRITER) as writer:
        for key in changed:
            record = after.get(key)
            writer.put_nowait(FLOWS_TOPIC, key, None if record is None else record.to_json(), 0)


def _build_right_prefix(flow: str) -> str:
    """Two bars: no key that v0.1.0 reads for any flow begins so, and it takes none of these for a flow."""
    return f"{SYNCED_ACLS_PREFIX}|{flow}|"
