"""MIG829 exposed-control: a token or a certificate for an application's switch would go over plain http.

Why: whoever can read the wire has the token then, and can stop the application whenever he likes. A certificate proves
nothing without TLS: there is no handshake in which it would be asked for. A signature (`hmac`) hides nothing, and may
go over http; a request that is recorded is refused after a few minutes.

Source: RFC 6750 section 5.3 (bearer tokens need TLS)
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.cluster_locations import is_own_machine_host, parse_url_host


def check(context: RuleContext) -> Iterator[Problem]:
    topology = context.topology
    if topology is None or topology.migration is None:
        return
    for name, application in topology.migration.applications.items():
        proof = application.authentication
        if proof is None or not (application.http or "").startswith("http://"):
            continue
        what = "a certificate" if proof.certificate is not None else "a token" if proof.bearer is not None else ""
        loopback = is_own_machine_host(parse_url_host(application.http or ""))
        if not what or (loopback and proof.bearer is not None):
            continue
        declared = topology.root.at("migration", "applications", name)
        assert declared is not None
        yield Problem(
            "MIG829",
            f"application `{name}` would get {what} over plain http",
            (Label(declared.where("http"), "no TLS"), Label(declared.where("authentication"), what)),
            path=f"migration.applications.{name}",
            ids=(name,),
            help="use an address with `https://`, or sign the requests (`hmac`)",
        )


RULE = Rule("MIG829", "exposed-control", "error", __doc__, check)
