"""MIG828 unclear-control: an application names several ways in which it is stopped and started, or one that is not
whole.

Why: which of two ways counts would be a guess, in the minutes in which nobody writes. `authentication` without `http`
would be sent to nobody; a workload of Kubernetes whose bootstrap servers stand nowhere would start at the old cluster.

Source: own
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.application_controls import CONTROL_KINDS
from watershed.topology.finding import Label, Problem
from watershed.topology.model import CheckedValue, Topology
from watershed.topology.rule import Rule, RuleContext

_IN_FILE = "an environment variable (`env`), or a ConfigMap with its key (`config_map`, `key`)"


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    declared = topology.root.at("migration", "applications") if topology is not None else None
    if topology is None or declared is None:
        return
    for name, value in declared.fields.items():
        path = f"migration.applications.{name}"
        ways = [kind for kind in CONTROL_KINDS if value.at(kind) is not None]
        if len(ways) > 1:
            first, *others = (value.fields[kind].key or value.fields[kind].span for kind in ways)
            yield Problem(
                "MIG828",
                f"application `{name}` is stopped and started in {len(ways)} ways: {', '.join(ways)}",
                (Label(first, "this way"), *(Label(other, "and this one") for other in others)),
                path=path,
                ids=(name,),
                help="keep one of them",
            )
        proof = value.at("authentication")
        if proof is not None and "http" not in ways:
            yield Problem(
                "MIG828",
                f"application `{name}` has `authentication` and no `http` that it would be sent to",
                (Label(proof.key or proof.span),),
                path=f"{path}.authentication",
                ids=(name,),
                help="give the address of its switch as `http`, or leave `authentication` out",
            )
        workloads = value.at("kubernetes")
        if workloads is not None:
            yield from _check_kubernetes(topology, name, workloads, f"{path}.kubernetes")


def _check_kubernetes(topology: Topology, name: str, value: CheckedValue, path: str) -> Iterator[Problem]:
    place = value.at("bootstrap")
    if place is not None:
        said = {key for key in ("env", "container", "config_map", "key") if place.at(key) is not None}
        if said not in ({"env"}, {"env", "container"}, {"config_map", "key"}):
            yield Problem(
                "MIG828",
                f"where application `{name}` reads its bootstrap servers is not clear",
                (Label(place.span),),
                path=f"{path}.bootstrap",
                ids=(name,),
                help=f"say {_IN_FILE}",
            )
        values = place.at("values")
        for alias, each in (values.fields if values is not None else {}).items():
            if alias not in topology.clusters:
                yield Problem(
                    "MIG828",
                    f"application `{name}` has bootstrap servers for `{alias}`, which is no cluster of this file",
                    (Label(each.key or each.span),),
                    path=f"{path}.bootstrap.values.{alias}",
                    ids=(name, alias),
                    help=f"clusters: {', '.join(sorted(topology.clusters))}",
                )
    context, credentials = value.at("context"), value.get("credentials")
    if context is not None and (credentials is None or credentials.kind == "airflow_connection"):
        yield Problem(
            "MIG828",
            f"application `{name}` chooses a context and names no kubeconfig that has one",
            (Label(context.key or context.span),),
            path=f"{path}.context",
            ids=(name,),
            help="name the kubeconfig in `credentials`, or leave `context` out",
        )


RULE = Rule("MIG828", "unclear-control", "error", __doc__, check)
