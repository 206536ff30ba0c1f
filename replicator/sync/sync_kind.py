"""What every kind of thing that travels beside records looks like to those who carry it over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from watershed.clusters.errors import RequestUnsupported
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.sync_reports import SyncReport
from watershed.topology.drift import FieldDrift
from watershed.topology.plan import PlanFlow
from watershed.topology.sync_settings import SyncMode

METADATA_INTERVAL_MS: Final = 30_000  # how often configs, rights, quotas and users are compared again


@dataclass(frozen=True, slots=True)
class SyncClusters:
    """The two clusters of a flow. flows: every running flow with this target, including this one. A value that several
    flows manage is not changed back and forth."""

    source: ConnectionSettings
    target: ConnectionSettings
    flows: tuple[PlanFlow, ...] = ()


@dataclass(frozen=True, slots=True)
class DifferenceOutcome:
    """What became of one difference: `error` says why it could not be carried over, None when it was."""

    difference: FieldDrift
    error: str | None = None


def build_unsupported(flow: PlanFlow, kind: str, error: RequestUnsupported, by_hand: str) -> FieldDrift:
    """What stands for all differences of a kind that brokers are too old to tell. by_hand: how to carry it over."""
    why = f"not compared, nothing of it is carried over: {error}. By hand: {by_hand}"
    return FieldDrift(flow.target, kind, f"of flow {flow.id}", "", None, None, "unsupported", False, why)


class SyncKind(Protocol):
    """`name` is the key under `sync:`. Differences have `kind`, `name` and `field` as people read them, `live` and
    `wanted` as text; `applied` only where `carry` would do it."""

    @property
    def name(self) -> str:
        """Word for this kind in reports, metrics and options."""

    def mode(self, flow: PlanFlow) -> SyncMode:
        """When this kind is synced for the flow: never, once or continuous."""

    def every_ms(self, flow: PlanFlow) -> int:
        """How often it is compared again while it is `continuous`."""
        ...

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        """What differs now; reads only. Raises ClusterError."""
        ...

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        """Make the target so, for those with `applied`. One that is refused does not stop the others.
        Raises ClusterError when the target cannot be reached at all."""
        ...


@runtime_checkable
class ReportingSyncKind(Protocol):
    """A kind that compares and carries over in one go while it is `continuous`, and reports more than differences."""

    @property
    def name(self) -> str:
        """As `SyncKind.name`."""

    def mode(self, flow: PlanFlow) -> SyncMode:
        """As `SyncKind.mode`."""

    def every_ms(self, flow: PlanFlow) -> int:
        """As `SyncKind.every_ms`."""
        ...

    def keep(self, flow: PlanFlow, sides: SyncClusters) -> list[SyncReport]:
        """One round: every thing that it is about, with what became of it. Raises ClusterError."""
        ...


@runtime_checkable
class StoppedFlowSyncKind(Protocol):
    """A kind that leaves at the target what must be gone when its flow is stopped, also where its maker died."""

    def keep_stopped(self, flow: PlanFlow, target: ConnectionSettings) -> list[SyncReport]:
        """One round for a stopped flow. The source may be gone, and its secrets with it. Raises ClusterError."""
        ...


@runtime_checkable
class RememberingSyncKind(Protocol):
    """A kind that remembers what it wrote, so that it does not write it again."""

    def forget(self) -> None:
        """Another worker may have written since: from now on nothing is known to be written."""
