"""`topology flow accept-gap`, `reseed` and `copy-foreign`: decisions about halted partitions.

Each shows what it will do before anything is written, is recorded in watershed.journal, and names the state that it
answers, so that a worker obeys it once or refuses it (`replicator.recovery.operator_decisions`).
"""

from __future__ import annotations

import getpass
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.confirmation import require_confirmation
from cli.plan_settings import build_settings_lookup, compile_plan_at
from topology.shell_command import render_shell_command

if TYPE_CHECKING:
    from clusters.admin import Admin
    from clusters.partition_status_records import PartitionStatus
    from clusters.settings import ConnectionSettings
    from replicator.ledger.ledger import DecisionBasis
    from replicator.partition_key import PartitionKey
    from replicator.recovery.operator_decisions import OperatorDecision
    from topology.plan import PlanFlow

_STALE_MS = 20_000  # an idle partition is reported every 5 s
_EXIT_REFUSED, _EXIT_WAITING = 1, 3

_flow_argument = click.argument("flow_id", metavar="FLOW")
_path_argument = click.argument("path", type=click.Path(path_type=Path))
_topic = click.option("-t", "--topic", required=True, help="Topic name on the source.")
_yes = click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
_wait = click.option(
    "--wait", "wait_s", type=click.FloatRange(0), default=120.0, show_default=True, metavar="SECONDS",
    help="How long to wait for the worker's answer.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Scene:
    """A flow on its target: what workers report and where the ledger says its partitions stand."""

    flow: PlanFlow
    topology: str
    target: ConnectionSettings
    reports: dict[tuple[str, int], PartitionStatus]
    standing: dict[PartitionKey, DecisionBasis]
    path: Path
    aligned: frozenset[str] = frozenset()  # source topics whose offsets are the same on the target

    def key(self, topic: str, partition: int) -> PartitionKey | None:
        wanted = (self.flow.id, topic, partition)
        return next((key for key in self.standing if (key.flow, key.topic, key.partition) == wanted), None)


@click.command("accept-gap", epilog="Example: topology flow accept-gap onprem-to-cloud orders.yaml -t orders -p 3")
@_flow_argument
@_path_argument
@_topic
@click.option("-p", "--partition", type=click.IntRange(0), required=True)
@click.option(
    "--through",
    type=click.IntRange(0),
    default=None,
    metavar="OFFSET",
    help="The last source offset that may be lost if more expires before a worker obeys; default: nothing more.",
)
@_yes
@_wait
def accept_gap(
    flow_id: str, path: Path, topic: str, partition: int, through: int | None, yes: bool, wait_s: float
) -> int:
    """Give up source records that expired before they were copied, and go on behind them.

    For a partition in state source_expired. Shows the exact offsets that are lost. Exit code 0 when the worker goes
    on, 1 when it refused (more has expired meanwhile), 3 when it did not answer in time.
    """
    from replicator.partition_states import GAP_ACCEPTABLE_STATES, OffsetSpan
    from replicator.recovery.operator_decisions import OperatorDecision

    scene = _scene(flow_id, path)
    report = _report(scene, topic, partition)
    lost = (report.seen or {}).get("source")
    if report.state not in GAP_ACCEPTABLE_STATES or not lost:
        raise click.UsageError(
            f"{topic}-{partition} of {flow_id} is {report.state}; accept-gap answers "
            f"{', '.join(sorted(GAP_ACCEPTABLE_STATES))}"
        )
    span = OffsetSpan(*lost)
    click.echo(
        f"{topic}-{partition} of flow {flow_id} ({scene.flow.source} -> {scene.flow.target}):\n"
        f"  lost for good: source offsets {span}, at most {span.end - span.first} records, expired before they were "
        "copied\n"
        f"  copying goes on at source offset {span.end}; a reader inside the lost range continues with the next record"
    )
    if through is not None and through < span.end - 1:
        raise click.UsageError(f"--through {through} is less than what is lost already: source offsets {span}")
    if through is not None:
        click.echo(f"  if more expires meanwhile, it may be lost up to and with source offset {through}")
    generation = _known(scene, topic, partition).generation
    order = OperatorDecision(
        "accept-gap", flow_id, topic, partition, report.state, generation, getpass.getuser(), lost=span,
        through=-1 if through is None else through + 1,
    )  # fmt: skip
    return _ordered(scene, [order], yes, wait_s)


@click.command(epilog="Example: topology flow reseed onprem-to-cloud orders.yaml -t orders")
@_flow_argument
@_path_argument
@_topic
@click.option("-p", "--partition", type=click.IntRange(0), default=None, help="Only this one; default: all of them.")
@_yes
@_wait
def reseed(flow_id: str, path: Path, topic: str, partition: int | None, yes: bool, wait_s: float) -> int:
    """Copy a topic, or one partition, again from the source into an empty target.

    For partitions in state duplicated, target_foreign_write, target_gone, source_recreated, source_truncated or
    append_time. The target has to be empty already: this command deletes nothing, it shows the commands that do. Exit
    code 0 when the workers copy again, 1 when the target is not empty or the order was refused, 3 without an answer in
    time.
    """
    from clusters.admin import Admin
    from replicator.recovery.operator_decisions import OperatorDecision

    scene = _scene(flow_id, path)
    numbers = [partition] if partition is not None else _copied(scene, topic)
    with Admin(scene.target) as admin:
        found = admin.topic(scene.flow.target_topic(topic))
        not_ready = _not_ready(scene, admin, topic, numbers, whole=partition is None)
        if not_ready:
            click.echo(not_ready, err=True)
            return _EXIT_REFUSED
    assert found is not None  # or it would not be ready
    orders = []
    for number in numbers:
        state = _reseedable(scene, topic, number, str(found.topic_id))
        generation = _known(scene, topic, number).generation
        orders.append(
            OperatorDecision(
                "reseed", flow_id, topic, number, state, generation, getpass.getuser(), target_id=found.topic_id
            )
        )  # fmt: skip
    click.echo(
        f"{topic} of flow {flow_id}: partitions {', '.join(map(str, numbers))} are copied again from the start of "
        f"{scene.flow.source} into the empty {found.name} of {scene.flow.target}.\n"
        "  Offsets on the target are new: a group that has committed offsets there has to be translated and moved "
        "again,\n  and readers that keep offsets elsewhere have to ask `topology offsets translate` again. Stop them "
        "until the copy\n  has caught up."
    )
    return _ordered(scene, orders, yes, wait_s)


@click.command("copy-foreign", epilog="Example: topology flow copy-foreign onprem-to-cloud orders.yaml -t orders -p 3")
@_flow_argument
@_path_argument
@_topic
@click.option("-p", "--partition", type=click.IntRange(0), required=True)
@click.option(
    "--through",
    type=click.IntRange(0),
    default=None,
    metavar="OFFSET",
    help="The last source offset up to which no batch is believed to be a flow's; default: this batch only.",
)
@_yes
@_wait
def copy_foreign(
    flow_id: str, path: Path, topic: str, partition: int, through: int | None, yes: bool, wait_s: float
) -> int:
    """Copy source records that carry a flow's producer id and are not its own, as those of an application.

    For a partition in state source_foreign_write. With --through the loop guard believes no producer id up to that
    offset, so what a flow brought there from the target would be copied back: name only offsets that no flow wrote.
    Exit code 0 when the worker has copied them, 3 when it did not in time.
    """
    from clusters.admin import Admin
    from clusters.control_topics import ControlWriter
    from clusters.partition_status_records import read_partition_statuses
    from replicator.partition_states import COPY_FOREIGN_STATE, OffsetSpan
    from replicator.recovery.operator_decisions import COPY_FOREIGN, OperatorDecision, submit_decision

    scene = _scene(flow_id, path)
    report = _report(scene, topic, partition)
    found = (report.seen or {}).get("source")
    if report.state != COPY_FOREIGN_STATE or not found:
        raise click.UsageError(
            f"{topic}-{partition} of {flow_id} is {report.state}; copy-foreign answers {COPY_FOREIGN_STATE}"
        )
    span = OffsetSpan(*found)
    if through is not None and through < span.end - 1:
        raise click.UsageError(f"--through {through} is less than what stands there already: source offsets {span}")
    span = span if through is None else OffsetSpan(span.first, through + 1)
    with Admin(build_settings_lookup(compile_plan_at(path))(scene.flow.source)) as admin:
        at_source = admin.topic(topic)
    if at_source is None:
        raise click.UsageError(f"cluster {scene.flow.source} has no topic {topic}")
    click.echo(
        f"{topic}-{partition} of flow {flow_id} ({scene.flow.source} -> {scene.flow.target}):\n  source offsets {span} "
        "are copied as an application's records, whatever producer they name"
    )
    if not yes:
        require_confirmation("Do this?")
    generation = scene.standing[key].generation if (key := scene.key(topic, partition)) else 0
    order = OperatorDecision(
        COPY_FOREIGN, flow_id, topic, partition, report.state, generation, getpass.getuser(), lost=span,
        source_id=at_source.topic_id, id=secrets.token_hex(8), at_ms=int(time.time() * 1000),
    )  # fmt: skip
    with ControlWriter(scene.target, client_id="watershed-flow") as writer:
        submit_decision(writer, order, scene.topology)
    click.echo(f"ordered and written to watershed.journal: {order.id}")
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        time.sleep(min(1.0, wait_s))
        seen = next(
            (each for each in read_partition_statuses(scene.target) if _is(each, flow_id, topic, partition)), None
        )
        if seen is not None and seen.source_position >= span.end:
            click.echo(f"{topic}-{partition}: {order.note}")
            return 0
    click.echo(
        f"{topic}-{partition}: not copied yet; `{render_shell_command('topology', 'status', path)}` will show it",
        err=True,
    )
    return _EXIT_WAITING


def _is(report: PartitionStatus, flow_id: str, topic: str, partition: int) -> bool:
    return (report.flow, report.topic, report.partition) == (flow_id, topic, partition)


def _scene(flow_id: str, path: Path) -> _Scene:
    from clusters.alignment_records import read_alignments
    from clusters.partition_status_records import read_partition_statuses
    from replicator.ledger.ledger import read_ledger

    plan = compile_plan_at(path)
    flow = plan.flow(flow_id)
    target = build_settings_lookup(plan)(flow.target)
    reports = {(each.topic, each.partition): each for each in read_partition_statuses(target) if each.flow == flow_id}
    aligned = frozenset(
        topic for (named, topic), each in read_alignments(target).items() if named == flow_id and each.mode == "aligned"
    )
    return _Scene(flow, plan.topology, target, reports, read_ledger(target, flow=flow_id).standing(), path, aligned)


def _report(scene: _Scene, topic: str, partition: int) -> PartitionStatus:
    report = scene.reports.get((topic, partition))
    if report is None:
        known = ", ".join(sorted({name for name, _ in scene.reports})) or "none"
        raise click.UsageError(
            f"nobody has reported on {topic}-{partition} of {scene.flow.id}; topics that are reported: {known}"
        )
    if time.time() * 1000 - report.at_ms > _STALE_MS:
        raise click.UsageError(
            f"no worker serves {topic}-{partition} of {scene.flow.id} now, so nobody can say what is lost; "
            f"start one: {render_shell_command('topology', 'worker', scene.path, '--target', scene.flow.target)}"
        )
    return report


def _known(scene: _Scene, topic: str, partition: int) -> DecisionBasis:
    key = scene.key(topic, partition)
    if key is None:
        raise click.UsageError(
            f"the ledger knows nothing of {topic}-{partition} of {scene.flow.id}: nothing was copied, so there is "
            "nothing to decide. Empty the target if it holds foreign records, then "
            f"`{render_shell_command('topology', 'flow', 'restart', scene.flow.id, scene.path)}`"
        )
    return scene.standing[key]


def _copied(scene: _Scene, topic: str) -> list[int]:
    found = sorted(key.partition for key in scene.standing if key.topic == topic)
    if not found:
        _known(scene, topic, 0)
    return found


def _reseedable(scene: _Scene, topic: str, partition: int, target_id: str) -> str:
    """The loud state that the order answers; a partition without traffic may not have noticed a new topic yet."""
    from replicator.partition_states import RESEEDABLE_STATES

    report = _report(scene, topic, partition)
    if report.state in RESEEDABLE_STATES:
        return report.state
    if str(_known(scene, topic, partition).target_id) != target_id:
        return "target_gone"
    raise click.UsageError(
        f"{topic}-{partition} of {scene.flow.id} is {report.state}; reseed answers "
        f"{', '.join(sorted(RESEEDABLE_STATES))}. "
        "Name single partitions with --partition"
    )


def _not_ready(scene: _Scene, admin: Admin, topic: str, numbers: Sequence[int], *, whole: bool) -> str:
    """What is in the way of copying into the target, with the commands that remove it; empty when nothing is."""
    from clusters.topic_partition import TopicPartition

    name = scene.flow.target_topic(topic)
    call = ["--bootstrap-server", ",".join(scene.target.bootstrap)]
    if scene.target.protocol != "PLAINTEXT":
        call += ["--command-config", "admin.properties"]
    found = admin.topic(name)
    one = [] if whole else ["--partition", numbers[0]]
    again = (
        f"then: {render_shell_command('topology', 'flow', 'reseed', scene.flow.id, scene.path, '--topic', topic, *one)}"
    )
    if found is None:
        replicas = scene.flow.replication_factor or min(3, admin.brokers())
        create = render_shell_command(
            *("kafka-topics", *call, "--create", "--topic", name, "--partitions", max(_copied(scene, topic)) + 1),
            *("--replication-factor", replicas, "--config", "compression.type=producer"),
        )
        return (
            f"topic {name} does not exist on {scene.flow.target}. Create it:\n  {create}\n  (with the configs of the "
            f"source that it had; `{render_shell_command('topology', 'plan', scene.path)}` shows what differs)\n{again}"
        )
    lacking = [number for number in numbers if number >= found.partitions]
    if lacking:
        needed = max(lacking) + 1
        return (
            f"topic {name} on {scene.flow.target} has {found.partitions} partitions, {needed} are needed:\n"
            "  "
            f"{render_shell_command('kafka-topics', *call, '--alter', '--topic', name, '--partitions', needed)}"
            f"\n{again}"
        )
    spans = admin.offsets([TopicPartition(name, number) for number in numbers], "read_uncommitted")
    aligned = topic in scene.aligned  # a log that was only emptied goes on where it ended
    full = {
        key.partition: span for key, span in sorted(spans.items()) if span.start < span.end or (aligned and span.end)
    }
    if not full:
        return ""
    held = "; ".join(f"partition {number}: offsets {s.start} to {s.end - 1}" for number, s in full.items())
    if whole or aligned:
        configs = admin.topic_configs([name])[name]
        config = [part for key, value in sorted(configs.items()) for part in ("--config", f"{key}={value}")]
        create = render_shell_command(
            *("kafka-topics", *call, "--create", "--topic", name, "--partitions", found.partitions),
            *("--replication-factor", found.replication_factor, *config),
        )
        empty = f"  {render_shell_command('kafka-topics', *call, '--delete', '--topic', name)}\n  {create}"
    else:
        rows = [{"topic": name, "partition": number, "offset": -1} for number in full]
        document = json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))
        empty = (
            f"  {render_shell_command('echo', document)} > empty.json\n"
            f"  {render_shell_command('kafka-delete-records', *call, '--offset-json-file', 'empty.json')}"
        )
    return (
        f"topic {name} on {scene.flow.target} still holds records ({held}). Stop its readers, then:\n{empty}\n{again}"
    )


def _ordered(scene: _Scene, orders: Sequence[OperatorDecision], yes: bool, wait_s: float) -> int:
    from clusters.control_topics import ControlWriter
    from replicator.recovery.operator_decisions import submit_decision

    if not yes:
        require_confirmation("Do this?")
    given = [replace(each, id=secrets.token_hex(8), at_ms=int(time.time() * 1000)) for each in orders]
    with ControlWriter(scene.target, client_id="watershed-flow") as writer:
        for order in given:
            submit_decision(writer, order, scene.topology)
    click.echo(f"ordered and written to watershed.journal: {', '.join(order.id for order in given)}")
    return await_workers(scene.flow.id, scene.target, scene.path, given, wait_s)


def await_workers(
    flow_id: str,
    target: ConnectionSettings,
    path: Path,
    orders: Sequence[OperatorDecision],
    wait_s: float,
    *,
    aside: bool = False,
) -> int:
    """Wait for what the workers say. The ledger names the order that a partition obeyed, the status one it refused."""
    from clusters.partition_status_records import read_partition_statuses
    from replicator.ledger.ledger import read_ledger

    waiting, worst = {(order.topic, order.partition): order for order in orders}, 0
    deadline = time.monotonic() + wait_s
    while waiting and time.monotonic() < deadline:
        time.sleep(min(1.0, wait_s))
        standing = read_ledger(target, flow=flow_id).standing()
        obeyed = {(key.topic, key.partition): known.order for key, known in standing.items()}
        refused = {
            (report.topic, report.partition): report.error or ""
            for report in read_partition_statuses(target)
            if report.flow == flow_id and " is refused: " in (report.error or "")
        }
        for where, order in list(waiting.items()):
            if obeyed.get(where) == order.id:
                click.echo(f"{order.topic}-{order.partition}: {order.note}", err=aside)
                del waiting[where]
            elif f"{order.kind} {order.id} " in refused.get(where, ""):
                click.echo(f"{order.topic}-{order.partition}: {refused[where]}", err=True)
                worst = _EXIT_REFUSED
                del waiting[where]
    for order in waiting.values():
        click.echo(
            f"{order.topic}-{order.partition}: no worker has answered yet; "
            f"`{render_shell_command('topology', 'status', path)}` will show it",
            err=True,
        )
    return _EXIT_WAITING if waiting else worst
