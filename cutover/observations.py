"""What a migration is sent back. `at_ms` is a monotonic clock of the driver; only differences mean anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusters.names import TopicPartition
from cutover.offsets import CopiedPartition


@dataclass(frozen=True, slots=True)
class Observation:
    at_ms: int


@dataclass(frozen=True, slots=True)
class Noted(Observation):
    """Nothing to tell but the time."""


@dataclass(frozen=True, slots=True)
class Failed(Observation):
    """The question got no answer, or the deed was refused. transient: worth asking again."""

    error: str
    transient: bool = True


@dataclass(frozen=True, slots=True)
class Recorded(Observation):
    """Answer to Begin. `outcome` None: not done yet; `refused`: it was, and the gate had said no."""

    outcome: dict[str, Any] | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Recalled(Observation):
    """What each deed was to do, oldest first: its fields as JSON."""

    deeds: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ClusterSeen(Observation):
    """`pinned` is the cluster id that the topology demands, if any."""

    alias: str
    cluster_id: str
    pinned: str | None
    brokers: int


@dataclass(frozen=True, slots=True)
class TopicsSeen(Observation):
    """Topic name → partition count."""

    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FlowSeen(Observation):
    """state: the desired one, or `missing`. loud: topic → what its partitions complain about."""

    state: str
    same_plan: bool
    loud: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSeen(Observation):
    group: str
    state: str
    members: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LogsSeen(Observation):
    """starts ≤ stable ≤ ends: log start, last stable offset (what read_committed sees), log end."""

    starts: Mapping[TopicPartition, int]
    stable: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CopiesSeen(Observation):
    """By source partition; a partition that the ledger does not know is absent."""

    copies: Mapping[TopicPartition, CopiedPartition]


@dataclass(frozen=True, slots=True)
class RecordsSeen(Observation):
    """A fingerprint of the first committed record at or after the offset; None at the log's end."""

    records: Mapping[TopicPartition, str | None]


@dataclass(frozen=True, slots=True)
class ApplicationSeen(Observation):
    """state: `running` | `stopped` | `unknown` (no control endpoint). cluster: alias.

    by: `endpoint`, `person` (who answers for it), or `nobody`: it could be neither stopped nor started.
    """

    name: str
    state: str
    cluster: str | None = None
    by: str = "endpoint"


@dataclass(frozen=True, slots=True)
class ProofSeen(Observation):
    """verdict: proven | different | incomplete | error. counts: the integers of summary.json; summary: its path."""

    verdict: str
    unproven: int
    counts: Mapping[str, int] = field(default_factory=dict)
    summary: str | None = None
    proof_root: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalSeen(Observation):
    granted: bool
    by: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Sealed(Observation):
    """Where the evidence lies, and the journal's root hash at that moment."""

    path: str
    root: str
