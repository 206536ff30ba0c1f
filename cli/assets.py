"""`topology assets`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.topology.assets.asset_formats import ASSET_FORMATS, AssetFormat
from watershed.topology.assets.target_assets import ASSET_KINDS, AssetKind

if TYPE_CHECKING:
    from watershed.clusters.required_role_acls import AccountRole
    from watershed.topology.assets.target_assets import AssetTopic, TargetAssets
    from watershed.topology.inventory import Inventory, InventoryAcl
    from watershed.topology.plan import Plan

_LISTED = 10


@click.command(epilog="Example: topology assets orders.yaml --inventory inventory.json --as terraform -o assets/")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--inventory",
    required=True,
    type=click.Path(path_type=Path),
    help="What the clusters hold (`topology scan` writes it).",
)
@click.option("--as", "form", required=True, type=click.Choice(ASSET_FORMATS), help="For which tool.")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="A folder; each cluster gets one in it."
)
@click.option(
    "--only", "kinds", multiple=True, type=click.Choice(ASSET_KINDS), help="Only this; may be repeated.  [default: all]"
)
@click.option("--cluster", "aliases", multiple=True, help="Only for this cluster; may be repeated.  [default: all]")
@click.option("--write-rights", is_flag=True, help="Also rights to write, whatever `include_write` says.")
@click.option(
    "--control-topics", is_flag=True, help="Also Watershed's own topics, for clusters where it may create none."
)
@click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="ROLE=PRINCIPAL",
    help="Also the rights of a role of Watershed (`topology acls`): worker=User:watershed-worker. May be repeated.",
)
@click.option("--kafka", help="For strimzi: the name of the Kafka resource.  [default: the cluster's alias]")
@click.option("--overwrite", is_flag=True, help="Write over files that are there.")
@click.option("--allow-fewer", is_flag=True, help="With --overwrite: also where topics or users go.")
@click.pass_context
def assets(
    context: click.Context,
    path: Path,
    inventory: Path,
    form: AssetFormat,
    output: Path,
    kinds: tuple[AssetKind, ...],
    aliases: tuple[str, ...],
    write_rights: bool,
    control_topics: bool,
    grants: tuple[str, ...],
    kafka: str | None,
    overwrite: bool,
    allow_fewer: bool,
) -> int:
    """Write what the target clusters get as files of another tool: topics, SCRAM users, ACLs and client quotas.

    Asks no cluster. Everything is named, configured and translated as the plan says. What the tool cannot say is listed
    on stderr and in the README of each cluster's folder. No file holds a password.

    Exits 2 when the inventory lacks a source, or when files are there already; 3 when there is nothing to write.
    """
    from watershed.cli.plan_settings import compile_plan_at
    from watershed.topology.assets.asset_formats import render_asset_folder
    from watershed.topology.assets.target_assets import AssetChoice, collect_target_assets
    from watershed.topology.inventory_json import decode_inventory
    from watershed.topology.loader import read_text_file

    if kafka is not None and form != "strimzi":
        raise click.UsageError(f"--kafka names a resource of Strimzi; --as {form} has none")
    plan, seen = compile_plan_at(path), decode_inventory(read_text_file(inventory))
    for alias in aliases:
        plan.cluster(alias)
    own_topics = _list_own_topics(plan, seen) if control_topics else {}
    choice = AssetChoice(
        frozenset(kinds or ASSET_KINDS), frozenset(aliases), write_rights, own_topics, _derive_own_acls(plan, grants)
    )
    found = collect_target_assets(plan, seen, choice)
    files, told = render_asset_folder(plan, found, form, kafka or "")
    _write_folder(output, files, overwrite, allow_fewer)
    if not (context.obj or {}).get("quiet"):
        for each in told:
            _report(each, output)
    if all(each.is_empty() for each in told):
        click.echo(f"topology: there is nothing to write: no running flow of {path} brings anything", err=True)
        return 3
    return 0


def _derive_own_acls(plan: Plan, grants: tuple[str, ...]) -> dict[str, tuple[InventoryAcl, ...]]:
    """By cluster, the rights of the named roles. Raises UsageError."""
    from watershed.clusters.required_role_acls import ACCOUNT_ROLES, derive_required_rights
    from watershed.topology.inventory import InventoryAcl

    found: dict[str, list[InventoryAcl]] = {}
    for text in grants:
        role, _, principal = text.partition("=")
        if role not in ACCOUNT_ROLES or ":" not in principal:
            raise click.UsageError(
                f"--grant {text}: write ROLE=PRINCIPAL, such as worker=User:watershed-worker; roles are "
                f"{', '.join(ACCOUNT_ROLES)}"
            )
        known: AccountRole = role
        for right in derive_required_rights(plan, known):
            acl = InventoryAcl(principal, right.operation, "ALLOW", right.resource, right.name, right.pattern)
            found.setdefault(right.cluster, []).append(acl)
    return {alias: tuple(acls) for alias, acls in found.items()}


def _list_own_topics(plan: Plan, seen: Inventory) -> dict[str, tuple[AssetTopic, ...]]:
    """By target, as `topology apply` creates them. Three brokers where the target was not scanned."""
    from watershed.clusters.control_topics import list_control_topics
    from watershed.topology.assets.target_assets import AssetTopic

    found = {}
    for alias in sorted({flow.target for flow in plan.flows}):
        scanned = seen.cluster(alias)
        brokers = len(scanned.brokers) if scanned is not None else 0
        own = list_control_topics(brokers or 3)
        found[alias] = tuple(AssetTopic(each.name, each.partitions, each.replicas, each.configs) for each in own)
    return found


def _refuse_fewer(old: Path, text: str) -> None:
    """Applying a file without a topic or a user that the old one has may delete it. Raises UsageError."""
    from watershed.topology.assets.asset_formats import list_declared_names

    try:
        gone = sorted(list_declared_names(old.name, old.read_text("utf-8")) - list_declared_names(old.name, text))
    except ValueError as error:
        raise click.UsageError(
            f"{old}: what it declares cannot be read ({error}); move the file away, or write over it with --allow-fewer"
        ) from error
    if gone:
        raise click.UsageError(
            f"{old}: {len(gone)} things that it declares would no longer be in it, such as {gone[0]}; applying it may "
            "delete them, topics with their records. Resume the flow or scan again. Where the tool shall forget them "
            "and keep them (`terraform state rm`), or delete them: --allow-fewer"
        )


def _write_folder(output: Path, files: dict[str, str], overwrite: bool, allow_fewer: bool) -> None:
    """All files, or none. Raises UsageError for files that are there or would lose topics or users, OSError."""
    from watershed.cli.output_files import write_output_files

    if output.exists() and not output.is_dir():
        raise click.UsageError(f"{output} is a file; name a folder")
    there = [name for name in files if (output / name).exists()]
    if there and not overwrite:
        raise click.UsageError(
            f"{output / there[0]} is there ({len(there)} files in all); `--overwrite` writes over them"
        )
    for name in () if allow_fewer else there:
        _refuse_fewer(output / name, files[name])
    for name in files:
        (output / name).parent.mkdir(parents=True, exist_ok=True)
    write_output_files({output / name: text for name, text in files.items()})


def _report(assets: TargetAssets, output: Path) -> None:
    from watershed.topology.assets.asset_formats import count_assets
    from watershed.topology.rounded_amounts import render_counted_noun
    from watershed.topology.text_escaping import escape_controls

    folder = output / assets.cluster.alias
    click.echo(f"{folder}: {count_assets(assets)}; start with {folder / 'README.md'}", err=True)
    if assets.withheld:
        click.echo(f"  left out: {render_counted_noun(assets.withheld, 'right')} to write (--write-rights)", err=True)
    for each in assets.left_out[:_LISTED]:
        click.echo(f"  left out: {escape_controls(each.what)}: {escape_controls(each.why)}", err=True)
    if len(assets.left_out) > _LISTED:
        click.echo(f"  and {len(assets.left_out) - _LISTED:,} more, all in {folder / 'README.md'}", err=True)
