"""`topology flow adopt`: go on behind what MirrorMaker 2, a cluster link or another copier left on the target; in a
terminal. What it does is in `cutover.operations.adoption`, which Airflow uses, too."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.actor import name_actor
from watershed.cli.archive_topics import choose_map_file
from watershed.cli.confirmation import require_confirmation
from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at

if TYPE_CHECKING:
    from watershed.cutover.operations.adoption import AdoptionStage
    from watershed.replicator.adoption.copy_proof import PartitionProof
    from watershed.replicator.partition_key import PartitionKey

_ORIGINS = ("mm2", "equal-offsets", "records", "archive")  # cutover.operations.adoption, which imports a Kafka client
_PROGRESS_S = 5.0


@click.command(epilog="Example: topology flow adopt onprem-to-cloud orders.yaml --from mm2 --dry-run")
@click.argument("flow_id", metavar="FLOW")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--from", "origin", type=click.Choice(_ORIGINS), default="records", show_default=True,
    help="Who copied. mm2: also reads MirrorMaker's own offset topics; equal-offsets (Cluster Linking): requires the "
    "source's offsets; records: needs only the records; archive: `topology restore` did, from --archive.",
)  # fmt: skip
@click.option("--archive", "place", default=None, metavar="DIR", help="archive: the folder that was restored.")
@click.option("--map", "map_file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
              help="archive: the restore's map of offsets; default: DIR.TARGET.offsets.json, if it is there.",
)  # fmt: skip
@click.option("-t", "--topic", "topics", multiple=True, help="Only this source topic; default: all of the flow.")
@click.option("--alias", default=None, help="mm2: what MirrorMaker calls the source; default: its alias in the file.")
@click.option("--target-alias", default=None, help="mm2: what MirrorMaker calls the target; default: as in the file.")
@click.option(
    "--connect-offsets", default=None, metavar="TOPIC",
    help="mm2: the topic of Connect's source offsets on the target; default: mm2-offsets.ALIAS.internal.",
)  # fmt: skip
@click.option(
    "--connect-group", default=None, metavar="GROUP", help="mm2: Connect's group on the target; default: ALIAS-mm2."
)
@click.option(
    "--accept", "accept", multiple=True, metavar="KIND[,KIND]",
    help="Go on although there are such records: duplicates, aborted, missing, compacted, timestamps, unverifiable.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only compare, and say what was found.")
@click.option(
    "--scratch", "directory", type=click.Path(path_type=Path, exists=True, file_okay=False), default=None,
    metavar="DIRECTORY", help="For temporary files: 8 bytes for each record on each side; default: the system's.",
)  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0), default=180.0, show_default=True, metavar="SECONDS",
    help="How long to wait for the worker's answer; it watches the target's end for 35 s first.",
)  # fmt: skip
def adopt(
    flow_id: str, path: Path, origin: str, place: str | None, map_file: Path | None, topics: tuple[str, ...],
    alias: str | None, target_alias: str | None, connect_offsets: str | None, connect_group: str | None,
    accept: tuple[str, ...], dry_run: bool, directory: Path | None, form: str, yes: bool, wait_s: float,
) -> int:  # fmt: skip
    """Go on behind what another copier left on the target, after a proof of it.

    Compares source and target record by record (key, value, headers, timestamp, order). For each partition it shows
    what is proven, what is not an exact copy (with offsets), and where copying would go on. Stop the other copier
    first. With --dry-run nothing is written. Otherwise the flow's workers begin behind the last record that was found.
    Offsets of the part that the other copier wrote are translated exactly, too.

    Exit code 0 when all of it is exact (or accepted by name), 1 when it is not or the worker refuses, 3 when no worker
    answers in time.
    """
    from watershed.cutover.operations import adoption as adopting

    only_mm2 = {"--alias": alias, "--target-alias": target_alias, "--connect-offsets": connect_offsets,
                "--connect-group": connect_group}  # fmt: skip
    _refuse_needless_options(origin, "mm2", only_mm2)
    _refuse_needless_options(origin, "archive", {"--archive": place, "--map": map_file})
    if origin == "archive" and place is None:
        raise click.UsageError("name the archive that was restored: --from archive --archive DIR")
    accepted = adopting.parse_accepted_findings(accept)
    asked = adopting.AdoptionRequest(
        origin, topics, alias, target_alias, connect_offsets, connect_group, accepted, directory, str(path), wait_s
    )
    plan = compile_plan_at(path)
    stage = adopting.open_adoption(plan, build_settings_lookup(plan), flow_id, asked, applied=not dry_run)
    keys, skipped = adopting.list_adoptable_partitions(stage)
    for told in skipped:
        _tell(told)
    if place is None:
        proofs = adopting.prove_adoption(stage, keys, _tell, _Reading().read)
    else:
        proofs = _prove_restored(stage, keys, place, map_file)
    if form == "json":
        click.echo(json.dumps(adopting.encode_adoption(stage, proofs, skipped), indent=2))
    else:
        for line in adopting.render_adoption(stage, proofs):
            click.echo(line)
    proposal = adopting.propose_adoption(stage, proofs)
    if dry_run or not proposal.is_needed:
        return 0
    for line in proposal.lines:
        _tell(line)
    if not yes:
        require_confirmation("Do this?")
    for line in proposal.carry_out(name_actor()):
        click.echo(line, err=form == "json")
    return 0


def _refuse_needless_options(origin: str, wanted: str, given: Mapping[str, object]) -> None:
    needless = [option for option, value in given.items() if value is not None]
    if needless and origin != wanted:
        raise click.UsageError(f"{needless[0]} is for --from {wanted}; with --from {origin} nothing of it is read")


def _prove_restored(
    stage: AdoptionStage, keys: Sequence[PartitionKey], place: str, map_file: Path | None
) -> list[PartitionProof]:
    """What a restore brought, compared with its archive; `_tell`s of partitions that the archive does not hold."""
    from watershed.cutover.operations.adoption import find_compacted_topics
    from watershed.spark.archive.archive_reader import require_manifest
    from watershed.spark.archive.restored_copy_proof import prove_restored_copies, split_archived_partitions
    from watershed.spark.archive.s3_storage import open_archive_storage

    storage = open_archive_storage(place)
    archived, others = split_archived_partitions(require_manifest(storage), keys)
    for told in others:
        _tell(told)
    if not archived:
        return []
    written = map_file or choose_map_file(place, stage.target.alias)
    return prove_restored_copies(
        stage.source,
        stage.target,
        storage,
        archived,
        map_file=written if written.exists() else None,
        compacted=find_compacted_topics(stage, archived),
    )


def _tell(text: str) -> None:
    """Beside the document that standard output may hold."""
    click.echo(text, err=True)


class _Reading:
    """Reports the progress of the comparison on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self._records, self._said = 0, time.monotonic()

    def read(self, key: PartitionKey, records: int) -> None:
        self._records += records
        now = time.monotonic()
        if now - self._said >= _PROGRESS_S and sys.stderr.isatty():
            self._said = now
            _tell(f"{key.topic}-{key.partition}: {self._records:,} records read in all")
