"""What persons ordered about single partitions of a flow: that they pause, and which worker serves them.

The orders stand in the flow's record (`clusters.flow_records.FlowRecord`), so that whoever reads the flow reads them,
and they hold over restarts of workers and fleets (docs/decisions/0116-partition-control.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from watershed.topology.shell_command import render_shell_command


@dataclass(frozen=True, slots=True)
class PartitionPause:
    """Nothing of a source topic, or of one of its partitions, is copied until a person lets it go on.

    partition: None for all of the topic, also those that it gets later. actor, at_ms: who ordered it and when,
    milliseconds since 1970. reason: why, in that person's words; may be empty.
    """

    topic: str
    partition: int | None
    actor: str
    at_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """One worker serves a source topic, or one of its partitions, as long as that worker is there.

    worker: its name as reports have it, or that without the process id at its end (`is_chosen_worker`). The other
    fields: as of PartitionPause.
    """

    topic: str
    partition: int | None
    worker: str
    actor: str
    at_ms: int
    reason: str = ""


_Order = TypeVar("_Order", PartitionPause, PartitionMove)
PartitionOrderIndex = Mapping[tuple[str, int | None], _Order]


def index_partition_orders(orders: Iterable[_Order]) -> PartitionOrderIndex[_Order]:
    """The orders by (topic, partition), for many lookups."""
    return {(each.topic, each.partition): each for each in orders}


def find_partition_order(orders: PartitionOrderIndex[_Order], topic: str, partition: int) -> _Order | None:
    """The order that a partition is under: its own, before that of its whole topic."""
    return orders.get((topic, partition)) or orders.get((topic, None))


def is_chosen_worker(worker: str, chosen: str) -> bool:
    """Whether a move to `chosen` is one to this worker. A name ends with the id of its process, which another one has
    after a restart; without it the move holds for whoever is started in the same place."""
    return worker == chosen or (worker.startswith(f"{chosen}-") and worker.removeprefix(f"{chosen}-").isdecimal())


def render_order_place(topic: str, partition: int | None) -> str:
    """`orders-3`, or `orders` for a whole topic."""
    return topic if partition is None else f"{topic}-{partition}"


def describe_pause(pause: PartitionPause) -> str:
    """`orders-3 paused by ann since 2026-03-01 12:00:00 UTC: a poisonous record`."""
    return f"{render_order_place(pause.topic, pause.partition)} paused {_describe_order(pause)}"


def describe_move(move: PartitionMove) -> str:
    """`orders-3 moved to worker host-2 by ann since 2026-03-01 12:00:00 UTC`."""
    return f"{render_order_place(move.topic, move.partition)} moved to worker {move.worker} {_describe_order(move)}"


def build_resume_command(flow: str, pause: PartitionPause, file: str = "FILE") -> str:
    """The command that ends the pause. file: the topology file's path."""
    one = [] if pause.partition is None else ["--partition", str(pause.partition)]
    return render_shell_command("topology", "flow", "resume", flow, file, "--topic", pause.topic, *one)


def describe_topic_pauses(flow: str, pauses: Iterable[PartitionPause], file: str = "FILE") -> dict[str, str]:
    """Topic → which of its partitions are paused, by whom, and the commands that let them go on. file: the topology
    file's path."""
    found: dict[str, list[str]] = {}
    for each in pauses:
        told = f"{describe_pause(each)}; `{build_resume_command(flow, each, file)}` lets it go on"
        found.setdefault(each.topic, []).append(told)
    return {topic: "; ".join(texts) for topic, texts in found.items()}


def _describe_order(order: PartitionPause | PartitionMove) -> str:
    try:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(order.at_ms / 1000))
    except (OverflowError, ValueError, OSError):  # anybody may have written it
        when = f"timestamp {order.at_ms}"
    return f"by {order.actor} since {when}" + (f": {order.reason}" if order.reason else "")
