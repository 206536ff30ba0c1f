"""Which slot serves a partition, by how many bytes it carries: judged without I/O (decision 0020).

The group protocol shares slots among workers by number. Where a few partitions carry most of the bytes, that leaves one
worker with all of them; so some are served by another slot than `compute_slot` says. Two levels: between workers, where
a move is a handover and therefore rare, and between the slots of one worker, where it costs nothing and means that a
worker that joins gets a fair share with the slots it takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from watershed.clusters.control_topics import SLOT_COUNT
from watershed.clusters.partition_orders import is_chosen_worker

TOLERATED_LOAD_RATIO: Final = 1.25  # times the mean: what the heaviest may carry before anything is moved
MAX_RECEIVER_LOAD_RATIO: Final = 0.9  # times the heaviest: what the other one may carry after a move
MIN_MOVED_SHARE: Final = 0.01  # of the excess: what a partition has to carry to be worth a move
MIN_EXCESS_BYTES_S: Final = 256 << 10  # bytes a second above the mean
MAX_HANDOVERS: Final = 8  # at once, between workers
_SHIFTS: Final = 16  # at once, within workers


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """One partition: `key` is `flow|topic|partition`, `home` its slot by `compute_slot`, `rate` in bytes a second.

    movable: whether its flow allows it, and the target's brokers hold its producer state, so that another worker can go
    on at once (docs/research/sequence-numbers.md, R4: the others would stand still for 35 s).
    """

    key: str
    home: int
    rate: float
    movable: bool = True


@dataclass(frozen=True, slots=True)
class ChosenPlace:
    """That a person moved a partition to a worker: `home` is its slot by `compute_slot`, `worker` a name as
    `clusters.partition_orders.is_chosen_worker` has it."""

    home: int
    worker: str


def place_chosen_partitions(
    chosen: Mapping[str, ChosenPlace], table: Mapping[str, int], owners: Mapping[int, str]
) -> tuple[dict[str, int], frozenset[str]]:
    """(the table with the partitions that persons moved at workers of their choice, the keys of those).

    chosen: by `flow|topic|partition`. owners: slot → name of the worker. A partition whose worker is not there, or
    serves no slot, keeps its entry and is not among the keys: it is placed as if nobody had moved it. One that the
    worker serves already stays in its slot. Nothing changes while a slot has no owner.
    """
    placed = dict(table)
    if len(owners) < SLOT_COUNT:
        return placed, frozenset()
    carried = Counter(placed.values())
    there = set[str]()
    for key, place in sorted(chosen.items()):
        now = placed.get(key, place.home)
        slots = [slot for slot in range(SLOT_COUNT) if is_chosen_worker(owners[slot], place.worker)]
        if not slots:
            continue
        there.add(key)
        if now in slots:
            continue
        if place.home in slots:
            placed.pop(key, None)
            continue
        placed[key] = min(slots, key=lambda slot: (carried[slot], slot))
        carried[placed[key]] += 1
    return placed, frozenset(there)


def balance_partitions(
    loads: Collection[PartitionLoad], table: Mapping[str, int], owners: Mapping[int, str]
) -> dict[str, int]:
    """A better table of the partitions that are not served by their home slot; `table` itself when there is none.

    owners: slot → worker. Longest first: the largest partition that improves matters goes from the heaviest to the
    lightest. Partitions that `loads` does not name keep their entries. Nothing changes while a slot has no owner. The
    same input gives the same answer, whatever its order.
    """
    if len(owners) < SLOT_COUNT:
        return dict(table)
    ordered = sorted(loads, key=lambda load: (-load.rate, load.key))
    serving = {load.key: table.get(load.key, load.home) for load in ordered}
    workers = sorted(set(owners.values()))
    slots_of = [[slot for slot in range(SLOT_COUNT) if owners[slot] == worker] for worker in workers]
    worker_of_slot = {slot: number for number, slots in enumerate(slots_of) for slot in slots}
    moved: set[str] = set()

    for _ in range(MAX_HANDOVERS):
        handover = _move(ordered, range(len(workers)), lambda load: worker_of_slot[serving[load.key]], moved)
        if handover is None:
            break
        load, worker = handover
        carried = _sums(ordered, range(SLOT_COUNT), lambda load: serving[load.key])
        serving[load.key] = min(slots_of[worker], key=lambda slot: (carried[slot], slot))
        moved.add(load.key)
    for slots in slots_of:
        own = [load for load in ordered if serving[load.key] in slots]
        for _ in range(_SHIFTS):
            shift = _move(own, slots, lambda load: serving[load.key], moved)
            if shift is None:
                break
            load, serving[shift[0].key] = shift
            moved.add(load.key)
    kept = {key: slot for key, slot in table.items() if key not in serving}
    return kept | {load.key: serving[load.key] for load in ordered if serving[load.key] != load.home}


def _move(
    ordered: list[PartitionLoad],
    places: Collection[int],
    place_of: Callable[[PartitionLoad], int],
    moved: Collection[str],
) -> tuple[PartitionLoad, int] | None:
    """The largest partition of an overloaded place that is worth moving to the lightest place."""
    carried = _sums(ordered, places, place_of)
    mean = sum(carried.values()) / len(carried)
    light = min(carried, key=lambda place: (carried[place], place))
    for heavy in sorted(carried, key=lambda place: (-carried[place], place)):
        if carried[heavy] <= mean * TOLERATED_LOAD_RATIO or carried[heavy] - mean < MIN_EXCESS_BYTES_S:
            return None
        for load in ordered:
            if place_of(load) != heavy or not load.movable or load.key in moved:
                continue
            helps = load.rate >= (carried[heavy] - mean) * MIN_MOVED_SHARE
            if helps and carried[light] + load.rate <= carried[heavy] * MAX_RECEIVER_LOAD_RATIO:
                return load, light
    return None


def _sums(
    loads: Iterable[PartitionLoad], places: Iterable[int], place_of: Callable[[PartitionLoad], int]
) -> dict[int, float]:
    carried = dict.fromkeys(places, 0.0)
    for load in loads:
        carried[place_of(load)] += load.rate
    return carried
