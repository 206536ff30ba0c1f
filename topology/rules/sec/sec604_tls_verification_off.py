"""SEC604 tls-verification-off: the file tries to switch off the check of the brokers' certificates or host names.

Why: without that check TLS only hides data from those who do not try: whoever can redirect a connection reads and
changes everything, and gets the credentials. The language has no such switch; the rule finds the keys that other tools
use for it. Name your own authority in `security.ca` instead.

Source: KIP-294, which made the check the default; CWE-295
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.sec.secret_detection import RawScalar, walk_raw_scalars

# keys without dots, dashes and underscores; CHECKS are off with a word of OFF, SKIPS with one of ON
_CHECKS = {
    "sslendpointidentificationalgorithm",
    "endpointidentificationalgorithm",
    "enablesslcertificateverification",
    "sslverify",
    "verifyssl",
    "tlsverify",
    "verifytls",
    "verifycertificate",
    "verifycertificates",
    "verifyhostname",
    "hostnameverification",
    "sslcheckhostname",
    "checkhostname",
    "rejectunauthorized",
    "tlsverification",
    "sslcertreqs",
    "verifymode",
}
_SKIPS = {
    "insecure",
    "allowinsecure",
    "insecureskipverify",
    "skipverify",
    "skiptlsverify",
    "tlsskipverify",
    "skipsslverify",
    "sslskipverify",
    "insecureskiptlsverify",
    "trustall",
    "trustallcertificates",
    "disablehostnameverification",
    "disablesslverification",
}
_OFF = {"", "~", "null", "none", "false", "off", "no", "0", "disabled", "cert_none"}
_ON = {"true", "on", "yes", "1", "enabled"}


def check(context: RuleContext) -> Iterator[Problem]:
    for scalar in walk_raw_scalars(context.loaded.nodes):
        if not scalar.is_key and _off(scalar):
            text = scalar.node.text or '""'
            yield Problem(
                "SEC604",
                f"`{scalar.path}: {text}` asks for TLS without checking whom it speaks to",
                (Label(scalar.node.span),),
                path=scalar.path,
                ids=(scalar.path,),
                help="remove it; with certificates of your own authority say `security: {ca: {file: path}}`",
            )


def _off(scalar: RawScalar) -> bool:
    text = scalar.node.text.strip().lower()
    if (text not in _OFF and text not in _ON) or not scalar.names:
        return False
    name = re.sub(r"[^a-z0-9]", "", scalar.names[-1].lower())
    if name == "verify":  # `flows[].verify` is the proof
        return scalar.names[0] == "clusters" and text in _OFF
    return (name in _CHECKS and text in _OFF) or (name in _SKIPS and text in _ON)


RULE = Rule("SEC604", "tls-verification-off", "error", __doc__, check, ignorable=False)
