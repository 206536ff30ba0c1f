"""MIG822 unidentified-fence: a fence of brokers, and a producer of the wave that the file does not identify for them.

Why: brokers know principals, and client ids for quotas, and nothing of applications. A migration with such a fence is
refused before it begins: the producer that nobody named would be the one that goes on writing.

Source: own; org.apache.kafka.server.authorizer.Authorizer, ClientQuotaCallback for what brokers go by
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.application_controls import PlanApplication
from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels
from watershed.topology.rules.mig.declared_waves import list_declared_waves

_UNKNOWN = PlanApplication()


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    migration = topology.migration if topology is not None else None
    if topology is None or migration is None:
        return
    for move in list_declared_waves(topology):
        kind = move.wave.fence.kind
        for name in move.wave.producers if kind in ("acl", "quota") else ():
            told = migration.applications.get(name, _UNKNOWN)
            user = told.principal is not None and told.principal.startswith("User:")
            if told.principal is not None if kind == "acl" else user or (not told.principal and told.client_id):
                continue
            lacks = "no `principal`" if kind == "acl" else "neither a `principal` of a user nor a `client_id`"
            declared = topology.root.at("migration", "applications", name)
            yield Problem(
                "MIG822",
                f"wave `{move.name}` fences `{name}` by {kind}, and the file tells {lacks} for it",
                build_labels(
                    (move.value.where("producers"), "fenced"), (declared.span if declared else None, "declared")
                ),
                path=f"migration.applications.{name}",
                ids=(move.name, name),
                help=f'say `{name}: {{principal: "User:{name}"}}` as its brokers know it, or take another fence',
            )


RULE = Rule("MIG822", "unidentified-fence", "error", __doc__, check)
