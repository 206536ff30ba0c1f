"""SEC612 trust-store-is-key-store: `ca` and `certificate` of a cluster are one and the same file.

Why: whoever needs to know which brokers to trust gets the private key along with it. The client also trusts whatever
else lies in its own key store, and a new certificate for the client changes whom it trusts.

Source: own; apache/kafka docs/security.html, which makes two stores
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    for alias, cluster in sorted(topology.clusters.items()) if topology is not None else ():
        security = cluster.security
        if topology is not None and security.ca is not None and security.ca == security.certificate:
            declared = topology.root.at("clusters", alias, "security")
            assert declared is not None, "it has a `ca`"
            yield Problem(
                "SEC612",
                f"cluster `{alias}`: `ca` and `certificate` are the same {security.ca.kind}",
                build_labels((declared.where("ca"), "trusted"), (declared.where("certificate"), "the client's own")),
                path=f"clusters.{alias}.security",
                ids=(alias,),
                help="put the brokers' authority into a store of its own, and name that as `ca`",
            )


RULE = Rule("SEC612", "trust-store-is-key-store", "warning", __doc__, check)
