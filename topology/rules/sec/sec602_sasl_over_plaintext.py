"""SEC602 sasl-over-plaintext: a cluster takes passwords, tokens or SCRAM proofs over a connection without TLS.

Why: with PLAIN or OAUTHBEARER whoever listens has the password or token; with SCRAM a proof that can be tried against
a dictionary. All of Kafka's data is readable, too. SCRAM is an error where a flow of the cluster crosses regions, a
warning inside one. Addresses on this machine (127.0.0.1, localhost, ::1) are not looked at.

Bad:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9092]
        security: {protocol: SASL_PLAINTEXT, mechanism: PLAIN, credentials: {env: KAFKA_A}}

Good:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        security: {protocol: SASL_SSL, mechanism: PLAIN, credentials: {env: KAFKA_A}}

Source: RFC 4616 and RFC 5802, security considerations; confluentinc/kcp marks it for tests only
"""

from __future__ import annotations

from collections.abc import Iterator

from topology.finding import Problem, Severity
from topology.model import Topology
from topology.rule import Context, Rule
from topology.rules.mention import labels
from topology.rules.sec.places import apart, loopback

READABLE = {"PLAIN": "the password", "OAUTHBEARER": "the token"}


def check(context: Context) -> Iterator[Problem]:
    topology = context.topology
    for alias, cluster in sorted(topology.clusters.items()) if topology is not None else ():
        security = cluster.security
        mechanism = security.mechanism or ""
        scram = mechanism.startswith("SCRAM")
        if topology is None or security.protocol != "SASL_PLAINTEXT" or loopback(cluster):
            continue
        if not scram and mechanism not in READABLE:
            continue
        declared = topology.root.at("clusters", alias, "security")
        far = _crossing(topology, alias)
        severity: Severity = "warning" if scram and far is None else "error"
        what = "a proof that can be attacked offline" if scram else READABLE[mechanism]
        where = f", and flow {far} crosses regions" if scram and far is not None else ""
        yield Problem(
            "SEC602",
            f"{alias} takes {mechanism} without TLS: {what} is readable on the wire{where}",
            labels(
                (declared.where("protocol") if declared else None, "no TLS"),
                (declared.where("mechanism") if declared else None, "sent in the open"),
            ),
            path=f"clusters.{alias}.security.protocol",
            ids=(alias,),
            help="use `protocol: SASL_SSL`, with `ca` where the brokers' certificates are your own",
            severity=severity,
        )


def _crossing(topology: Topology, alias: str) -> str | None:
    """The first flow of the cluster whose two ends have no region in common."""
    mine = (flow for flow in topology.flows if alias in (flow.source, flow.target))
    return next((flow.id for flow in mine if apart(topology, flow.source, flow.target)), None)


RULE = Rule("SEC602", "sasl-over-plaintext", "error", __doc__, check, ignorable=False)
