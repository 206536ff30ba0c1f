"""`topology plan`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusters.settings import ConnectionSettings
    from replicator.copy.aligned.offset_mode_plan import TopicOffsetMode
    from topology.delivery_guarantee import GuaranteeDecision
    from topology.drift import FieldDrift
    from topology.inventory import Inventory
    from topology.lint import LintResult
    from topology.plan import Plan
    from topology.unsupported_settings import UnsupportedSetting


@click.command(epilog="Example: topology plan orders.yaml --fail-on-changes")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--fail-on-changes", is_flag=True, help="Exit 3 when `topology apply` would change something.")
@click.option(
    "--capabilities",
    "probed",
    multiple=True,
    type=click.Path(path_type=Path),
    help="What `topology probe` saw a cluster do; may be repeated.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Also write the JSON document here.")
def plan(path: Path, form: str, fail_on_changes: bool, probed: tuple[Path, ...], output: Path | None) -> int:
    """What `topology apply` would do on the live clusters, field by field, and what differs that it leaves alone.

    Read-only. Asks every rule, those about live clusters too. Exits 1 with errors among the findings, 2 when a cluster
    does not answer, 3 with --fail-on-changes and changes.
    """
    import json

    from cli.output_files import require_writable, write_output_files
    from cli.plan_settings import build_settings_lookup
    from clusters import control_topics
    from replicator.copy.aligned.offset_mode_plan import plan_offset_modes
    from replicator.sync.sync_on_apply import find_sync_differences
    from topology import compile_path
    from topology.drift import find_drift
    from topology.inventory_json import decode_capability_record
    from topology.lint import lint_path
    from topology.lint_configuration import read_nearest_configuration
    from topology.loader import load_topology, read_text_file
    from topology.unsupported_settings import find_unsupported_settings

    require_writable(output)
    compiled = compile_path(path)
    inventory = _scanned(compiled)
    for file in probed:
        inventory = inventory.with_probe(decode_capability_record(read_text_file(file)))
    result = lint_path(path, inventory, read_nearest_configuration(path))
    own = (
        control_topics.FLOWS_TOPIC,
        control_topics.LEDGER_TOPIC,
        control_topics.STATUS_TOPIC,
        control_topics.JOURNAL_TOPIC,
    )
    found = find_drift(compiled, inventory, own) + find_sync_differences(compiled, build_settings_lookup(compiled))
    offsets = plan_offset_modes(compiled, build_settings_lookup(compiled))
    topology = load_topology(path).topology
    missing = list(find_unsupported_settings(topology)) if topology is not None else []
    document = (
        json.dumps(_document(compiled, inventory, found, result, missing, offsets), indent=2, ensure_ascii=False) + "\n"
    )
    if output is not None:
        write_output_files({output: document})
    text = "\n".join(_lines(compiled, inventory, found, result, missing, offsets)) + "\n"
    click.echo(document if form == "json" else text, nl=False)
    if result.errors:
        return 1
    return 3 if fail_on_changes and any(each.applied for each in found) else 0


def _scanned(compiled: Plan) -> Inventory:
    """All clusters of the plan, at once. Raises ClusterError for the first that cannot be scanned."""
    from concurrent.futures import ThreadPoolExecutor
    from dataclasses import replace

    from cli.plan_settings import build_settings_lookup
    from clusters.inventory_scan import scan_cluster
    from topology.inventory import Inventory

    connect = build_settings_lookup(compiled)
    # another cluster than the pinned one is a finding here (CLU105), not the end
    settings = {each.alias: replace(connect(each.alias), cluster_id=None) for each in compiled.clusters}
    with ThreadPoolExecutor(8) as pool:
        seen = dict(
            zip(settings, pool.map(lambda alias: scan_cluster(settings[alias], sample_s=0), settings), strict=True)
        )
    if compiled.migration is not None:
        target = compiled.flow(compiled.migration.flow).target
        seen[target] = replace(seen[target], started_waves=_started(compiled, settings[target]))
    return Inventory(seen, live=True)


def _started(compiled: Plan, settings: ConnectionSettings) -> dict[str, str]:
    """The waves that the journal knows. Raises CutoverError, and ClusterError (also without its key)."""
    from cutover.journal.topology_journal import read_journal_chain
    from cutover.run_claim import find_started_waves

    return find_started_waves(read_journal_chain(compiled, settings))


def _document(
    compiled: Plan,
    inventory: Inventory,
    found: list[FieldDrift],
    result: LintResult,
    missing: list[UnsupportedSetting],
    offsets: list[TopicOffsetMode],
) -> dict[str, Any]:
    decisions = _decide_guarantees(compiled, inventory)
    return {
        "schema": 1,
        "topology": compiled.topology,
        "plan": compiled.hash,
        "clusters": {
            alias: {"cluster_id": each.cluster_id, "kafka": each.kafka, "taken_ms": each.taken_ms}
            for alias, each in sorted(inventory.clusters.items())
        },
        "changes": [each.to_json() for each in found],
        "flows": [
            {
                "id": each.id,
                "delivery": each.delivery,
                "reason": each.delivery_reason,
                "paths": each.paths,
                **_guarantee_json(decisions.get(each.id)),
                "schema_ids": "translate" if each.sync.schemas.translated else "preserve",
            }
            for each in compiled.flows
        ],
        "offsets": [each.to_json() for each in offsets],
        "not_done": [{"flow": each.flow, "path": each.path, "value": each.value} for each in missing],
        "findings": [finding.to_json() for finding in result.findings],
    }


def _lines(
    compiled: Plan,
    inventory: Inventory,
    found: list[FieldDrift],
    result: LintResult,
    missing: list[UnsupportedSetting],
    offsets: list[TopicOffsetMode],
) -> Iterator[str]:
    from topology.reports.text import render_frames

    for frame in render_frames(result):
        yield f"{frame}\n"
    for alias, cluster in sorted(inventory.clusters.items()):
        yield f"{alias}  (cluster {cluster.cluster_id}, Kafka {cluster.kafka or 'of an unknown release'})"
        mine = [each for each in found if each.cluster == alias]
        for kind, name in dict.fromkeys((each.kind, each.name) for each in mine):
            yield from _thing(kind, name, [each for each in mine if (each.kind, each.name) == (kind, name)])
        if not mine:
            yield "  no difference"
        yield ""
    yield from (f"! {each}" for each in missing)
    yield from _guarantee_lines(compiled, _decide_guarantees(compiled, inventory))
    for flow in compiled.flows:
        if flow.delivery == "transactions":
            told = ", and tells the way of each batch" if flow.paths else ""
            yield f"  {flow.id} copies in transactions{told}: {flow.delivery_reason}"
        if flow.offsets_reason:
            yield f"  {flow.id} translates offsets, though the file asks for `aligned`: {flow.offsets_reason}"
        if flow.sync.schemas.translated:
            yield f"  {flow.id} writes the schema ids of {flow.target} into the records of topics that have subjects"
    yield from (f"  {each}" for each in offsets)
    applied = {(each.cluster, each.kind, each.name) for each in found if each.applied}
    left = {(each.cluster, each.kind, each.name) for each in found if not each.applied}
    yield (
        f"{compiled.topology}: {len(applied)} to create or update with `topology apply`, "
        f"{len(left)} differ and are left alone  ({compiled.hash[:19]})"
    )


def _decide_guarantees(compiled: Plan, inventory: Inventory) -> dict[str, GuaranteeDecision]:
    """By flow id, from what the brokers of both clusters said just now. A flow is not there whose clusters did not say
    it, unless the one that did lacks something."""
    from topology.repeat_obstacles import decide_flow_guarantee

    decisions = {}
    for flow in compiled.flows:
        seen = inventory.cluster(flow.source), inventory.cluster(flow.target)
        source, target = (None if each is None else each.capabilities for each in seen)
        decision = decide_flow_guarantee(flow, source, target, compiled.flows)
        if decision.missing or (source is not None and target is not None):
            decisions[flow.id] = decision
    return decisions


def _guarantee_json(decision: GuaranteeDecision | None) -> dict[str, Any]:
    """Of one flow; null where it is not known."""
    from dataclasses import asdict

    return {
        "guarantee": None if decision is None else decision.guarantee,
        "guarantee_executed": None if decision is None else decision.is_executed,
        "missing": [] if decision is None else [asdict(each) for each in decision.missing],
        "notes": [] if decision is None else list(decision.notes),
    }


def _guarantee_lines(compiled: Plan, decisions: dict[str, GuaranteeDecision]) -> Iterator[str]:
    """The flows that have a guarantee, by guarantee, with its notes; those that are refused have a finding (CLU113)."""
    from topology.rounded_amounts import render_counted_noun, render_first_names

    told: dict[str, list[str]] = {}
    notes: dict[str, set[str]] = {}
    for flow in compiled.flows:
        decision = decisions.get(flow.id)
        if decision is None:
            title = "! guarantee not known, the brokers could not be asked"
        elif decision.is_executed:
            title = f"  {decision.guarantee}"
        else:
            title = "! refused, see CLU113"
        told.setdefault(title, []).append(flow.id)
        notes.setdefault(title, set()).update(() if decision is None else decision.notes)
    for title, flows in sorted(told.items()):
        yield f"{title}: {render_counted_noun(len(flows), 'flow')} ({render_first_names(tuple(flows))})"
        yield from (f"    {note}" for note in sorted(notes[title]))


def _thing(kind: str, name: str, fields: list[FieldDrift]) -> Iterator[str]:
    new = all(each.live is None for each in fields)
    applied = any(each.applied for each in fields)
    sign = "!" if not applied else "+" if new else "~"
    yield f"  {sign} {kind} {name}"
    for each in fields:
        if not each.field:
            continue
        before = "" if each.live is None else f"{each.live} "
        mark = "" if new and each.drift == "safe" else f"  {each.drift}"
        why = f": {each.why}" if each.why else ""
        change = f"{before}-> {'nothing' if each.wanted is None else each.wanted}"
        yield f"      {each.field:<20} {change if before or each.wanted is not None else ''}{mark}{why}"
