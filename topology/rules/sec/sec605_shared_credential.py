"""SEC605 shared-credential: two clusters are reached with one and the same credential.

Why: whoever takes it from one place has both clusters, a rotation has to happen everywhere at the same moment, and no
log says which of the two was meant. A certificate authority may be shared; a client's key or password may not.

Source: confluentinc/kcp, its guide: one credential a client
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels, render_some_names

_SHOWN = 8  # clusters with a label


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    found: dict[tuple[str, str], dict[str, FileSpan]] = {}
    for alias, cluster in sorted(topology.clusters.items()) if topology is not None else ():
        declared = topology.root.at("clusters", alias, "security") if topology is not None else None
        for name, reference in (("credentials", cluster.security.credentials), ("key", cluster.security.key)):
            if declared is not None and reference is not None:
                found.setdefault((reference.kind, reference.name), {}).setdefault(alias, declared.where(name))
    for (kind, _), clusters in sorted(found.items()):
        if len(clusters) > 1:
            aliases = tuple(clusters)
            first = aliases[0]
            yield Problem(
                "SEC605",
                f"{render_some_names(aliases)} share one credential, the same `{kind}`",
                build_labels(*((span, f"used for {alias}") for alias, span in list(clusters.items())[:_SHOWN])),
                path=f"clusters.{first}.security",
                ids=(kind, *aliases),
                help="give each cluster a credential of its own, under its own name",
            )


RULE = Rule("SEC605", "shared-credential", "warning", __doc__, check)
