"""SYC511 acl-sync-read-only: ACLs are carried over without the right to write, though applications are to write at the
target one day.

Why: in a failover, or after a cutover, producers are refused at the target, and the outage lasts until somebody grants
the rights by hand. Looked at where the flow has an `slo.rto`, a way back, or a migration with producers.

Source: apache/kafka MirrorSourceConnector.java, which drops ALLOW WRITE and turns ALL into READ
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.model import Flow, Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.finding_text import build_labels


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None:
        return
    ways = {(flow.source, flow.target): flow for flow in topology.flows}
    for flow in topology.flows:
        acls = flow.settings.at("sync", "acls")
        carried = acls is not None and acls.get("mode", default="never") != "never"
        if acls is None or not carried or flow.plan.state == "paused":
            continue
        because = _written_later(topology, flow, ways.get((flow.target, flow.source)))
        if because is not None and acls.get("include_write", default="never") == "never":
            why, where = because
            yield Problem(
                "SYC511",
                f"flow {flow.id} carries ACLs over without the right to write, but {why}",
                build_labels((acls.where("include_write"), "reads only"), (where, "applications write there")),
                path=f"{flow.path}.sync.acls.include_write",
                ids=(flow.id,),
                help="say `include_write: on_failover`, or grant the rights at the target ahead of time",
            )


def _written_later(topology: Topology, flow: Flow, back: Flow | None) -> tuple[str, FileSpan] | None:
    """Why applications will write at the target, and where the file says so."""
    rto = flow.settings.at("slo", "rto")
    if rto is not None:
        return f"its `slo.rto` promises a failover to {flow.target}", rto.span
    migration, root = topology.migration, topology.root.at("migration")
    moved = migration is not None and migration.flow == flow.id and any(wave.producers for wave in migration.waves)
    if moved and root is not None:
        return f"the migration moves producers to {flow.target}", root.where("flow")
    if back is not None and back.plan.state == "paused":
        return f"{back.id} is declared as the way back from a failover", back.settings.where("state")
    return None


RULE = Rule("SYC511", "acl-sync-read-only", "warning", __doc__, check)
