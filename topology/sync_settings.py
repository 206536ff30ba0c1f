"""What travels beside records, as the file says it (`sync:`): positions of groups, rights, quotas, users, schemas.

Topic configs are older than this and stand in the flow itself (`PlanFlow.sync_configs*`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from watershed.topology.selectors import Selector, Selectors

SyncMode = Literal["never", "once", "continuous"]
PruneMode = Literal["never", "approve", "auto"]
DEFAULT_PRUNE_AFTER_MS: Final = 86_400_000  # a day, in which a person sees a revocation that nobody meant
GROUP_SYNC_INTERVAL_MS = 10_000
_DEFAULT_ENTITY: Final = "default"  # how a file names the default of users or client ids
# Groups of tools: never of an application. apache/kafka DefaultGroupFilter.java excludes the first three.
TOOL_GROUP_GLOBS = ("console-consumer-*", "connect-*", "__*", "_confluent*", "watershed.*")


def is_tool_group(group: str) -> bool:
    """True for a consumer group of a tool, such as `console-consumer-1`."""
    return any(fnmatchcase(group, tool) for tool in TOOL_GROUP_GLOBS)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Which things of one kind: `include` (empty: all of them) without `exclude`."""

    include: tuple[Selector, ...] = ()
    exclude: tuple[Selector, ...] = ()

    def selects(self, name: str) -> bool:
        """True if the filter lets this name through."""
        return (not self.include or Selectors(self.include).match(name)) and not Selectors(self.exclude).match(name)

    def to_json(self) -> dict[str, Any]:
        """`{"include": […], "exclude": […]}`."""
        return {
            "include": [selector.to_json() for selector in self.include],
            "exclude": [selector.to_json() for selector in self.exclude],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> NameFilter:
        """Reads what `to_json` writes; missing lists are empty."""
        return cls(
            include=tuple(map(Selector.from_json, value.get("include", ()))),
            exclude=tuple(map(Selector.from_json, value.get("exclude", ()))),
        )


@dataclass(frozen=True, slots=True)
class GroupSync:
    """rename: group id at the source → id at the target; others keep theirs. streams: ids of applications of Kafka
    Streams whose state travels in topics of the flow, so that their positions may travel, too."""

    mode: SyncMode = "never"
    names: NameFilter = NameFilter()
    interval_ms: int = GROUP_SYNC_INTERVAL_MS
    rename: tuple[tuple[str, str], ...] = ()
    streams: tuple[str, ...] = ()

    def target_group(self, group: str) -> str:
        """The id of a group at the target."""
        return dict(self.rename).get(group, group)


@dataclass(frozen=True, slots=True)
class AccessPruning:
    """What becomes of access that the sync brought to the target, once the source has taken it away.

    mode: `never` it is only shown; `approve` a person decides; `auto` it is removed after `after_ms` milliseconds, in
    which the source has shown it as gone all the time.
    """

    mode: PruneMode = "never"
    after_ms: int = DEFAULT_PRUNE_AFTER_MS

    def to_json(self) -> dict[str, Any]:
        """Absent where nothing is removed, so that plans without it keep their hash."""
        return {"prune": {"mode": self.mode, "after_ms": self.after_ms}} if self.mode != "never" else {}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AccessPruning:
        """Reads what `to_json` gave, from the value that holds it."""
        return cls(value["prune"]["mode"], value["prune"]["after_ms"]) if "prune" in value else cls()


@dataclass(frozen=True, slots=True)
class AclSync:
    """names are of topics and groups at the source. include_write: when rights to write are given at the target.
    fences: (principal, topic at the source) whose denied WRITE is a migration's fence and stays there. prune: what
    becomes of rights that are revoked at the source. leaves_denials: the source is the target of a protected flow, so
    denials of WRITE on single topics there are the protection's and stay."""

    mode: SyncMode = "never"
    names: NameFilter = NameFilter()
    include_write: Literal["never", "on_failover", "always"] = "never"
    fences: tuple[tuple[str, str], ...] = ()
    prune: AccessPruning = AccessPruning()
    leaves_denials: bool = False

    @property
    def holds_back(self) -> bool:
        """Whether rights to write wait until applications move."""
        return self.include_write == "on_failover" and self.mode != "never"


@dataclass(frozen=True, slots=True)
class QuotaSync:
    """names are of the quota's entity: a user, a client id, or `default`. fences: (user, client id) whose producer byte
    rate at the source is a migration's fence and stays there; every client id of a user without one."""

    mode: SyncMode = "never"
    names: NameFilter = NameFilter()
    fences: tuple[tuple[str | None, str | None], ...] = ()

    def selects(self, entity: Iterable[tuple[str, str | None]]) -> bool:
        """Whether the file takes a quota's entity, pairs of type and name (None: the default): one of its names is
        included, and none excluded."""
        called = [_DEFAULT_ENTITY if name is None else name for _, name in entity]
        included = not self.names.include or any(each.matches(name) for each in self.names.include for name in called)
        return included and not any(each.matches(name) for each in self.names.exclude for name in called)

    def is_fence(self, entity: Mapping[str, str | None]) -> bool:
        """Whether the producer byte rate of this entity (`user`, `client-id` → name) is a fence."""
        return any(
            entity.get("user") == user and (client_id is None or entity.get("client-id") == client_id)
            if user is not None
            else dict(entity) == {"client-id": client_id}
            for user, client_id in self.fences
        )


@dataclass(frozen=True, slots=True)
class UserSync:
    """SCRAM users. Brokers never hand out credentials, so what can be carried over is which users and how many
    iterations; names are of users. prune: what becomes of users that are deleted at the source."""

    mode: SyncMode = "never"
    names: NameFilter = NameFilter()
    prune: AccessPruning = AccessPruning()


@dataclass(frozen=True, slots=True)
class SchemaSync:
    """names are of subjects. ids `translate`: the id in front of each record's value and key is rewritten on the way.
    subjects `follow_topic`: a subject that is named after a topic is renamed as the topic is."""

    mode: SyncMode = "never"
    names: NameFilter = NameFilter()
    ids: Literal["preserve", "translate"] = "preserve"
    subjects: Literal["keep", "follow_topic"] = "keep"

    @property
    def translated(self) -> bool:
        """Whether records get other ids on the way."""
        return self.mode != "never" and self.ids == "translate"

    def has_same_output_as(self, other: SchemaSync) -> bool:
        """Whether records arrive the same under both."""
        if not self.translated or not other.translated:
            return self.translated == other.translated
        return (self.names, self.subjects) == (other.names, other.subjects)


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """Of one flow."""

    groups: GroupSync = field(default_factory=GroupSync)
    acls: AclSync = field(default_factory=AclSync)
    quotas: QuotaSync = field(default_factory=QuotaSync)
    users: UserSync = field(default_factory=UserSync)
    schemas: SchemaSync = field(default_factory=SchemaSync)

    def to_json(self) -> dict[str, Any]:
        """The `sync` of a flow in the plan."""
        return {
            "groups": {
                "mode": self.groups.mode,
                **self.groups.names.to_json(),
                "interval_ms": self.groups.interval_ms,
                "rename": dict(self.groups.rename),
                **({"streams": list(self.groups.streams)} if self.groups.streams else {}),
            },
            "acls": {
                "mode": self.acls.mode,
                **self.acls.names.to_json(),
                "include_write": self.acls.include_write,
                **_fences(self.acls.fences),
                **self.acls.prune.to_json(),
                **({"leaves_denials": True} if self.acls.leaves_denials else {}),
            },
            "quotas": {"mode": self.quotas.mode, **self.quotas.names.to_json(), **_fences(self.quotas.fences)},
            "users": {"mode": self.users.mode, **self.users.names.to_json(), **self.users.prune.to_json()},
            "schemas": {
                "mode": self.schemas.mode,
                **self.schemas.names.to_json(),
                "ids": self.schemas.ids,
                "subjects": self.schemas.subjects,
            },
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SyncSettings:
        """Raises KeyError, TypeError or ValueError for anything else than what `to_json` gave."""
        groups, acls, schemas = value["groups"], value["acls"], value["schemas"]
        return cls(
            GroupSync(
                groups["mode"],
                NameFilter.from_json(groups),
                groups["interval_ms"],
                tuple(sorted(groups["rename"].items())),
                tuple(map(str, groups.get("streams", ()))),
            ),
            AclSync(
                acls["mode"],
                NameFilter.from_json(acls),
                acls["include_write"],
                tuple((str(principal), str(topic)) for principal, topic in acls.get("fences", ())),
                AccessPruning.from_json(acls),
                acls.get("leaves_denials", False),
            ),
            QuotaSync(
                value["quotas"]["mode"],
                NameFilter.from_json(value["quotas"]),
                tuple((user, client_id) for user, client_id in value["quotas"].get("fences", ())),
            ),
            UserSync(
                value["users"]["mode"], NameFilter.from_json(value["users"]), AccessPruning.from_json(value["users"])
            ),
            SchemaSync(schemas["mode"], NameFilter.from_json(schemas), schemas["ids"], schemas["subjects"]),
        )


def _fences(fences: tuple[tuple[str | None, str | None], ...]) -> dict[str, Any]:
    """Absent where there are none, so that plans without any keep their hash."""
    return {"fences": [list(each) for each in fences]} if fences else {}


NO_SYNC: Final = SyncSettings()
