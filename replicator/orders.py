"""Orders: what a person decided about a loud partition, and whether it still fits what is there.

An order names what it answers: the loud state, the ledger's newest generation, and either the very source offsets that
may be given up or the empty topic that is to be filled. A partition that has moved on since refuses it, so an order is
obeyed once or not at all (decision 0021). Obeying one is a new *content generation* (research page on sequence numbers,
§6 point 5): the producer epoch grows by one and sequence numbers begin again at the target's log end, so a worker
that froze before the order finds its batches fenced.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any, Literal

from clusters.control import FLOWS, JOURNAL, ControlWriter, encode
from clusters.errors import ProtocolError
from clusters.flows import ORDER_PREFIX
from replicator.fencing import landed, next_epoch
from replicator.partition import PIPELINE, Identity, PartitionKey
from replicator.resume import Remembered, Resume, Seen
from replicator.states import LookAgain, Loud, Span

Kind = Literal["accept-gap", "reseed"]
SCHEMA = 1
BY_POLICY = "on_gap: continue"  # who decided, where the flow's own policy did


@dataclass(frozen=True, slots=True)
class Order:
    """One decision about one partition. `topic` is the source's name.

    generation: the ledger's newest when it was given (0: nothing there). lost: for accept-gap, the source offsets that
    are given up. through: for accept-gap, the source offset up to which (not with it) more may be given up, if it is
    lost when the order is obeyed; -1: only `lost`. target_id: for reseed, the id of the empty topic. actor: who gave
    it. at_ms: when, milliseconds since 1970.
    """

    kind: Kind
    flow: str
    topic: str
    partition: int
    state: str
    generation: int
    actor: str
    lost: Span | None = None
    target_id: uuid.UUID | None = None
    id: str = ""
    at_ms: int = 0
    through: int = -1

    @property
    def key(self) -> str:
        return order_key(self.flow, self.topic, self.partition)

    @property
    def note(self) -> str:
        """For the status, as long as this order is the partition's newest."""
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.at_ms / 1000))
        if self.kind == "accept-gap":
            return f"source offsets {self.lost} were given up on {when} by {self.actor}"
        return f"copied again from the start since {when} by order of {self.actor}"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "flow": self.flow,
            "topic": self.topic,
            "partition": self.partition,
            "state": self.state,
            "generation": self.generation,
            "actor": self.actor,
            "lost": None if self.lost is None else list(self.lost),
            "target_id": None if self.target_id is None else str(self.target_id),
            "id": self.id,
            "at_ms": self.at_ms,
            "through": self.through,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Order:
        """Raises `ProtocolError` for a record of another schema or without its fields."""
        try:
            if value["schema"] != SCHEMA:
                raise ValueError(f"schema {value['schema']}")
            return cls(
                kind=value["kind"],
                flow=value["flow"],
                topic=value["topic"],
                partition=value["partition"],
                state=value["state"],
                generation=value["generation"],
                actor=value["actor"],
                lost=None if value["lost"] is None else Span(*value["lost"]),
                target_id=None if value["target_id"] is None else uuid.UUID(value["target_id"]),
                id=value["id"],
                at_ms=value["at_ms"],
                through=value.get("through", -1),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"an order in watershed.flows cannot be read ({error!r})") from None


def order_key(flow: str, topic: str, partition: int) -> str:
    return f"{ORDER_PREFIX}{flow}|{topic}|{partition}"


def by_policy(key: PartitionKey, found: Loud, generation: int, now_ms: int) -> Order:
    """The order that `on_gap: continue` stands for. Two workers that find the same give the same."""
    name = f"policy-{generation}-{found.source}".replace(" ", "-")
    return Order(
        "accept-gap", key.flow, key.topic, key.partition, found.state, generation, BY_POLICY, found.source, None, name,
        now_ms,
    )  # fmt: skip


def obeyed(
    order: Order,
    decided: Resume | Loud | LookAgain,
    remembered: Remembered | None,
    generation: int,
    seen: Seen,
    start: str,
) -> Resume | Loud | LookAgain:
    """What becomes of a partition for which `resume` decided as it did, now that there is an order.

    Returns `decided` itself when the order was obeyed before or nothing is left to obey; a refused order is said in
    the error of the loud state that remains.
    """
    if remembered is None or order.id == remembered.order:
        return decided
    why_not = _unfit(order, decided, generation, seen)
    if why_not:
        if not isinstance(decided, Loud):
            return decided  # it healed, or is about to: nothing to order
        told = f"{order.kind} {order.id} of {order.actor} is refused: {why_not}"
        return replace(decided, error=f"{decided.error}; {told}")
    order = settled_on(order, decided)
    if not seen.settled:
        return LookAgain(f"{order.kind} is ordered; waiting until nothing can be under way to the target")
    epoch = next_epoch(remembered)
    if isinstance(epoch, Loud):
        return epoch
    identity = remembered.identity
    afresh = order.kind == "reseed"
    disowned = remembered.last_epoch > identity.epoch  # begun behind a hole, and an older one's batch came first
    return Resume(
        identity=Identity(identity.producer_id, epoch, seen.target_end),
        position=_beginning(remembered, seen, start) if afresh or order.lost is None else order.lost.end,
        target_end=seen.target_end,
        depth=1,
        depth_confirmed=PIPELINE,
        since=epoch if afresh else remembered.since,
        order=order.id,
        note=order.note,
        claims=True,
        after=landed(remembered, seen).identity.epoch if disowned and not afresh else -1,
    )


def _unfit(order: Order, decided: Resume | Loud | LookAgain, generation: int, seen: Seen) -> str:
    """Why the order does not answer what is there; empty when it does."""
    if order.generation != generation:
        return f"it answers generation {order.generation} of the ledger, the newest is {generation}; give it again"
    if order.kind == "accept-gap":
        if not isinstance(decided, Loud) or decided.state != order.state:
            return f"it answers {order.state}"
        return outgrown(order, decided.source)
    if seen.target_id != order.target_id:
        return f"it is for the target topic with id {order.target_id}, now there is {seen.target_id}; give it again"
    if seen.target_start != seen.target_end:
        return f"the target still holds offsets {Span(seen.target_start, seen.target_end)}; empty it first"
    return ""


def outgrown(order: Order, gone: Span | None) -> str:
    """Why an accepted gap is not what is there; empty when it is, or has grown no further than was allowed."""
    if gone == order.lost:
        return ""
    if order.lost is not None and gone is not None and gone.first == order.lost.first:
        if order.lost.end < gone.end <= order.through:
            return ""
        allowed = f" and no more than {Span(gone.first, order.through)}" if order.through >= 0 else ""
        return (
            f"it gives up source offsets {order.lost}{allowed}, but {gone} are gone; give it again, with --through "
            "and the last source offset that may be lost if more expires meanwhile"
        )
    return f"it gives up source offsets {order.lost}, but {gone} are gone; give it again"


def settled_on(order: Order, found: object) -> Order:
    """The order as it is obeyed now: an accepted gap with the very offsets that are lost."""
    if order.kind == "accept-gap" and isinstance(found, Loud) and found.source is not None:
        return replace(order, lost=found.source)
    return order


def _beginning(remembered: Remembered, seen: Seen, start: str) -> int:
    """Where a new copy begins: with the source's log, or (`start: latest`) where the first copy began."""
    runs = remembered.map.runs
    if start == "earliest" or seen.source_id != remembered.source_id or not runs:
        return seen.source_start
    return min(max(runs[0].source, seen.source_start), seen.source_end)


def journal(writer: ControlWriter, order: Order, topology: str) -> None:
    """Write the decision down for good, before anybody acts on it. The line is no part of a migration's hash chain (it
    has no run), but it carries the hash of its own content. Raises ClusterError."""
    line = {"record": "order", "of": topology} | order.to_json()
    line["hash"] = "sha256:" + hashlib.sha256(encode(line)).hexdigest()
    writer.put(JOURNAL, f"order/{order.flow}/{order.topic}/{order.partition}/{order.id}", line, 0)


def journal_outcome(writer: ControlWriter, order: Order, topology: str, generation: int, worker: str) -> None:
    """Write down what exactly an order is about to give up, as `generation` of the ledger by `worker`. Two workers may
    find something else; the ledger's claim of that generation says who began. Raises ClusterError."""
    line = {"record": "order-obeyed", "of": topology} | order.to_json() | {"obeyed_as": generation, "worker": worker}
    line["hash"] = "sha256:" + hashlib.sha256(encode(line)).hexdigest()
    at = f"order/{order.flow}/{order.topic}/{order.partition}/{order.id}/{generation}.{worker}"
    writer.put(JOURNAL, at, line, 0)


def give(writer: ControlWriter, order: Order, topology: str) -> None:
    """Journal the decision, then order it. Raises ClusterError."""
    journal(writer, order, topology)
    writer.put(FLOWS, order.key, order.to_json())
