"""The guarantee of a flow: what both of its clusters can do decides it, and nothing else.

| guarantee | needs at the target | what may still happen |
|---|---|---|
| `exactly_once: sequence` | idempotent producers of Kafka 2.4 or newer, Produce 3 | nothing |
| `exactly_once: transactions` | the same, and AddPartitionsToTxn, EndTxn | others see aborts unless `read_committed` |
| `at_least_once, proven` | Produce 3, Fetch 4 | records repeat after a crash; the proof names each |

A flow with `compression: zstd` needs Produce 7 at its target: older brokers refuse the codec (KIP-110). Without that it
has no guarantee at all, since every batch would be refused.

A source needs record batches (Fetch 4) for any of them. No flow runs below what its file asks for, so only
`delivery.semantics: at_least_once` allows the last one, and what keeps a flow from it stands in
`topology.repeat_obstacles`.

A target that does not tell what it remembers of a producer (DescribeProducers, 2.8), or gives topics no ids (2.8), has
the same guarantee. A flow pays for it with time, and is told so in `notes` (decision 0085).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from watershed.topology.cluster_capabilities import (
    DESCRIBE_PRODUCERS,
    IDEMPOTENCE,
    LOG_ENDS,
    SEQUENCE_CHECK,
    TRANSACTIONS,
    ClusterCapabilities,
    RequestVersions,
    TriedCapability,
)
from watershed.topology.egress_compression import CompressionCodec

ClusterEnd = Literal["source", "target"]
Delivery = Literal["sequence", "transactions"]
Guarantee = Literal["exactly_once: sequence", "exactly_once: transactions", "at_least_once, proven"]
LOG_SETTLE_S: Final = 35.0  # a log that stood still so long: above the 30 s that a Produce may be under way
AT_LEAST_ONCE: Final[Guarantee] = "at_least_once, proven"
_EXACTLY_ONCE: Final[dict[Delivery, Guarantee]] = {
    "sequence": "exactly_once: sequence",
    "transactions": "exactly_once: transactions",
}


@dataclass(frozen=True, slots=True)
class RequestNeed:
    """A request that a copy sends: the versions that will do, and the first Kafka release that has one of them.

    why: what the request is for, in words. otherwise: what to do in place of an upgrade. The versions are those that
    `clusters.wire.versions` encodes and that say what a copy has to know; a test holds both together.
    """

    request: str
    lowest: int
    highest: int
    release: str
    why: str
    otherwise: str = "take the flow out; a wave without a way back says `rollback: {none: why}`"  # at a target


_READ: Final = (
    RequestNeed("metadata", 4, 13, "0.11", "asking without creating topics"),
    RequestNeed("fetch", 4, 13, "0.11", "record batches"),
    RequestNeed("list_offsets", 2, 7, "0.11", "log ends"),
)
_PRODUCE: Final = RequestNeed("produce", 3, 13, "0.11", "record batches")
_SEQUENCE: Final = (
    *_READ,
    _PRODUCE,
    # 0 and 1 would do as well. 2 came with the release whose brokers keep a producer's numbers when retention deletes
    # its records (KAFKA-7190); older ones then answer UNKNOWN_PRODUCER_ID to every batch.
    RequestNeed("init_producer_id", 2, 5, "2.4", "idempotent producers"),
)
_REPEATS: Final = (*_READ, _PRODUCE)  # the end of the target's log is read again after a crash
_TRANSACTIONS: Final = (
    *_SEQUENCE,
    RequestNeed("find_coordinator", 1, 6, "0.11", "transaction coordinators"),
    RequestNeed("add_partitions_to_txn", 0, 3, "0.11", "transactions"),
    RequestNeed("end_txn", 0, 5, "0.11", "transactions"),
)
_COMPRESSED: Final[dict[CompressionCodec, RequestNeed]] = {
    "zstd": RequestNeed("produce", 7, 13, "2.1", "zstd", "say another codec, as in `compression: lz4`")
}
# What a probe may disprove: name → what to say of it. At both ends, for any guarantee:
_TRIED_AT_BOTH: Final = ((LOG_ENDS, "the right end of a log"),)
# At the target:
_TRIED_FOR: Final[dict[Delivery, tuple[tuple[str, str], ...]]] = {
    "sequence": ((IDEMPOTENCE, "idempotent producers"), (SEQUENCE_CHECK, "a check of sequence numbers")),
    "transactions": ((IDEMPOTENCE, "idempotent producers"), (TRANSACTIONS, "transactions")),
}


def list_request_needs(
    end: ClusterEnd, delivery: Delivery = "sequence", *, allows_repeats: bool = False
) -> tuple[RequestNeed, ...]:
    """What a copy asks of each broker at this end of a flow. allows_repeats: of one with `at_least_once, proven`."""
    if end == "source":
        return _READ
    if allows_repeats:
        return _REPEATS
    return _TRANSACTIONS if delivery == "transactions" else _SEQUENCE


@dataclass(frozen=True, slots=True)
class MissingCapability:
    """What a cluster lacks. `problem` names cluster, request and versions; `remedy` says what to do."""

    cluster: str
    end: ClusterEnd
    what: str
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class GuaranteeDecision:
    """guarantee: the best that both clusters can give this flow; None where not even `at_least_once, proven`.
    missing: what keeps it from `exactly_once` by the flow's delivery; empty where it has that. allows_repeats: the
    file asks for no more than `at_least_once`. obstacle: what in the file keeps the flow from that. notes: what
    `exactly_once` costs at this target, and what it does not find there; for people."""

    delivery: Delivery
    guarantee: Guarantee | None
    missing: tuple[MissingCapability, ...] = ()
    allows_repeats: bool = False
    obstacle: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_executed(self) -> bool:
        """Whether workers copy this flow with the guarantee."""
        if self.guarantee == AT_LEAST_ONCE:
            return self.delivery == "sequence" and self.allows_repeats and not self.obstacle
        return self.guarantee == _EXACTLY_ONCE[self.delivery]


def name_guarantee(delivery: Delivery) -> Guarantee:
    """The guarantee of a flow that copies this way, on clusters that can do what it needs."""
    return _EXACTLY_ONCE[delivery]


def decide_guarantee(
    delivery: Delivery,
    source: ClusterCapabilities | None,
    target: ClusterCapabilities | None,
    *,
    allows_repeats: bool = False,
    obstacle: str = "",
    codec: CompressionCodec | None = None,
) -> GuaranteeDecision:
    """Decides by what is known; of a cluster that is None nothing is known, and nothing is held against it.

    allows_repeats, obstacle: see `GuaranteeDecision`; of a flow, `topology.repeat_obstacles` knows them. codec: that
    workers compress with.
    """
    at_source = tuple(_list_missing_at_source(source)) if source is not None else ()
    packing = (_COMPRESSED[codec],) if codec in _COMPRESSED else ()
    at_target = tuple(_list_missing_at_target(target, delivery, packing)) if target is not None else ()
    missing = (*at_source, *at_target)
    if not missing:
        notes = tuple(_list_notes(target, delivery)) if target is not None else ()
        return GuaranteeDecision(delivery, _EXACTLY_ONCE[delivery], notes=notes)
    is_usable = target is None or not (
        list(_find_missing(target, "target", (*_REPEATS, *packing)))
        or list(_list_disproved(target, "target", _TRIED_AT_BOTH))
    )
    lower = AT_LEAST_ONCE if is_usable and not at_source else None
    return GuaranteeDecision(delivery, lower, missing, allows_repeats, obstacle)


def explain_refusal(flow_id: str, asked: str, decision: GuaranteeDecision, *, has_remedy: bool = True) -> str:
    """Why this flow is refused: what it asks for, what is missing where, what to do. "" for a flow that can run.

    asked: `delivery.semantics` as the file has it; "" where only the plan is known. has_remedy: False leaves out
    what to do, for whoever tells it beside the text.
    """
    if decision.is_executed:
        return ""
    [first, *others] = decision.missing
    wanted = f" (delivery.semantics: {asked})" if asked else ""
    more = f" ({len(others)} more: {'; '.join(each.what for each in others)})" if others else ""
    instead = explain_lower_guarantee(decision)
    told = f" {instead[0].upper()}{instead[1:]}." if instead else ""
    remedy, promised = f" {first.remedy}." if has_remedy else "", _EXACTLY_ONCE[decision.delivery]
    return f"flow {flow_id} cannot have `{promised}`{wanted}: {first.problem}{more}.{remedy}{told}"


def explain_lower_guarantee(decision: GuaranteeDecision) -> str:
    """Of a flow that is refused: whether it could have `at_least_once, proven`, and what to do for it; "" if not."""
    if decision.guarantee != AT_LEAST_ONCE:
        return ""
    if decision.obstacle:
        allowed = "the file allows" if decision.allows_repeats else "`delivery.semantics: at_least_once` would allow"
        return f"{allowed} `{AT_LEAST_ONCE}`, but {decision.obstacle}"
    return (
        f"the clusters could give `{AT_LEAST_ONCE}`: records repeat after a crash, and a proof names each. "
        "`delivery.semantics: at_least_once` allows it"
    )


def _list_missing_at_source(source: ClusterCapabilities) -> Iterator[MissingCapability]:
    yield from _find_missing(source, "source", _READ)
    yield from _list_disproved(source, "source", _TRIED_AT_BOTH)


def _list_missing_at_target(
    target: ClusterCapabilities, delivery: Delivery, packing: tuple[RequestNeed, ...]
) -> Iterator[MissingCapability]:
    yield from _find_missing(target, "target", (*packing, *list_request_needs("target", delivery)))
    yield from _list_disproved(target, "target", (*_TRIED_AT_BOTH, *_TRIED_FOR[delivery]))


def _list_notes(target: ClusterCapabilities, delivery: Delivery) -> Iterator[str]:
    if delivery == "sequence" and target.requests and DESCRIBE_PRODUCERS not in target.requests:
        yield (
            f"brokers of {target.alias} do not take describe_producers (Kafka 2.8), so each takeover of a partition, "
            f"after a crash or a lost connection, waits {LOG_SETTLE_S:.0f} s for a target log that stands still"
        )
    if target.topic_ids is False:
        yield (
            f"{target.alias} gives topics no ids (Kafka 2.8), so a target topic that is made anew is told by its log "
            "alone (docs/guarantees.md)"
        )


def _list_disproved(
    cluster: ClusterCapabilities, end: ClusterEnd, names: tuple[tuple[str, str], ...]
) -> Iterator[MissingCapability]:
    for name, what in names:
        if cluster.has_failed(name):
            yield _build_disproved(cluster, end, what, cluster.tried[name])


def _build_disproved(
    cluster: ClusterCapabilities, end: ClusterEnd, what: str, tried: TriedCapability
) -> MissingCapability:
    return MissingCapability(
        cluster.alias,
        end,
        what,
        f"`topology probe` saw that cluster {cluster.alias} ({cluster.releases}) does not have {what}: {tried.told}",
        f"Ask the vendor of {cluster.alias} for a setting or a tier that has it, then probe again",
    )


def _find_missing(
    cluster: ClusterCapabilities, end: ClusterEnd, needs: tuple[RequestNeed, ...]
) -> Iterator[MissingCapability]:
    for need in needs:
        found = cluster.requests.get(need.request)
        if found is not None and found.highest >= need.lowest and found.lowest <= need.highest:
            continue
        if found is not None and found.lowest > need.highest:
            remedy = "Update Watershed: this version is too old for that cluster"
        else:
            remedy = (
                f"Upgrade {cluster.alias} to Kafka {need.release} or newer; where a vendor runs it, to a tier or a "
                "setting that has the request"
            )
            if end == "target":
                remedy += f". Or {need.otherwise}"
        takes = "do not take it" if found is None else f"take {found}"
        wanted = RequestVersions(need.lowest, need.highest)
        yield MissingCapability(
            cluster.alias,
            end,
            f"{need.request} at {cluster.alias}",
            f"the {end} needs {need.request} in {wanted} ({need.why}), and brokers of cluster {cluster.alias} "
            f"({cluster.releases}) {takes}; Kafka {need.release} and newer have it",
            remedy,
        )
