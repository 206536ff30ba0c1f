"""Archives and restores as text for a terminal, and as JSON: each function returns both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watershed.spark.archive.archive_run import ArchiveEstimate, ArchiveOutcome, ArchivePlan
    from watershed.spark.archive.manifest import ArchiveManifest
    from watershed.spark.archive.restore_run import RestoreOutcome, RestorePlan
    from watershed.spark.archive.schema_restore import SchemaOutcome
    from watershed.spark.archive.topic_comparison import PartitionComparison

_Told = tuple[str, dict[str, Any]]


def render_archive_estimate(plan: ArchivePlan, estimate: ArchiveEstimate) -> _Told:
    """What a run would write."""
    from watershed.topology.rounded_amounts import render_counted_noun, render_rounded_size

    offsets = sum(each.end - each.first for each in plan.ranges)
    lines = [
        f"{each.topic}-{each.partition}  offsets {each.first} to {each.end}"
        for each in plan.ranges
        if each.end > each.first
    ]
    size = render_rounded_size(estimate.size)
    head = f"would write about {render_counted_noun(estimate.objects, 'object')}, {size}, for {offsets:,} offsets"
    document = {
        "objects": estimate.objects,
        "bytes": estimate.size,
        "offsets": offsets,
        "ranges": [
            {"topic": each.topic, "partition": each.partition, "first": each.first, "end": each.end}
            for each in plan.ranges
        ],
        "kept": [each.path for each in plan.kept],
    }
    return "\n".join([*lines, head]), document


def render_archive_outcome(outcome: ArchiveOutcome, place: str) -> _Told:
    """What a run has written."""
    from watershed.spark.archive.manifest import find_objects_root, find_seal
    from watershed.topology.rounded_amounts import render_counted_noun, render_rounded_size

    manifest = outcome.manifest
    fresh = (*outcome.kept, *outcome.written)
    new = f"{render_counted_noun(len(fresh), 'new object')}, {render_rounded_size(sum(each.size for each in fresh))}"
    records = render_counted_noun(sum(each.records for each in fresh), "record")
    first = (
        f"version {manifest.version}: {new}, {records}"
        if outcome.is_changed
        else f"version {manifest.version}: nothing new"
    )
    lines = [first, *_describe_content(manifest)]
    if outcome.kept:
        lines.append(f"kept of a run that was ended: {render_counted_noun(len(outcome.kept), 'object')}")
    lines += [
        f"open transactions: {topic.name}-{part.partition} has {part.pending:,} offsets behind {part.log_end}"
        for topic in manifest.topics
        for part in topic.partitions
        if part.pending
    ]
    lines += [f"root     {find_objects_root(manifest)}", f"seal     {find_seal(manifest)}", f"archive  {place}"]
    document = {
        **_build_content(manifest),
        "changed": outcome.is_changed,
        "written": [each.path for each in outcome.written],
        "kept": [each.path for each in outcome.kept],
        "unread_positions": list(outcome.unread),
    }
    return "\n".join(lines), document


def render_manifest(manifest: ArchiveManifest, faults: Sequence[str]) -> _Told:
    """What an archive holds, and what is wrong with it."""
    from watershed.spark.archive.manifest import find_objects_root, find_seal
    from watershed.topology.rounded_amounts import render_counted_noun

    whole = f"whole: {render_counted_noun(len(manifest.objects), 'object')} are as version {manifest.version} says"
    lines = [*faults, *([] if faults else [whole]), *_describe_content(manifest)]
    lines += [f"root     {find_objects_root(manifest)}", f"seal     {find_seal(manifest)}"]
    return "\n".join(lines), {**_build_content(manifest), "faults": list(faults)}


def render_restore_plan(plan: RestorePlan) -> _Told:
    """What a restore would do."""
    rows = [
        [each.archived.name, each.target, "exists" if each.target in plan.existing else "is created"]
        for each in plan.topics
    ]
    lines = [_render_offsets(plan), *_align_columns([["topic", "as", ""], *rows])]
    lines += _render_schemas(plan.schemas, "would be registered")
    document = {
        "offsets": plan.mode,
        "why_mapped": plan.why_mapped,
        "schemas": _build_schemas(plan.schemas),
        "topics": [
            {"topic": each.archived.name, "target": each.target, "exists": each.target in plan.existing}
            for each in plan.topics
        ],
    }
    return "\n".join(lines), document


def render_restore_outcome(outcome: RestoreOutcome, map_file: Path) -> _Told:
    """What a restore has done."""
    states = [each.state for each in outcome.positions]
    lines = [_render_offsets(outcome.plan)]
    lines += _align_columns(
        [["partition", "log ends at"], *([str(place), f"{end:,}"] for place, end in sorted(outcome.ends.items()))]
    )
    if outcome.plan.mode == "mapped":
        lines.append(f"map of offsets: {map_file}")
    lines.append(
        f"positions: {states.count('committed')} committed, {states.count('there')} there already, "
        f"{states.count('left')} left alone"
    )
    lines += _render_schemas(outcome.schemas, "registered")
    document = {
        "offsets": outcome.plan.mode,
        "why_mapped": outcome.plan.why_mapped,
        "schemas": _build_schemas(outcome.schemas),
        "partitions": [
            {"topic": place.topic, "partition": place.partition, "end": end}
            for place, end in sorted(outcome.ends.items())
        ],
        "positions": [
            {
                "group": each.wanted.group,
                "topic": each.wanted.place.topic,
                "partition": each.wanted.place.partition,
                "offset": each.wanted.offset,
                "state": each.state,
                "why": each.why,
            }
            for each in outcome.positions
        ],
    }
    return "\n".join(lines), document


def render_comparison(found: Sequence[PartitionComparison]) -> _Told:
    """One line a partition."""
    head = [
        "partition",
        "archive",
        "topic",
        "equal",
        "missing",
        "extra",
        "altered",
        "gone",
        "fingerprints",
        "first difference",
    ]
    rows = [
        [
            f"{each.topic}-{each.partition}",
            *(f"{count:,}" for count in _count(each)),
            "equal" if each.is_equal else "different",
            "-" if each.first_difference < 0 else f"{each.first_difference:,}",
        ]
        for each in found
    ]
    is_equal = all(each.is_equal for each in found)
    verdict = (
        "EQUAL" if is_equal and not any(each.gone for each in found) else "INCOMPLETE" if is_equal else "DIFFERENT"
    )
    document = {
        "verdict": verdict.lower(),
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                **dict(zip(_COUNTS, _count(each), strict=True)),
                "is_equal": each.is_equal,
                "first_difference": None if each.first_difference < 0 else each.first_difference,
                "archive_fingerprint": f"{each.archive_sum.order:016x}",
                "topic_fingerprint": f"{each.topic_sum.order:016x}",
            }
            for each in found
        ],
    }
    return "\n".join([*_align_columns([head, *rows]), verdict]), document


_COUNTS = ("archive", "topic", "equal", "missing", "extra", "altered", "gone")


def _count(each: PartitionComparison) -> tuple[int, ...]:
    return each.archived, each.found, each.equal, each.missing, each.extra, each.altered, each.gone


def _render_schemas(schemas: SchemaOutcome, done: str) -> list[str]:
    """Nothing where the archive has none of these topics."""
    if schemas == type(schemas)():
        return []
    return [f"schemas: {schemas.registered} {done}, {schemas.there} there already, {len(schemas.left)} left alone"]


def _build_schemas(schemas: SchemaOutcome) -> dict[str, Any]:
    return {"registered": schemas.registered, "there": schemas.there, "left": list(schemas.left)}


def _render_offsets(plan: RestorePlan) -> str:
    return "offsets equal" if plan.mode == "equal" else f"offsets mapped: {plan.why_mapped}"


def _describe_content(manifest: ArchiveManifest) -> list[str]:
    from watershed.topology.rounded_amounts import render_counted_noun, render_rounded_size

    records = render_counted_noun(sum(each.records for each in manifest.objects), "record")
    size = render_rounded_size(sum(each.size for each in manifest.objects))
    topics = render_counted_noun(len(manifest.topics), "topic")
    positions = render_counted_noun(len(manifest.positions), "position")
    schemas = render_counted_noun(len(manifest.schemas), "schema")
    return [
        f"cluster {manifest.cluster} ({manifest.cluster_id}): {topics}, {records}, {size}, {positions} of groups, "
        f"{schemas}"
    ]


def _build_content(manifest: ArchiveManifest) -> dict[str, Any]:
    from watershed.spark.archive.manifest import find_objects_root, find_seal

    return {
        "version": manifest.version,
        "cluster": manifest.cluster,
        "cluster_id": manifest.cluster_id,
        "topics": [topic.name for topic in manifest.topics],
        "objects": len(manifest.objects),
        "records": sum(each.records for each in manifest.objects),
        "bytes": sum(each.size for each in manifest.objects),
        "positions": len(manifest.positions),
        "schemas": len(manifest.schemas),
        "merkle_root": find_objects_root(manifest),
        "seal": find_seal(manifest),
    }


def _align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
