"""`topology restore`: an archive's topics into a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watershed.cli.archive_text import render_restore_outcome, render_restore_plan
from watershed.cli.archive_topics import choose_map_file, find_cluster_settings, parse_topic_globs

if TYPE_CHECKING:
    from watershed.spark.archive.restore_run import OffsetsChoice
    from watershed.spark.archive.schema_restore import SchemaOutcome


@click.command(epilog="Example: topology restore orders.yaml --cluster cloud --from /mnt/disk/orders")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--cluster", "alias", required=True, metavar="ALIAS", help="The cluster that gets the topics.")
@click.option("--from", "place", required=True, metavar="DIR", help="The archive: a folder, or s3a://BUCKET/PREFIX.")
@click.option("--topics", multiple=True, metavar="GLOB,GLOB", help="Only these topics of the archive.  [default: all]")
@click.option("--rename", "renames", multiple=True, metavar="OLD=NEW", help="Another name; one * may be on both sides.")
@click.option("--offsets", type=click.Choice(["auto", "equal", "mapped"]), default="auto", show_default=True,
              help="auto: equal where the cluster allows it, else mapped.")  # fmt: skip
@click.option("--map", "map_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Where a map of offsets that are not equal goes.  [default: DIR.ALIAS.offsets.json]")  # fmt: skip
@click.option("--schemas/--no-schemas", "has_schemas", default=True, show_default=True,
              help="Bring archived schemas to the cluster's registry, with their ids.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Check the archive and the cluster; write no record.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def restore(
    context: click.Context,
    path: Path,
    alias: str,
    place: str,
    topics: tuple[str, ...],
    renames: tuple[str, ...],
    offsets: OffsetsChoice,
    map_file: Path | None,
    has_schemas: bool,
    dry_run: bool,
    form: str,
) -> int:
    """Bring archived topics back: schemas, configs, records at the same offsets, and positions of groups.

    Creates topics that are missing and refuses those that hold something else. Every object is compared with the
    manifest before anything is written. A run that was killed goes on where it stopped: run it again. Groups with
    members, groups that have committed something else, and schemas whose id means another schema in the target's
    registry are left alone (exit code 1, each is named).

    Needs CREATE, WRITE, READ, DESCRIBE_CONFIGS and ALTER_CONFIGS on the topics, DESCRIBE_CONFIGS on the cluster, WRITE
    on transactional ids that begin with `watershed-restore|` and `watershed-fill|`, READ on the groups; equal offsets
    need DELETE on the topics (DeleteRecords), and ALTER on the cluster makes gaps cheap. docs/archive.md explains it.
    """
    from watershed.clusters.admin import Admin
    from watershed.spark.archive.restore_run import RestoreRequest, plan_restore, restore_topics
    from watershed.spark.archive.s3_storage import open_archive_storage

    settings, registry = find_cluster_settings(path, alias)
    selection = parse_topic_globs(topics) if topics else None
    where = map_file or choose_map_file(place, alias)
    request = RestoreRequest(selection, renames, offsets, where, registry, has_schemas)
    storage = open_archive_storage(place)
    if dry_run:
        with Admin(settings) as admin:
            admin.check_identity()
            plan = plan_restore(settings, storage, request, admin)
        _show(render_restore_plan(plan), form)
        _tell_left_schemas(plan.schemas)
        return 0
    is_quiet = bool(context.obj and context.obj.get("quiet")) or form == "json"
    outcome = restore_topics(settings, storage, request, lambda text: None if is_quiet else click.echo(text, err=True))
    _show(render_restore_outcome(outcome, where), form)
    left = [each for each in outcome.positions if each.state == "left"]
    for each in left:
        click.echo(f"{each.wanted.group}, {each.wanted.place}: left alone: {each.why}", err=True)
    _tell_left_schemas(outcome.schemas)
    return 1 if left or outcome.schemas.left else 0


def _tell_left_schemas(schemas: SchemaOutcome) -> None:
    for line in schemas.left:
        click.echo(f"schema not restored: {line}", err=True)


def _show(told: tuple[str, dict[str, Any]], form: str) -> None:
    text, document = told
    click.echo(json.dumps(document, indent=2) if form == "json" else text)
