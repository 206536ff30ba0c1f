"""Pause, resume or move a topic or a partition of a flow: `topology flow … --topic` and the DAG `operate__<name>`.

The order stands in the flow's record, so it holds until a person takes it back, whatever is restarted (decision 0116).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from watershed.clusters.admin import Admin
from watershed.clusters.cluster_protocol import ClusterProtocol
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.fleet import build_fleet_group_id
from watershed.clusters.flow_records import FlowRecord, read_flow_to_change
from watershed.clusters.partition_orders import (
    describe_move,
    describe_pause,
    find_partition_order,
    index_partition_orders,
    is_chosen_worker,
)
from watershed.clusters.partition_status_records import PartitionStatus, StatusReports, read_status_reports
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.clusters.worker_heartbeats import SILENT_MS
from watershed.cutover.operations.proposal import NoAnswerYet, OperationRefused, Proposal
from watershed.replicator.partition_control import (
    PartitionOrder,
    apply_partition_order,
    drop_ended_moves,
    explain_impossible_order,
    find_workers_of_earlier_versions,
    write_partition_order,
)
from watershed.replicator.worker.worker_host import WORKER_CLIENT_PREFIX
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.shell_command import render_shell_command

MOVE_WAIT_S: Final = 60.0  # a takeover of a partition whose last record is old alone takes up to 35 s
_MEMBERS_WAIT_S = 10.0  # while workers share their partitions anew, and until a new one has told its version
_ASK_AGAIN_S = 0.5
_MEANINGS: Final[Mapping[str, str]] = {
    "pause": "copies nothing more, until it is resumed; its position is kept, and the others of the flow go on",
    "resume": "goes on where it was paused",
    "move": "is served by that worker, as long as it is there",
    "release": "is placed by the fleet again; it may stay where it is",
}


_DONE: Final[Mapping[str, str]] = {
    "pause": "paused; workers follow within a second",
    "resume": "resumed; workers follow within a second",
    "release": "released",
}


@dataclass(frozen=True, slots=True)
class _Scene:
    """A flow on its target: its record, what workers report of the topic, and which workers are there (their names)."""

    flow: PlanFlow
    target: ConnectionSettings
    record: FlowRecord
    reports: tuple[PartitionStatus, ...]
    workers: frozenset[str]
    file: str
    wait_s: float


def propose_partition_order(
    plan: Plan,
    connect: SettingsLookup,
    flow_id: str,
    order: PartitionOrder,
    *,
    file: str = "FILE",
    wait_s: float = MOVE_WAIT_S,
) -> Proposal:
    """The order, with how the partitions are now. file: what messages call the topology file. wait_s: so long a move is
    waited for. Raises ClusterError, NotInPlan; OperationRefused where the order cannot be given."""
    scene = _read_scene(plan, connect, flow_id, order, file, wait_s)
    changed = _change(scene, order, "", 0)
    about = "topic" if order.partition is None else "partition"
    to = f" to worker {order.worker}" if order.kind == "move" else ""
    lines = [
        f"{about} {order.place} of flow {flow_id} ({scene.flow.source} -> {scene.flow.target}){to} "
        f"{_MEANINGS[order.kind]}",
        *_describe_partitions(scene, order),
        *_describe_standing(scene.record, order),
    ]
    if order.reason:
        lines.append(f"reason: {order.reason}")

    def carry_out(actor: str) -> Iterator[str]:
        return _carry_out(plan, connect, flow_id, order, actor, file, wait_s)

    question = f"{order.kind} {about} {order.place} of flow {flow_id}{to}?"
    basis = f"{question} {scene.record.pauses} {scene.record.moves}"
    is_needed = (changed.pauses, changed.moves) != (scene.record.pauses, scene.record.moves)
    return Proposal(question, tuple(lines), basis, carry_out, tuple(_list_notes(scene, order)), is_needed)


def _read_scene(
    plan: Plan, connect: SettingsLookup, flow_id: str, order: PartitionOrder, file: str, wait_s: float
) -> _Scene:
    flow = plan.flow(flow_id)
    target = connect(flow.target)
    record = read_flow_to_change(target, flow_id)
    if record is None:
        raise OperationRefused(f"flow {flow_id} was never applied to {target.alias}; run `topology apply` first")
    read = read_status_reports(target)
    reports = tuple(each for each in read.partitions if (each.flow, each.topic) == (flow_id, order.topic))
    why = explain_impossible_order(record, order, {each.partition for each in reports} or None)
    if why:
        raise OperationRefused(why)
    workers = frozenset[str]()
    if order.kind in ("pause", "move"):
        with Admin(target) as admin:
            workers = _read_workers(admin, plan, serving=order.kind == "move")
            if order.kind == "pause":
                _require_obedient_workers(read, target, workers, flow.target, file)
    if order.kind == "move" and not any(is_chosen_worker(name, order.worker) for name in workers):
        there = ", ".join(sorted(workers)) or "none"
        raise OperationRefused(f"no worker {order.worker} serves anything of {flow.target} now; there are: {there}")
    return _Scene(flow, target, record, reports, workers, file, wait_s)


def _read_workers(admin: ClusterProtocol, plan: Plan, *, serving: bool) -> frozenset[str]:
    """The names of a topology's workers, also of those that change records. serving: only those to which a partition
    can be moved: they serve something (of more workers than slots some wait), and change no records.

    While workers share their partitions anew nobody tells them, so it is asked again for _MEMBERS_WAIT_S. Raises
    OperationRefused then."""
    deadline = time.monotonic() + _MEMBERS_WAIT_S
    kinds = [False] if serving else sorted({flow.transform is not None for flow in plan.flows})
    while True:
        groups = [admin.group_assignment(build_fleet_group_id(plan.topology, transforms=each)) for each in kinds]
        if all(each is not None for each in groups):
            members = [member for each in groups for member in (each or {}).items() if member[1] or not serving]
            return frozenset(name.removeprefix(WORKER_CLIENT_PREFIX) for name, _ in members)
        if time.monotonic() > deadline:
            raise OperationRefused(
                f"the workers of {plan.topology} share their partitions anew for {_MEMBERS_WAIT_S:g} s now, so nobody "
                "can say which there are. Nothing was ordered; try again in a moment"
            )
        time.sleep(_ASK_AGAIN_S)


def _require_obedient_workers(
    read: StatusReports, target: ConnectionSettings, workers: Collection[str], alias: str, file: str
) -> None:
    """Raises OperationRefused where a worker would pause more than was ordered."""
    deadline = time.monotonic() + _MEMBERS_WAIT_S
    while earlier := find_workers_of_earlier_versions(read.heartbeats, workers):
        if time.monotonic() > deadline:
            restart = render_shell_command("topology", "fleet", "restart", file, "--target", alias)
            raise OperationRefused(
                f"workers {', '.join(earlier)} are of a version that knows no pauses of single partitions, or have not "
                "told their version: they would pause all partitions of the flow that they serve. Nothing was ordered. "
                f"Replace them by this version (`{restart}`), or pause the whole flow"
            )
        time.sleep(_ASK_AGAIN_S)
        read = read_status_reports(target)


def _change(scene: _Scene, order: PartitionOrder, actor: str, at_ms: int) -> FlowRecord:
    record = drop_ended_moves(scene.record, scene.workers) if order.kind == "move" else scene.record
    return apply_partition_order(record, order, actor, at_ms)


def _carry_out(
    plan: Plan, connect: SettingsLookup, flow_id: str, order: PartitionOrder, actor: str, file: str, wait_s: float
) -> Iterator[str]:
    """The order is given to the record as it is now: a migration may have retired topics meanwhile."""
    scene = _read_again(_read_scene(plan, connect, flow_id, order, file, wait_s), order)
    at_ms = int(time.time() * 1000)
    changed = _change(scene, order, actor, at_ms)
    if changed == scene.record:
        yield f"{order.place} of {flow_id}: nothing to do, {_describe_present(scene.record, order)}"
        return
    with ControlWriter(scene.target, client_id="watershed-flow") as writer:
        write_partition_order(writer, changed, order, actor, at_ms)
    if order.kind != "move":
        yield f"{order.place} of {flow_id}: {_DONE[order.kind]}"
        return
    yield f"{order.place} of {flow_id} moves to worker {order.worker}"
    yield from _await_move(scene, order)


def _read_again(scene: _Scene, order: PartitionOrder) -> _Scene:
    """The scene with the flow's record of this moment: to read the rest may have waited for workers. Raises
    OperationRefused where the order cannot be given any more."""
    record = read_flow_to_change(scene.target, str(scene.flow.id))
    if record is None:
        raise OperationRefused(f"flow {scene.flow.id} is gone from {scene.target.alias}; run `topology apply` first")
    if why := explain_impossible_order(record, order, {each.partition for each in scene.reports} or None):
        raise OperationRefused(why)
    return replace(scene, record=record)


def _await_move(scene: _Scene, order: PartitionOrder) -> Iterator[str]:
    """Until the chosen worker reports all that it was given. Raises NoAnswerYet."""
    deadline, wanted = time.monotonic() + scene.wait_s, {each.partition for each in scene.reports}
    wanted = wanted if order.partition is None else {order.partition}
    while True:
        served = {
            each.partition: each.worker
            for each in read_status_reports(scene.target).partitions
            if (each.flow, each.topic) == (str(scene.flow.id), order.topic)
            and is_chosen_worker(each.worker, order.worker)
            and each.state != "starting"
        }
        if wanted <= set(served):
            yield from (f"{order.topic}-{number} is served by worker {served[number]}" for number in sorted(wanted))
            return
        if time.monotonic() > deadline:
            left = ", ".join(f"{order.topic}-{number}" for number in sorted(wanted - set(served)))
            raise NoAnswerYet(
                f"{left}: worker {order.worker} has not reported it yet; the order stands, and "
                f"`{render_shell_command('topology', 'status', scene.file)}` will show it"
            )
        time.sleep(_ASK_AGAIN_S)


def _describe_partitions(scene: _Scene, order: PartitionOrder) -> Iterator[str]:
    """What workers report of the partitions that the order is about."""
    about = [each for each in scene.reports if order.partition in (None, each.partition)]
    if not about:
        yield f"no worker reports {order.place}: the order counts as soon as one serves it"
    for each in about[:8]:
        lag = "an unknown number of" if each.lag_records is None else f"{each.lag_records:,}"
        served = f", served by {each.worker}" if each.worker else ""
        yield f"  {each.topic}-{each.partition} is {each.state}{served}, {lag} records not copied as last reported"
    if len(about) > 8:
        yield f"  and {len(about) - 8:,} more partitions"


def _describe_standing(record: FlowRecord, order: PartitionOrder) -> Iterator[str]:
    """The orders about the topic that stand now."""
    yield from (f"now: {describe_pause(each)}" for each in record.pauses if each.topic == order.topic)
    yield from (f"now: {describe_move(each)}" for each in record.moves if each.topic == order.topic)


def _describe_present(record: FlowRecord, order: PartitionOrder) -> str:
    number = -1 if order.partition is None else order.partition
    if order.kind in ("pause", "resume"):
        pause = find_partition_order(index_partition_orders(record.pauses), order.topic, number)
        return f"it is {describe_pause(pause)}" if pause is not None else "it is not paused"
    move = find_partition_order(index_partition_orders(record.moves), order.topic, number)
    return f"it is {describe_move(move)}" if move is not None else "it is not moved"


def _list_notes(scene: _Scene, order: PartitionOrder) -> Iterator[str]:
    """What a person should know beside the order."""
    if scene.record.state != "running":
        yield f"flow {scene.flow.id} is {scene.record.state} as a whole"
    if order.kind == "pause":
        yield (
            f"until it is resumed, a migration of {order.topic} is refused, a proof leaves what is not copied "
            "unproven, and what the source's retention removes meanwhile is lost to the copy"
        )
    if order.kind == "move":
        now = time.time() * 1000
        about = [each for each in scene.reports if order.partition in (None, each.partition)]
        old = [each for each in about if not each.young and now - each.at_ms <= SILENT_MS]
        if old:
            yield (
                f"{len(old)} of {len(about)} partitions stand still for up to 35 s when they move: the target's "
                "brokers may have forgotten who wrote their last records"
            )
