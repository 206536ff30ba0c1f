"""CLU103 relative-alias: an alias such as `local`, `remote` or `primary` says where a cluster is seen from, not what it
is.

Why: the word means another cluster at the other site, and after a failover it means the wrong one everywhere. Prefix
naming writes it into topic names for good. Where `pattern: {active_standby: …}` gives a cluster the very role that its
alias says, this is only told; the name of the place is still better.

Source: strimzi/strimzi-kafka-operator#3249, where both sites called the other one `remote-cluster`
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext

_ACTIVE = frozenset({"active", "local", "main", "master", "primary", "source", "src"})
_STANDBY = frozenset(
    {"backup", "dest", "destination", "dr", "failover", "passive", "remote", "secondary", "slave", "standby", "target"}
)
_RELATIVE = _ACTIVE | _STANDBY | {"here", "mine", "origin", "other", "ours", "theirs", "there", "this"}
_NOISE = frozenset({"cluster", "datacenter", "dc", "kafka", "region", "site"})


def check(context: RuleContext) -> Iterator[Problem]:
    clusters = context.topology.root.at("clusters") if context.topology is not None else None
    if context.topology is None or clusters is None:
        return
    roles = context.topology.root.at("pattern", "active_standby")
    for alias, cluster in clusters.fields.items():
        words = _words(alias)
        if not words or not words <= _RELATIVE:
            continue
        named = roles is not None and (
            (alias == roles.get("active") and words <= _ACTIVE) or (alias == roles.get("standby") and words <= _STANDBY)
        )
        yield Problem(
            "CLU103",
            f"alias `{alias}` depends on where one stands",
            (Label(cluster.key or cluster.span),),
            path=f"clusters.{alias}",
            ids=(alias,),
            help="name it after what stays true: its place, site or business (`london`, `euw1`, `shop`)",
            severity="info" if named else None,
        )


def _words(alias: str) -> frozenset[str]:
    """The alias's words without numbers and without those that every cluster could carry."""
    words = (word.rstrip("0123456789") for word in alias.split("-"))
    return frozenset(word for word in words if word and word not in _NOISE)


RULE = Rule("CLU103", "relative-alias", "warning", __doc__, check)
