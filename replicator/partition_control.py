"""Orders about a topic or a partition of a flow: pause, resume, move. What they make of the flow's record; no I/O but
`write_partition_order`. How workers obey: `replicator.worker.assignment`, `replicator.worker.placement_leader`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.partition_orders import PartitionMove, PartitionPause, is_chosen_worker, render_order_place
from watershed.clusters.worker_heartbeats import WorkerHeartbeat
from watershed.replicator.flow_state_order import write_ordered_flow

PartitionOrderKind = Literal["pause", "resume", "move", "release"]
MAX_ORDERS: Final = 1_000  # that a flow's record holds: it is read whole by everybody, at every change
MAX_REASON_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class PartitionOrder:
    """What a person orders. partition: None for the whole topic. worker: of a move, its name, or that without the
    process id at its end. `release` ends a move, `resume` ends a pause."""

    kind: PartitionOrderKind
    topic: str
    partition: int | None = None
    worker: str = ""
    reason: str = ""

    @property
    def place(self) -> str:
        """`orders-3`, or `orders` for a whole topic."""
        return render_order_place(self.topic, self.partition)


_Order = TypeVar("_Order", PartitionPause, PartitionMove)


def apply_partition_order(record: FlowRecord, order: PartitionOrder, actor: str, at_ms: int) -> FlowRecord:
    """The record that the order makes of it; the same one where nothing changes. An order about a whole topic takes the
    place of those about its partitions. at_ms: milliseconds since 1970."""
    if order.kind == "pause":
        if any(each.topic == order.topic and each.partition in (order.partition, None) for each in record.pauses):
            return record
        pause = PartitionPause(order.topic, order.partition, actor, at_ms, order.reason)
        return replace(record, pauses=_sort([*_leave_out(record.pauses, order), pause]))
    if order.kind == "resume":
        return replace(record, pauses=_leave_out(record.pauses, order))
    moves = _leave_out(record.moves, order)
    if order.kind == "move":
        move = PartitionMove(order.topic, order.partition, order.worker, actor, at_ms, order.reason)
        if any((m.topic, m.partition, m.worker) == (move.topic, move.partition, move.worker) for m in record.moves):
            return record
        moves = _sort([*moves, move])
    return replace(record, moves=moves)


def _leave_out(orders: Iterable[_Order], order: PartitionOrder) -> tuple[_Order, ...]:
    return tuple(each for each in orders if each.topic != order.topic or order.partition not in (None, each.partition))


def _sort(orders: Iterable[_Order]) -> tuple[_Order, ...]:
    return tuple(sorted(orders, key=lambda each: (each.topic, -1 if each.partition is None else each.partition)))


def drop_ended_moves(record: FlowRecord, workers: Collection[str]) -> FlowRecord:
    """The record without moves to processes that others of the same place have replaced. workers: the names of those
    that are there. A name without a process id means the place, where a worker may come back."""

    def is_replaced(chosen: str) -> bool:
        place = chosen.rpartition("-")[0]
        return chosen not in workers and any(is_chosen_worker(name, place) for name in workers)

    kept = tuple(each for each in record.moves if not is_replaced(each.worker))
    return record if kept == record.moves else replace(record, moves=kept)


def explain_impossible_order(record: FlowRecord, order: PartitionOrder, known: Collection[int] | None) -> str:
    """Why the order cannot be given; "" where it can. known: numbers of the topic's partitions, as far as workers
    report any; None where none do."""
    if order.kind in ("resume", "release"):
        return _explain_impossible_end(record, order)
    if not record.selects(order.topic):
        return _explain_unselected(record, order.topic)
    if order.partition is not None and known and order.partition not in known:
        return (
            f"{order.topic} of flow {record.key} has partitions {min(known)} to {max(known)}, and no {order.partition}"
        )
    if len(order.reason) > MAX_REASON_CHARS:
        return f"the reason has {len(order.reason)} characters; at most {MAX_REASON_CHARS} are kept"
    return _explain_impossible_move(record, order) if order.kind == "move" else _explain_too_many(len(record.pauses))


def _explain_impossible_end(record: FlowRecord, order: PartitionOrder) -> str:
    """Also an order about a topic that the flow does not copy any more can be taken back."""
    orders: tuple[PartitionPause | PartitionMove, ...] = record.pauses if order.kind == "resume" else record.moves
    known = any(each.topic == order.topic for each in orders)
    if not known and not record.selects(order.topic):
        return _explain_unselected(record, order.topic)
    if order.partition is None or not any(e.topic == order.topic and e.partition is None for e in orders):
        return ""
    ordered, end = ("paused", "Resume") if order.kind == "resume" else ("moved", "Release")
    return (
        f"topic {order.topic} is {ordered} as a whole, so its partition {order.partition} cannot be taken out of that "
        f"alone. {end} the topic, and order again what is to stay for single partitions"
    )


def _explain_unselected(record: FlowRecord, topic: str) -> str:
    gone = "has let go of" if topic in record.retired else "does not copy"
    return f"flow {record.key} {gone} topic {topic} (its name at the source counts)"


def _explain_impossible_move(record: FlowRecord, order: PartitionOrder) -> str:
    if not order.worker:
        return "a move needs the name of a worker"
    if record.flow.delivery == "transactions":
        return (
            f"flow {record.key} copies in transactions, and there the worker that has the transactional id copies all "
            "partitions of that id: none of them can be moved alone"
        )
    return _explain_too_many(len(record.moves))


def _explain_too_many(count: int) -> str:
    if count < MAX_ORDERS:
        return ""
    return f"{MAX_ORDERS} such orders stand already; name whole topics (without a partition), or pause the flow"


def find_workers_of_earlier_versions(heartbeats: Iterable[WorkerHeartbeat], members: Collection[str]) -> list[str]:
    """The names of the workers that would pause a whole flow where one partition is to be paused. members: the workers
    that are there; one that has told nothing yet is among those that are found."""
    able = {each.worker for each in heartbeats if each.pauses_partitions}
    return sorted(set(members) - able)


def write_partition_order(
    writer: ControlWriter, after: FlowRecord, order: PartitionOrder, actor: str, at_ms: int
) -> str:
    """Writes down who ordered what, then the flow's record. Returns the order's id. Raises ClusterError."""
    told = {"topic": order.topic, "partition": order.partition, "worker": order.worker, "reason": order.reason}
    return write_ordered_flow(writer, after, order.kind, actor, at_ms, told)
