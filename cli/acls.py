"""`topology acls`: the rights that each role needs, and which are missing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watershed.cli.plan_settings import build_settings_lookup, compile_plan_at

if TYPE_CHECKING:
    from watershed.clusters.required_role_acls import AccountRole, RequiredRight
    from watershed.topology.msk_arn import MskArn
    from watershed.topology.plan import Plan

_ROLES = ("apply", "worker", "observe", "verify", "migrate", "align")


@click.command(epilog="Example: topology acls orders.yaml --role worker --principal User:watershed-worker")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--role", type=click.Choice(_ROLES), default="worker", show_default=True, help="Whose rights.")
@click.option("--cluster", help="Only on this cluster.  [default: all]")
@click.option("--principal", default="User:watershed", show_default=True, help="Whom to give them to.")
@click.option("--check", is_flag=True, help="Ask the clusters, with the credentials of this process, what is missing.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "commands", "json", "iam"]),
    default="text",
    show_default=True,
    help="commands: `kafka-acls` calls to run as an administrator. iam: a policy for Amazon MSK.",
)
@click.option(
    "--arn",
    "arns",
    multiple=True,
    metavar="ALIAS=ARN",
    help="For --format iam: the ARN of an MSK cluster.  [default: clusters.ALIAS.arn]",
)
def acls(
    path: Path,
    role: AccountRole,
    cluster: str | None,
    principal: str,
    check: bool,
    form: str,
    arns: tuple[str, ...],
) -> int:
    """The smallest set of ACLs with which a role works, cluster by cluster; nothing is changed.

    With --check, exits 1 when a right is missing, and names what it is needed for.
    """
    from watershed.clusters.required_role_acls import derive_required_rights

    plan = compile_plan_at(path)
    needed = derive_required_rights(plan, role, cluster)
    if not needed and role == "migrate" and plan.migration is None:
        raise click.UsageError(f"{path} has no migration, so the role `migrate` needs nothing")
    if not needed and role == "align":
        raise click.UsageError(f"{path} has no flow with `offsets: aligned`, so the role `align` needs nothing")
    if check:
        if form == "iam":
            raise click.UsageError("--check asks brokers for ACLs; AWS's policy simulator checks a policy")
        return _check(plan, role, needed, form)
    if form == "iam":
        _print_iam_policy(path, plan, cluster, needed, arns)
    elif form == "json":
        rows = [asdict(right) for right in needed]
        click.echo(json.dumps({"schema": 1, "topology": plan.topology, "role": role, "acls": rows}, indent=2))
    elif form == "commands":
        for right in needed:
            click.echo(right.command(principal, ",".join(plan.cluster(right.cluster).bootstrap)))
    else:
        click.echo(_table(needed))
    return 0


def _check(plan: Plan, role: AccountRole, needed: tuple[RequiredRight, ...], form: str) -> int:
    from watershed.clusters.missing_rights import find_missing_among

    found = find_missing_among(role, needed, build_settings_lookup(plan))
    if form == "json":
        rows = [asdict(missing.right) | {"on": missing.on} for missing in found]
        click.echo(json.dumps({"schema": 1, "topology": plan.topology, "role": role, "missing": rows}, indent=2))
    elif found:
        for missing in found:
            click.echo(str(missing))
        click.echo(f"{len(found)} of {len(needed)} rights are missing; `--format commands` shows how to give them")
    else:
        click.echo(f"all {len(needed)} rights of role {role} are there")
    return 1 if found else 0


def _print_iam_policy(
    path: Path, plan: Plan, cluster: str | None, needed: tuple[RequiredRight, ...], given: tuple[str, ...]
) -> None:
    """The policy on standard output; what it leaves out, and where it covers more, on standard error."""
    from watershed.clusters.iam_policy import POLICY_LIMIT, build_iam_policy

    arns, wanted = _find_arns(path, plan, given), dict.fromkeys(right.cluster for right in needed)
    if (cluster is not None and cluster not in arns) or not arns:
        alias = cluster or next(iter(wanted), "ALIAS")
        raise click.UsageError(
            f"a policy names region, account and UUID of the cluster: give them by --arn {alias}="
            f"arn:aws:kafka:REGION:ACCOUNT:cluster/NAME/UUID, or as clusters.{alias}.arn in the file "
            "(`aws kafka list-clusters-v2` shows it)"
        )
    made = build_iam_policy(needed, arns)
    for alias in wanted:
        if alias not in arns:
            click.echo(f"cluster {alias} has no ARN and is left out; `--format commands` has its ACLs", err=True)
    for right in made.left_out:
        click.echo(f"IAM has no action for {_describe(right)}", err=True)
    for right in made.optional:
        click.echo(f"not in the policy, for it is optional: {_describe(right)}", err=True)
    for right in made.wider:
        click.echo(f"wider than the file's selection: {_describe(right)}", err=True)
    if len(json.dumps(made.document, separators=(",", ":"))) > POLICY_LIMIT:
        click.echo(f"longer than the {POLICY_LIMIT:,} characters of one managed policy: split its statements", err=True)
    click.echo(json.dumps(made.document, indent=2))


def _describe(right: RequiredRight) -> str:
    name = f"{right.name}*" if right.pattern == "PREFIXED" else right.name
    return f"{right.operation} on {right.resource} {name} of cluster {right.cluster}: {right.why}"


def _find_arns(path: Path, plan: Plan, given: tuple[str, ...]) -> dict[str, MskArn]:
    """Of the file, and of the options, which win. Raises click.UsageError for an option that names no cluster."""
    from watershed.topology.loader import load_topology
    from watershed.topology.msk_arn import parse_msk_arn

    topology = load_topology(path).topology
    assert topology is not None, "it was compiled before"
    declared = {each.alias: topology.root.get("clusters", each.alias, "arn") for each in plan.clusters}
    found = {alias: arn for alias, arn in declared.items() if arn is not None}
    for text in given:
        alias, _, arn = text.partition("=")
        if alias not in declared:
            raise click.UsageError(f"--arn {text}: {path} has no cluster {alias}; it has {', '.join(sorted(declared))}")
        try:
            found[alias] = parse_msk_arn(arn)
        except ValueError as error:
            raise click.UsageError(f"--arn {text}: {error}") from None
    return found


def _table(needed: tuple[RequiredRight, ...]) -> str:
    lines: list[str] = []
    for alias in dict.fromkeys(right.cluster for right in needed):
        lines.append(f"cluster {alias}")
        for right in needed:
            if right.cluster == alias:
                name = f"{right.name}*" if right.pattern == "PREFIXED" else right.name
                note = " (wider than the file's selection)" if right.wider else ""
                lines.append(f"  {right.resource:<16} {name:<40} {right.operation:<17} {right.why}{note}")
    return "\n".join(lines)
