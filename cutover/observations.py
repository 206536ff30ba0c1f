"""What a migration is sent back. `at_ms` is a monotonic clock of the driver; only differences mean anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.offset_translation import CopiedPartition

if TYPE_CHECKING:  # it imports the Kafka client, which no DAG may load
    from watershed.clusters.streams_state_range import StateRange


@dataclass(frozen=True, slots=True)
class Observation:
    """What an action was answered with. at_ms: of the driver's monotonic clock."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class ActionDone(Observation):
    """Nothing to tell but the time."""


@dataclass(frozen=True, slots=True)
class ActionFailed(Observation):
    """The question got no answer, or the deed was refused. transient: worth asking again."""

    error: str
    transient: bool = True


@dataclass(frozen=True, slots=True)
class RecordedStep(Observation):
    """Answer to BeginStep. `outcome` None: not done yet; `refused`: it was, and the gate had said no. ago_ms: so long
    ago, by the wall clock of whoever drives, the run first began the step; 0 for one that is new."""

    outcome: dict[str, Any] | None = None
    refused: str | None = None
    ago_ms: int = 0


@dataclass(frozen=True, slots=True)
class RecalledDeeds(Observation):
    """What each deed was to do, oldest first: its fields as JSON. failed: those of them that were answered with a
    failure, and did not succeed afterwards."""

    deeds: tuple[dict[str, Any], ...]
    failed: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ProducerSwitch:
    """Where a run moved the producers of a wave. at_ms: since 1970. barrier: the source's log ends up to which the
    flow there copied; cut: the target's log ends, where applications' own records begin."""

    wave: str
    run: str
    at_ms: int
    barrier: Mapping[TopicPartition, int]
    cut: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class RecalledSwitches(Observation):
    """Of each wave whose producers a migration has moved to the target, and that was not taken back since."""

    switches: tuple[ProducerSwitch, ...]


@dataclass(frozen=True, slots=True)
class ObservedCluster(Observation):
    """`pinned` is the cluster id that the topology demands, if any."""

    alias: str
    cluster_id: str
    pinned: str | None
    brokers: int


@dataclass(frozen=True, slots=True)
class ObservedTopics(Observation):
    """Topic name → partition count."""

    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ObservedFlow(Observation):
    """state: the desired one, or `missing`. halted_topics: topic → why its partitions stopped. retired: source topics
    that it selects and copies no more, because their applications have moved. paused_topics: topic → which of its
    partitions a person paused, or which budget stopped the flow, and the command that lets them go on. stands_still:
    the latter also where no topic is told, because workers have not reported of those that they got again."""

    state: str
    same_plan: bool
    halted_topics: Mapping[str, str] = field(default_factory=dict)
    retired: frozenset[str] = frozenset()
    paused_topics: Mapping[str, str] = field(default_factory=dict)
    stands_still: str = ""


@dataclass(frozen=True, slots=True)
class RejoinResult(Observation):
    """ordered: source topics that the flow's workers will go on with. left: those that they cannot, and why."""

    ordered: tuple[str, ...]
    left: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObservedTime(Observation):
    """wall_ms: milliseconds since 1970."""

    wall_ms: int


@dataclass(frozen=True, slots=True)
class ObservedGroup(Observation):
    """offsets: committed ones; of a share group, its start offsets.
    kept: partitions whose offset the flow synced there (`sync.groups`) and nobody moved since.
    kind: `classic`, `consumer` (KIP-848), `share` (KIP-932), `streams` (KIP-1071, or a Streams application in a classic
    group), `unknown` for a group that does not exist.
    static: `group.instance.id`s of its members (KIP-345). who: its members, for people.
    reads: topics that its members subscribe to. texts: the metadata that an application commits with an offset.
    unstable: partitions with an offset in an open transaction.
    done: of a share group, the offset below which it is done with every record, where that is known.
    again: of its other partitions, the most offsets from the start on that it is done with and reads again.
    internal: topics that a Streams application keeps for itself.
    """

    group: str
    state: str
    members: int
    offsets: Mapping[TopicPartition, int]
    kept: frozenset[TopicPartition] = frozenset()
    kind: str = "classic"
    static: tuple[str, ...] = ()
    who: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    texts: Mapping[TopicPartition, str] = field(default_factory=dict)
    unstable: frozenset[TopicPartition] = frozenset()
    done: Mapping[TopicPartition, int] = field(default_factory=dict)
    again: Mapping[TopicPartition, int] = field(default_factory=dict)
    internal: tuple[str, ...] = ()

    def list_committed(self) -> set[TopicPartition]:
        """Partitions with a position, also those whose position is in an open transaction and not told."""
        return {*self.offsets, *self.unstable}

    def others(self) -> dict[TopicPartition, int]:
        """What somebody else committed."""
        return {place: at for place, at in self.offsets.items() if place not in self.kept}


@dataclass(frozen=True, slots=True)
class ObservedGroupConfigs(Observation):
    """What that side's brokers hold groups of this name to, by key, whether it was set on the group or is their own
    default. text: why they do not say."""

    values: Mapping[str, str]
    text: str = ""


@dataclass(frozen=True, slots=True)
class ObservedReaders(Observation):
    """Group, as that side calls it → the topics in which it holds positions. Only groups that are shown to us."""

    groups: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ObservedLogs(Observation):
    """starts ≤ stable ≤ ends: log start, last stable offset (what read_committed sees), log end."""

    starts: Mapping[TopicPartition, int]
    stable: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ObservedCopies(Observation):
    """By source partition; a partition that the ledger does not know is absent."""

    copies: Mapping[TopicPartition, CopiedPartition]


@dataclass(frozen=True, slots=True)
class ObservedRecords(Observation):
    """A fingerprint of the first committed record at or after the offset; None at the log's end."""

    records: Mapping[TopicPartition, str | None]


@dataclass(frozen=True, slots=True)
class ObservedApplication(Observation):
    """state: `running`, `stopped`, `starting`, `stopping`, or `unknown` (only the clusters can tell). cluster: alias.

    by: the way that is declared for it (`endpoint`, `person`, `command`, `airflow`, `kubernetes`), or `nobody`: it
    could be neither stopped nor started. text: what is missing, or who confirmed. former: what an order to start needs
    to know of the time before (`StartApplication.former`).
    """

    name: str
    state: str
    cluster: str | None = None
    by: str = "endpoint"
    text: str = ""
    former: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProofOutcome(Observation):
    """verdict: proven | different | incomplete | error. counts: the integers of summary.json; summary: its path."""

    verdict: str
    unproven: int
    counts: Mapping[str, int] = field(default_factory=dict)
    summary: str | None = None
    proof_root: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer(Observation):
    """by: who answered. note: what they wrote beside it, for the evidence."""

    granted: bool
    by: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class SealedEvidence(Observation):
    """Where the evidence lies, and the journal's root hash at that moment."""

    path: str
    root: str


@dataclass(frozen=True, slots=True)
class ObservedFence(Observation):
    """up: whether it keeps the applications out now. snapshot: what stood there, JSON; text is for people.
    carriers: flows of other topology files that would carry such a fence to the other cluster, for people."""

    up: bool
    snapshot: dict[str, Any]
    text: str = ""
    carriers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedWriter:
    """A producer that wrote to a partition. last_ms: its last record's timestamp, ms since 1970. sequence: its last
    sequence number. first, last, records: what it wrote since the offset that was asked for (-1, -1, 0: not known).

    who: its transactional id, where a coordinator knows one. flow: the flow of Watershed whose producer it is.
    producer_id -1: without idempotence. marker: what was written is a transaction's end and no record.
    """

    place: TopicPartition
    producer_id: int
    epoch: int
    last_ms: int
    who: str = ""
    sequence: int = -1
    first: int = -1
    last: int = -1
    records: int = 0
    flow: str = ""
    marker: bool = False


@dataclass(frozen=True, slots=True)
class ObservedWriters(Observation):
    """Newest first within a partition. Asked without `since`, producers without idempotence are not there: brokers
    keep no state of them. upto: how far each log was read. allowed: principals that ACLs let write to the topics;
    empty without an authorizer, or where it may not be read. unnamed: why no writer has a transactional id, empty where
    brokers tell them."""

    writers: tuple[ObservedWriter, ...]
    upto: Mapping[TopicPartition, int] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    unnamed: str = ""


@dataclass(frozen=True, slots=True)
class HookProblems(Observation):
    """What would keep hooks from being called, each with its remedy."""

    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterProbe(Observation):
    """text: by which broker, or what each of them did instead."""

    answers: bool
    text: str


@dataclass(frozen=True, slots=True)
class LastSeenPartition:
    """What a worker last saw of a source partition. end: the last stable offset; open_records: offsets behind it, in
    transactions that were open. seen_ms: when the source told that; complete_ms: everything written until then had been
    copied (both ms since 1970, the worker's clock)."""

    end: int
    open_records: int
    seen_ms: int
    complete_ms: int


@dataclass(frozen=True, slots=True)
class LastSeenSource(Observation):
    """By source partition; one of which nothing was ever reported is absent. wall_ms: now, ms since 1970. carried:
    group → when its positions were last compared with the source (ms since 1970), and how that ended. states: Streams
    application → the state that came with its positions."""

    wall_ms: int
    sights: Mapping[TopicPartition, LastSeenPartition]
    carried: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    states: Mapping[str, StateRange] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CutOffResult(Observation):
    """able: whether this process may do it; text: how, or what is missing. epochs: target partition → the producer
    epoch below which nothing of the flow is taken any more; ends: where the fence stands in its log, behind everything
    that was copied. Both are empty where transactional ids are fenced. ids: source topic → its id when it was copied.
    """

    able: bool
    text: str
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObservedRights(Observation):
    """asked: whether the flow holds any back. missing, there: which of those in question do not stand at the cluster,
    and which do; the fields of `InventoryAcl`, JSON. refused: right, for people → why it could be neither given nor
    taken. unable: what keeps us from giving those that are missing, "" where nothing does. known_ms: as of when the
    source had them (ms since 1970), None: nothing is known of them."""

    asked: bool
    missing: tuple[dict[str, Any], ...] = ()
    there: tuple[dict[str, Any], ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    unable: str = ""
    known_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DivergentRange:
    """A stretch of one partition in which every record is the applications' own: offsets first <= offset <= last,
    `records` of them; times in ms since 1970."""

    place: TopicPartition
    first: int
    last: int
    records: int
    oldest_ms: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class ObservedDivergence(Observation):
    """stretches: in order. ends: where each log ends, and starts, where it begins; ids: topic → its id."""

    stretches: tuple[DivergentRange, ...]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HookAnswer(Observation):
    """What a hook answered; `on_failure: continue` is already taken into account by whoever asks."""

    agreed: bool
    text: str
    seen: dict[str, Any] = field(default_factory=dict)
