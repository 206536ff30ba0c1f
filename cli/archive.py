"""`topology archive`: topics into a folder, checked and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watershed.cli.archive_text import (
    render_archive_estimate,
    render_archive_outcome,
    render_comparison,
    render_manifest,
)
from watershed.cli.archive_topics import find_cluster_settings, parse_topic_globs
from watershed.cli.quantity_param import RATE_PARAM, SIZE_PARAM

if TYPE_CHECKING:
    from watershed.clusters.registry.registry_settings import RegistrySettings
    from watershed.clusters.settings import ConnectionSettings
    from watershed.spark.archive.manifest import ArchivedObject


@click.command(
    epilog="Example: topology archive orders.yaml --cluster onprem --topics 'orders.*' --to /mnt/disk/orders"
)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--cluster", "alias", metavar="ALIAS", help="The cluster whose topics are archived, or compared.")
@click.option("--topics", multiple=True, metavar="GLOB,GLOB", help="Topics of the cluster; may be repeated.")
@click.option("--to", "place", metavar="DIR", help="Where the archive goes, or lies: a folder, or s3a://BUCKET/PREFIX.")
@click.option(
    "--object-size", type=SIZE_PARAM, default="32MiB", show_default=True, help="Bytes of batches in an object."
)
@click.option("--max-rate", type=RATE_PARAM, metavar="RATE", help="Read no more of the cluster, e.g. 50MiB/s.")
@click.option("--dry-run", is_flag=True, help="Say how many bytes and objects it would write.")
@click.option("--check", metavar="DIR", help="Is this archive as it was written?")
@click.option("--seal", metavar="HASH", help="With --check: the seal that was written down.")
@click.option("--compare", metavar="DIR", help="Archive against topics, both ways.")
@click.option("--rename", "renames", multiple=True, metavar="OLD=NEW", help="With --compare: as for `restore`.")
@click.option("--map", "map_file", type=click.Path(path_type=Path), metavar="FILE",
              help="With --compare: the map that a restore with other offsets wrote.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def archive(
    context: click.Context,
    path: Path | None,
    alias: str | None,
    topics: tuple[str, ...],
    place: str | None,
    object_size: int,
    max_rate: int | None,
    dry_run: bool,
    check: str | None,
    seal: str | None,
    compare: str | None,
    renames: tuple[str, ...],
    map_file: Path | None,
    form: str,
) -> int:
    """Write topics of a cluster into a folder: record batches as stored, configs, positions of groups, schemas.

    Run it again to add what is new. A run that was killed goes on where it stopped. Needs READ, DESCRIBE and
    DESCRIBE_CONFIGS on the topics, and DESCRIBE on groups.

    --check reads the whole archive and needs no cluster (exit code 0: as it was written, 1: each fault is named).
    --compare reads archive and topics and compares every record (exit code 0: equal, 1: different, 3: retention took
    some records before they could be compared). docs/archive.md explains all of it.
    """
    _require_one_purpose(place, check, compare, seal, renames, map_file)
    if check is not None:
        return _check_archive(check, seal, form)
    if path is None or alias is None:
        raise click.UsageError("name the topology file and the cluster: topology archive FILE --cluster ALIAS")
    settings, registry = find_cluster_settings(path, alias)
    if compare is not None:
        return _compare_archive(settings, compare, topics, renames, map_file, form)
    if place is None or not topics:
        raise click.UsageError("name the topics and the folder: --topics GLOB --to DIR")
    is_quiet = bool(context.obj and context.obj.get("quiet")) or form == "json"
    return _write_archive(
        settings, registry, topics, place, object_size, max_rate, form, dry_run=dry_run, is_quiet=is_quiet
    )


def _require_one_purpose(
    place: str | None,
    check: str | None,
    compare: str | None,
    seal: str | None,
    renames: tuple[str, ...],
    map_file: Path | None,
) -> None:
    if sum(each is not None for each in (place, check, compare)) > 1:
        raise click.UsageError("--to, --check and --compare do different things; give one of them")
    if seal and check is None:
        raise click.UsageError("--seal goes with --check only")
    if (renames or map_file) and compare is None:
        raise click.UsageError("--rename and --map go with --compare only")


def _write_archive(
    settings: ConnectionSettings,
    registry: RegistrySettings | None,
    topics: tuple[str, ...],
    place: str,
    object_size: int,
    max_rate: int | None,
    form: str,
    *,
    dry_run: bool,
    is_quiet: bool,
) -> int:
    from watershed.spark.archive.archive_run import archive_topics, estimate_archive, plan_archive
    from watershed.spark.archive.s3_storage import open_archive_storage

    selection, storage = parse_topic_globs(topics), open_archive_storage(place)
    if dry_run:
        plan = plan_archive(settings, selection, storage)
        _show(render_archive_estimate(plan, estimate_archive(settings, plan, object_size)), form)
        return 0

    def report(entry: ArchivedObject) -> None:
        if not is_quiet:
            click.echo(f"{entry.path}  {entry.records:,} records, {entry.size:,} bytes", err=True)

    with storage.lock():
        outcome = archive_topics(
            settings,
            selection,
            storage,
            registry=registry,
            object_bytes=object_size,
            max_rate=max_rate,
            report=report,
        )
    _show(render_archive_outcome(outcome, place), form)
    for line in outcome.unread:
        click.echo(f"position not archived: {line}", err=True)
    return 3 if outcome.unread else 0


def _check_archive(place: str, seal: str | None, form: str) -> int:
    from watershed.spark.archive.archive_reader import find_faults, require_manifest
    from watershed.spark.archive.manifest import find_seal
    from watershed.spark.archive.s3_storage import open_archive_storage

    storage = open_archive_storage(place)
    manifest = require_manifest(storage)
    faults = find_faults(storage, manifest.objects)
    if seal is not None and seal.removeprefix("sha256:") != find_seal(manifest).removeprefix("sha256:"):
        faults.append(f"the archive has the seal {find_seal(manifest)}, the one that was asked for is {seal}")
    _show(render_manifest(manifest, faults), form)
    return 1 if faults else 0


def _compare_archive(
    settings: ConnectionSettings,
    place: str,
    topics: tuple[str, ...],
    renames: tuple[str, ...],
    map_file: Path | None,
    form: str,
) -> int:
    from watershed.spark.archive.archive_comparison import compare_archive
    from watershed.spark.archive.s3_storage import open_archive_storage

    selection = parse_topic_globs(topics) if topics else None
    found = compare_archive(settings, open_archive_storage(place), selection, renames, map_file)
    _show(render_comparison(found), form)
    if not all(each.is_equal for each in found):
        return 1
    return 3 if any(each.gone for each in found) else 0


def _show(told: tuple[str, dict[str, Any]], form: str) -> None:
    text, document = told
    click.echo(json.dumps(document, indent=2) if form == "json" else text)
