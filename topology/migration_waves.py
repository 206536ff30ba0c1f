"""The migration of applications as the plan holds it: waves, their gates, hooks and groups."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from watershed.topology.application_controls import PlanApplication
from watershed.topology.secret_ref import SecretRef

WaveStrategy = Literal["consumers_first", "producers_first", "fenced", "consumers_last"]
_FenceKind = Literal["stop", "acl", "quota", "external"]
ProofLevel = Literal["L0", "L1", "L2", "L3"]


@dataclass(frozen=True, slots=True)
class LagGate:
    """At most `max_records` behind, held for `hold_ms`. 0 means fully caught up."""

    max_records: int
    hold_ms: int


@dataclass(frozen=True, slots=True)
class ProofGate:
    """A proof of at least this level; `sample` is the fraction of records looked at (1.0: all)."""

    level: ProofLevel
    sample: float = 1.0


@dataclass(frozen=True, slots=True)
class ApprovalGate:
    """A person (or team) says yes."""

    by: str


@dataclass(frozen=True, slots=True)
class StragglersGate:
    """The source's log ends must stand still for `watch_ms` after the fence."""

    watch_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerLagGate:
    """The moved groups come within `max_records` of the target's end, within `within_ms`."""

    max_records: int
    within_ms: int


@dataclass(frozen=True, slots=True)
class HoldGate:
    """Nothing is done for so long."""

    for_ms: int


@dataclass(frozen=True, slots=True)
class HookGate:
    """The hook of this name says yes or no."""

    hook: str


WaveGate = LagGate | ProofGate | ApprovalGate | StragglersGate | ConsumerLagGate | HoldGate | HookGate
_GATES: dict[str, type[Any]] = {
    "lag": LagGate,
    "verify": ProofGate,
    "approval": ApprovalGate,
    "stragglers": StragglersGate,
    "consumer_lag": ConsumerLagGate,
    "hold": HoldGate,
    "check": HookGate,
}
_NAMES = {kind: name for name, kind in _GATES.items()}


@dataclass(frozen=True, slots=True)
class RollbackPolicy:
    """Possible until `until_ms` after the switch through the flow `reverse`; or `none_because` says why never."""

    until_ms: int | None = None
    reverse: str | None = None
    none_because: str | None = None


@dataclass(frozen=True, slots=True)
class WaveWindow:
    """`opens` is RFC 3339 with its zone."""

    opens: str
    length_ms: int


@dataclass(frozen=True, slots=True)
class WaveFence:
    """How producers are kept from the source. hook: for `external`. rate: bytes a second and broker, for `quota`."""

    kind: _FenceKind = "stop"
    hook: str | None = None
    rate: int = 1


@dataclass(frozen=True, slots=True)
class PlanHook:
    """Exactly one of airflow_task, http and python is set. secret: where the key of the signature stands."""

    airflow_task: str | None = None
    http: str | None = None
    python: str | None = None
    secret: SecretRef | None = None
    timeout_ms: int = 60_000
    on_failure: Literal["refuse", "continue"] = "refuse"


@dataclass(frozen=True, slots=True)
class WaveHooks:
    """Names of hooks by the point of a wave at which they are called."""

    before: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()
    switched: tuple[str, ...] = ()
    rolled_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wave:
    """topics are source names; consumers are group ids; producers are application names.

    With the strategy `consumers_last` it moves groups only: earlier waves have moved its topics and their producers."""

    name: str
    topics: tuple[str, ...]
    consumers: tuple[str, ...] = ()
    producers: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    strategy: WaveStrategy = "consumers_first"
    gates_before: tuple[WaveGate, ...] = ()
    gates_after: tuple[WaveGate, ...] = ()
    rollback: RollbackPolicy | None = None
    window: WaveWindow | None = None
    fence: WaveFence = field(default_factory=WaveFence)
    hooks: WaveHooks = field(default_factory=WaveHooks)

    @property
    def is_late(self) -> bool:
        """Whether it moves only groups, of topics whose producers have moved with earlier waves."""
        return self.strategy == "consumers_last"


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """What moving a group needs to know. uncommitted None: partitions without a commit are refused."""

    uncommitted: Literal["earliest", "latest"] | None = None
    state: Literal["refuse", "rebuild"] = "refuse"
    redelivery: Literal["refuse", "accept"] = "refuse"
    session_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Decommission:
    """What must be true before the source may be taken down; Watershed itself deletes nothing."""

    not_before_ms: int
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JournalKeys:
    """Where the key is with which entries of the journal are signed, and the keys before it, newest first."""

    key: SecretRef
    earlier_keys: tuple[SecretRef, ...] = ()

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> JournalKeys:
        """Reads the JSON form of the plan."""
        return cls(SecretRef(**value["key"]), tuple(SecretRef(**each) for each in value["earlier_keys"]))


@dataclass(frozen=True, slots=True)
class PlanMigration:
    """One flow's applications, wave after wave, in an order that `after` allows."""

    flow: str
    strategy: WaveStrategy
    waves: tuple[Wave, ...]
    applications: dict[str, PlanApplication]
    decommission: Decommission | None = None
    hooks: dict[str, PlanHook] = field(default_factory=dict)
    groups: dict[str, GroupPolicy] = field(default_factory=dict)
    journal: JournalKeys | None = None

    def wave(self, name: str) -> Wave:
        """Raises KeyError with the names that there are."""
        for wave in self.waves:
            if wave.name == name:
                return wave
        raise KeyError(f"no wave {name}; the migration has {', '.join(wave.name for wave in self.waves)}")

    def find_late_groups(self, wave: Wave) -> dict[str, str]:
        """Groups that stay at the source when this wave moves the producers of their topics: group → the wave that
        moves it later."""
        if wave.is_late:
            return {}
        late = [each for each in self.waves if each.is_late and set(each.topics) & set(wave.topics)]
        return {group: each.name for each in late for group in each.consumers}

    def to_json(self) -> dict[str, Any]:
        """The `migration` section of the plan."""
        value = asdict(self)
        for wave, source in zip(value["waves"], self.waves, strict=True):
            wave["gates_before"] = [encode_gate(gate) for gate in source.gates_before]
            wave["gates_after"] = [encode_gate(gate) for gate in source.gates_after]
        value["applications"] = {name: each.to_json() for name, each in self.applications.items()}
        if self.journal is None:
            del value["journal"]  # a file without a key keeps the hash that its unfinished runs know
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PlanMigration:
        """Reads the JSON form of the plan."""
        return cls(
            flow=value["flow"],
            strategy=value["strategy"],
            waves=tuple(map(_wave, value["waves"])),
            applications={name: PlanApplication.from_json(each) for name, each in value["applications"].items()},
            decommission=_maybe(Decommission, value["decommission"]),
            hooks={
                name: PlanHook(**(each | {"secret": SecretRef.from_json(each["secret"])}))
                for name, each in value["hooks"].items()
            },
            groups={name: GroupPolicy(**each) for name, each in value["groups"].items()},
            journal=_journal(value.get("journal")),
        )


def _journal(value: dict[str, Any] | None) -> JournalKeys | None:
    return None if value is None else JournalKeys.from_json(value)


def list_producer_waves(late: Wave, waves: Iterable[Wave]) -> tuple[Wave, ...]:
    """The waves that move the producers of a late wave's topics."""
    return tuple(each for each in waves if not each.is_late and set(each.topics) & set(late.topics))


def complete_late_waves(waves: tuple[Wave, ...]) -> tuple[Wave, ...]:
    """Late waves with what follows from their topics: they come after the waves that move the producers, and their way
    back is the one of these waves, where the file says none."""
    return tuple(_complete(wave, list_producer_waves(wave, waves)) if wave.is_late else wave for wave in waves)


def _complete(late: Wave, before: tuple[Wave, ...]) -> Wave:
    after = (*late.after, *(each.name for each in before if each.name not in late.after))
    declared = (each.rollback for each in before if each.rollback is not None and each.rollback.reverse is not None)
    return replace(late, after=after, rollback=late.rollback or next(declared, None))


def compute_wave_hash(wave: Wave) -> str:
    """Of what may not change once the wave has started: what moves and how. Gates, window and rollback may be tuned."""
    frozen = {
        "topics": sorted(wave.topics),
        "consumers": sorted(wave.consumers),
        "producers": sorted(wave.producers),
        "after": sorted(wave.after),
        "strategy": wave.strategy,
    }
    text = json.dumps(frozen, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def encode_gate(gate: WaveGate) -> dict[str, Any]:
    """`{"lag": {"max_records": 0, "hold_ms": 5000}}`"""
    return {_NAMES[type(gate)]: asdict(gate)}


def _decode_gate(value: dict[str, Any]) -> WaveGate:
    [(name, fields)] = value.items()
    gate: WaveGate = _GATES[name](**fields)
    return gate


def _wave(value: dict[str, Any]) -> Wave:
    fields: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in value.items()}
    fields["gates_before"] = tuple(map(_decode_gate, value["gates_before"]))
    fields["gates_after"] = tuple(map(_decode_gate, value["gates_after"]))
    fields["rollback"] = _maybe(RollbackPolicy, value["rollback"])
    fields["window"] = _maybe(WaveWindow, value["window"])
    fields["fence"] = _maybe(WaveFence, value["fence"])
    fields["hooks"] = _maybe(WaveHooks, value["hooks"])
    return Wave(**fields)


def _maybe(kind: type[Any], value: dict[str, Any] | None) -> Any:
    if value is None:
        return None
    return kind(**{key: tuple(each) if isinstance(each, list) else each for key, each in value.items()})
