"""SEC602 sasl-over-plaintext: passwords, tokens or SCRAM proofs travel over a connection without TLS.

Why: with PLAIN or OAUTHBEARER whoever listens has the password or token; with SCRAM a proof that can be tried against
a dictionary. All of Kafka's data is readable, too. SCRAM is an error where a flow of the cluster crosses regions, a
warning inside one. A token endpoint without https gets the client's secret in the open, a schema registry without it
the password of its `credentials`. Addresses on this machine (127.0.0.1, localhost, ::1) are not looked at.

Source: RFC 4616 and RFC 5802, security considerations; confluentinc/kcp marks it for tests only
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Problem, Severity
from watershed.topology.model import Topology
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.cluster_locations import (
    is_cross_region,
    is_loopback_cluster,
    is_metadata_host,
    is_own_machine_host,
    parse_url_host,
)
from watershed.topology.rules.finding_text import build_labels

_READABLE = {"PLAIN": "the password", "OAUTHBEARER": "the token"}


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    clusters = sorted(topology.clusters.items()) if topology is not None else []
    unsafe = [(alias, each) for alias, each in clusters if each.security.protocol == "SASL_PLAINTEXT"]
    crossing = _crossing(topology) if topology is not None and unsafe else {}
    for alias, cluster in unsafe:
        mechanism = cluster.security.mechanism or ""
        scram = mechanism.startswith("SCRAM")
        if topology is None or is_loopback_cluster(cluster):
            continue
        if not scram and mechanism not in _READABLE:
            continue
        declared = topology.root.at("clusters", alias, "security")
        far = crossing.get(alias)
        severity: Severity = "warning" if scram and far is None else "error"
        what = "a proof that can be attacked offline" if scram else _READABLE[mechanism]
        where = f", and flow {far} crosses regions" if scram and far is not None else ""
        yield Problem(
            "SEC602",
            f"{alias} takes {mechanism} without TLS: {what} is readable on the wire{where}",
            build_labels(
                (declared.where("protocol") if declared else None, "no TLS"),
                (declared.where("mechanism") if declared else None, "sent in the open"),
            ),
            path=f"clusters.{alias}.security.protocol",
            ids=(alias,),
            help="use `protocol: SASL_SSL`, with `ca` where the brokers' certificates are your own",
            severity=severity,
        )
    for alias, cluster in clusters:
        oauth = cluster.security.oauth
        endpoint = oauth.token_endpoint if oauth is not None else None
        if topology is None or endpoint is None or endpoint.startswith("https:"):
            continue
        metadata = cluster.security.credentials is None  # its server is asked without a secret, inside the host
        host = parse_url_host(endpoint)
        if not is_own_machine_host(host) and not (metadata and is_metadata_host(host)):
            declared = topology.root.at("clusters", alias, "security", "oauth")
            yield Problem(
                "SEC602",
                f"{alias} gets its tokens without TLS: the client's secret is readable on the wire",
                build_labels((declared.where("token_endpoint") if declared else None, "no https")),
                path=f"clusters.{alias}.security.oauth.token_endpoint",
                ids=(alias,),
                help="use an https address, with `oauth.ca` where the endpoint's certificate is your own",
            )
    for alias, cluster in clusters:
        registry = cluster.registry
        if topology is None or registry is None or registry.credentials is None:
            continue
        if not registry.url.startswith("https:") and not is_own_machine_host(parse_url_host(registry.url)):
            declared = topology.root.at("clusters", alias, "schema_registry")
            yield Problem(
                "SEC602",
                f"{alias} sends the password of its schema registry without TLS: it is readable on the wire",
                build_labels((declared.where("url") if declared else None, "no https")),
                path=f"clusters.{alias}.schema_registry.url",
                ids=(alias,),
                help="use an https address, with `schema_registry.ca` where its certificate is your own",
            )


def _crossing(topology: Topology) -> dict[str, str]:
    """Of each cluster the first flow whose two ends have no region in common."""
    found: dict[str, str] = {}
    for flow in topology.flows:
        if is_cross_region(topology, flow.source, flow.target):
            found.setdefault(flow.source, flow.id)
            found.setdefault(flow.target, flow.id)
    return found


RULE = Rule("SEC602", "sasl-over-plaintext", "error", __doc__, check, ignorable=False)
