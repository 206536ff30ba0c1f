"""What a worker has copied of a flow since it began: counts that only grow, for metrics of whoever reads its
heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watershed.clusters.field_types import require_types

Doublings = Mapping[int, int]  # doubling (`clusters.latency_buckets.fold_latency_buckets`) → records

_COUNTS = ("through", "ages")


@dataclass(frozen=True, slots=True)
class FlowTotals:
    """records: that the target has acknowledged, or whose transaction was committed. through_s: the latencies of all of
    them added up, from their arrival at the worker; through: the same by doubling. age_s, ages: from their append at
    the source, of those with a timestamp."""

    records: int = 0
    through_s: float = 0.0
    through: Doublings = field(default_factory=dict)
    age_s: float = 0.0
    ages: Doublings = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A field of a heartbeat."""
        value = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return value | {name: {str(each): count for each, count in value[name].items()} for name in _COUNTS}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FlowTotals:
        """The inverse; keys that are not known are left out. Raises ValueError, TypeError or AttributeError for what is
        none."""
        counts = {name: {int(each): count for each, count in value.get(name, {}).items()} for name in _COUNTS}
        known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        return require_types(cls(**known | counts))

    def subtract(self, before: FlowTotals) -> FlowTotals:
        """What was added since. Counts come from a topic: what would have shrunk has grown by nothing."""
        return FlowTotals(
            max(self.records - before.records, 0),
            max(self.through_s - before.through_s, 0.0),
            _subtract(self.through, before.through),
            max(self.age_s - before.age_s, 0.0),
            _subtract(self.ages, before.ages),
        )

    def add(self, more: FlowTotals) -> FlowTotals:
        """Both together."""
        return FlowTotals(
            self.records + more.records,
            self.through_s + more.through_s,
            _add(self.through, more.through),
            self.age_s + more.age_s,
            _add(self.ages, more.ages),
        )


def _subtract(counts: Doublings, before: Doublings) -> dict[int, int]:
    return {each: count - before.get(each, 0) for each, count in counts.items() if count > before.get(each, 0)}


def _add(counts: Doublings, more: Doublings) -> dict[int, int]:
    return {each: counts.get(each, 0) + more.get(each, 0) for each in {*counts, *more}}
