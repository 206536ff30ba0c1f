"""The file as read: values that keep where they stand, and the topology made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from watershed.topology.external_flows import ExternalFlow
from watershed.topology.finding import FileSpan
from watershed.topology.migration_waves import PlanMigration
from watershed.topology.plan import PlanCluster, PlanFlow


@dataclass(frozen=True, slots=True)
class CheckedValue:
    """A checked value. `data` is a scalar already converted (ms, bytes, Selector, SecretRef…); a mapping has `fields`,
    a list `items`. `key` is the span of its key, `span` its own."""

    span: FileSpan
    data: Any = None
    fields: Mapping[str, CheckedValue] = field(default_factory=lambda: MappingProxyType({}))
    items: tuple[CheckedValue, ...] = ()
    key: FileSpan | None = None

    def at(self, *path: str) -> CheckedValue | None:
        """The value at a path of keys, or None."""
        here = self
        for name in path:
            below = here.fields.get(name)
            if below is None:
                return None
            here = below
        return here

    def get(self, *path: str, default: Any = None) -> Any:
        """Its data, or `default` when it is not declared."""
        found = self.at(*path)
        return default if found is None else found.data

    def list(self, *path: str) -> tuple[CheckedValue, ...]:
        """The items at a path of keys; empty if nothing is declared there."""
        found = self.at(*path)
        return found.items if found is not None else ()

    def texts(self, *path: str) -> tuple[Any, ...]:
        """The data of a list of scalars."""
        return tuple(item.data for item in self.list(*path))

    def where(self, *path: str) -> FileSpan:
        """The span of the value at the path, or of the nearest one around it."""
        here = self
        for name in path:
            following = here.fields.get(name)
            if following is None:
                break
            here = following
        return here.span

    def walk(self, path: str = "") -> Iterator[tuple[str, CheckedValue]]:
        """Every value below with its dotted path."""
        for name, value in self.fields.items():
            below = f"{path}.{name}" if path else name
            yield below, value
            yield from value.walk(below)
        for index, value in enumerate(self.items):
            yield f"{path}[{index}]", value
            yield from value.walk(f"{path}[{index}]")


def build_mapping(span: FileSpan, fields: Mapping[str, CheckedValue], key: FileSpan | None = None) -> CheckedValue:
    """A mapping value. key: where the key of the mapping itself stands."""
    return CheckedValue(span, fields=MappingProxyType(dict(fields)), key=key)


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """A flow after expansion; each is itself, whatever it says. `settings` is the merged tree; each value's span is its
    origin. `declared` is where the flow is said (its line in `flows:`, or the pattern's), `path` like `flows[2]`.
    external: what another tool copies; `plan` then holds its ends, topics and names only."""

    plan: PlanFlow
    settings: CheckedValue
    declared: FileSpan
    path: str
    external: ExternalFlow | None = None

    @property
    def id(self) -> str:
        """As in the plan: `source-to-target`, with `-suffix` if there is one."""
        return self.plan.id

    @property
    def source(self) -> str:
        """Alias of the cluster that the flow reads from."""
        return self.plan.source

    @property
    def target(self) -> str:
        """Alias of the cluster that the flow writes to."""
        return self.plan.target

    @property
    def merge_allowed(self) -> bool:
        """True if the file says that several flows may write the same target topic. Another tool asks nobody: there
        our flow has to say it."""
        return self.plan.merge or self.external is not None

    @property
    def duplicates_allowed(self) -> bool:
        """True if the file accepts that a record arrives on several paths."""
        return self.plan.merge and self.settings.get("merge", "duplicates") == "allowed"

    def list_written_clusters(self) -> frozenset[str]:
        """The clusters that a guard at the target knows of a record which this flow wrote without a guard.

        Of another tool's records it knows the source only where the file says both how they are told apart and the
        source's cluster id: every flow behind it compares ids.
        """
        if self.external is None or (self.external.is_recognizable and self.external.source_id is not None):
            return frozenset({self.source, self.target})
        return frozenset({self.target})

    def is_known_return(self, following: Flow) -> bool:
        """Whether the guard of `following`, which reads where this flow writes, knows that this flow's records come
        from its target."""
        known = self.external is not None and self.external.is_recognizable
        return known and following.plan.guard == "producer_id" and following.target == self.source

    @property
    def is_told_apart(self) -> bool:
        """Whether what it writes is told apart from what applications write at its target."""
        return self.external is None or self.external.is_recognizable


@dataclass(frozen=True, slots=True)
class Topology:
    """`root` is the checked file. Flows are sorted by id; of two with one id only the first is here. external_flows:
    what other tools copy, sorted by id."""

    file: str
    name: str
    root: CheckedValue
    clusters: Mapping[str, PlanCluster]
    flows: tuple[Flow, ...]
    migration: PlanMigration | None
    external_flows: tuple[Flow, ...] = ()

    @property
    def all_flows(self) -> tuple[Flow, ...]:
        """Ours, then those of other tools."""
        return (*self.flows, *self.external_flows)

    def flow(self, flow_id: str) -> Flow | None:
        """The flow with this id, or None."""
        return next((flow for flow in self.flows if flow.id == flow_id), None)
