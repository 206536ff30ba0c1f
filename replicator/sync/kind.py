"""What every kind of thing that travels beside records looks like to those who carry it over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from clusters.settings import ConnectionSettings
from clusters.sync_reports import SyncReport
from topology.drift import Difference
from topology.plan import PlanFlow
from topology.sync import Mode

METADATA_EVERY_MS: Final = 30_000  # how often configs, rights, quotas and users are compared again


@dataclass(frozen=True, slots=True)
class Sides:
    """The two clusters of a flow. flows: all that are known to run into the target, this one among them; what several
    of them bring must not be set to and fro."""

    source: ConnectionSettings
    target: ConnectionSettings
    flows: tuple[PlanFlow, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one difference: `error` says why it could not be carried over, None when it was."""

    difference: Difference
    error: str | None = None


class Kind(Protocol):
    """`name` is the key under `sync:`. Differences have `kind`, `name` and `field` as people read them, `live` and
    `wanted` as text; `applied` only where `carry` would do it."""

    @property
    def name(self) -> str: ...

    def mode(self, flow: PlanFlow) -> Mode: ...

    def every_ms(self, flow: PlanFlow) -> int:
        """How often it is compared again while it is `continuous`."""
        ...

    def compare(self, flow: PlanFlow, sides: Sides) -> list[Difference]:
        """What differs now; reads only. Raises ClusterError."""
        ...

    def carry(self, flow: PlanFlow, sides: Sides, differences: Sequence[Difference]) -> list[Done]:
        """Make the target so, for those with `applied`. One that is refused does not stop the others.
        Raises ClusterError when the target cannot be reached at all."""
        ...


@runtime_checkable
class Keeping(Protocol):
    """A kind that compares and carries over in one go while it is `continuous`, and reports more than differences."""

    def keep(self, flow: PlanFlow, sides: Sides) -> list[SyncReport]:
        """One round: every thing that it is about, with what became of it. Raises ClusterError."""
        ...
