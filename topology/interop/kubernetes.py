"""`tls` and `authentication` of a Strimzi cluster as the `security` section: Kubernetes secrets become references.

A certificate in a secret becomes `{file: SECRET/KEY}`, where the secret is mounted; a password an environment variable.
"""

from __future__ import annotations

from typing import Any

from topology.interop.formats import child
from topology.interop.said import Notes, Said, true
from topology.interop.security import MECHANISMS, literal_secrets, security_of, variable
from topology.interop.tree import key_span, scalar, settings_of
from topology.nodes import Node

_SASL = {
    "scram-sha-256": "SCRAM-SHA-256",
    "scram-sha-512": "SCRAM-SHA-512",
    "plain": "PLAIN",
    "oauth": "OAUTHBEARER",
}


def security_in(alias: str, cluster: Node, config: dict[str, Said], notes: Notes) -> dict[str, Any]:
    """{} for a plain connection without authentication."""
    tls, authentication = child(cluster, "tls"), child(cluster, "authentication")
    kind = scalar(authentication, "type", "authentication")
    if tls is None and kind is None:
        return {}
    what = kind.text if kind is not None else ""
    custom = settings_of(child(authentication, "config"), "authentication.config", notes)
    sasl = what in _SASL or (what == "custom" and true(scalar(authentication, "sasl"), False))
    protocol = ("SASL_" if sasl else "") + ("SSL" if tls is not None else "PLAINTEXT")
    out: dict[str, Any] = {"protocol": protocol}
    if what in _SASL:
        assert authentication is not None, "it has a type"
        out |= _sasl(alias, cluster, authentication, what, protocol, notes)
    elif what == "tls" and authentication is not None:
        out |= _certificate(alias, authentication, notes)
        if tls is None:
            notes.say(
                "SEC603",
                f"cluster {alias}: a client certificate without `tls` is not used",
                key_span(cluster, "authentication"),
            )
            return {}
    elif what == "custom":
        literal_secrets(list(custom.values()), notes)
        mechanism = custom.get("sasl.mechanism")
        found = security_of(alias, {**custom, "security.protocol": _said(kind, protocol)}, notes)
        out |= {key: value for key, value in found.items() if key != "protocol"}
        if mechanism is not None and mechanism.text.upper() not in MECHANISMS:
            out.pop("mechanism", None)
    elif kind is not None:
        notes.leave(f"authentication of cluster {alias}", f"`{what}` is none that Watershed knows", kind.span)
    if tls is not None:
        out |= _authority(alias, cluster, tls, notes)
    _check_host_names(config, notes)
    return out


def _sasl(alias: str, cluster: Node, authentication: Node, what: str, protocol: str, notes: Notes) -> dict[str, Any]:
    """Mechanism and credentials; the account itself is a secret of Kubernetes and stays behind."""
    out: dict[str, Any] = {"mechanism": _SASL[what], "credentials": {"env": variable(alias)}}
    place = key_span(cluster, "authentication")
    notes.leave(f"authentication of cluster {alias}", _account(authentication, variable(alias)), place)
    endpoint, scope = scalar(authentication, "tokenEndpointUri"), scalar(authentication, "scope")
    if what == "oauth" and endpoint is not None:
        out["oauth"] = {"token_endpoint": endpoint.text} | ({"scope": scope.text} if scope is not None else {})
    if protocol == "SASL_PLAINTEXT" and what in ("plain", "oauth"):
        notes.say("SEC602", f"cluster {alias}: the password travels readable", place, "add `tls: {}`")
    return out


def _check_host_names(config: dict[str, Said], notes: Notes) -> None:
    check = config.get("ssl.endpoint.identification.algorithm")
    if check is not None and check.text.strip().lower() != "https":
        notes.say(
            "SEC604", f"`{check.name}` is empty: the client accepts any broker's certificate", check.key, "leave it out"
        )


def _said(kind: Said | None, protocol: str) -> Said:
    assert kind is not None, "custom has a type"
    return Said("authentication.type", protocol, kind.span, kind.key)


def _account(authentication: Node, name: str) -> str:
    user, secret = scalar(authentication, "username"), child(authentication, "passwordSecret")
    held, key = scalar(secret, "secretName"), scalar(secret, "password")
    whose = f"user `{user.text}`, " if user is not None else ""
    where = f"the secret `{held.text}`, key `{key.text}`" if held is not None and key is not None else "a secret"
    return f"the topology holds references only; put `user:password` ({whose}{where}) into {name}"


def _certificate(alias: str, authentication: Node, notes: Notes) -> dict[str, Any]:
    pair = child(authentication, "certificateAndKey")
    held = scalar(pair, "secretName")
    if held is None or pair is None:
        return {}
    out: dict[str, Any] = {}
    for name in ("certificate", "key"):
        said = scalar(pair, name)
        if said is not None:
            out[name] = {"file": f"{held.text}/{said.text}"}
    notes.leave(
        f"client certificate of cluster {alias}", f"mount the secret `{held.text}` where workers run", held.span
    )
    return out


def _authority(alias: str, cluster: Node, tls: Node, notes: Notes) -> dict[str, Any]:
    trusted = child(tls, "trustedCertificates")
    entries = [each for each in trusted.items if each.kind == "map"] if trusted is not None else []
    if not entries:
        return {}
    held = scalar(entries[0], "secretName")
    said = scalar(entries[0], "certificate") or scalar(entries[0], "pattern")
    if held is None or said is None:
        return {}
    if "*" in said.text:
        notes.leave(f"trusted certificates of cluster {alias}", "a pattern; `ca` is one PEM file", said.span)
        return {"ca": {"file": f"{held.text}/ca.crt"}}
    if len(entries) > 1:
        more = "`ca` is one PEM file: put all the certificates into it"
        notes.leave(f"trusted certificates of cluster {alias}", more, key_span(cluster, "tls"))
    else:
        notes.leave(
            f"trusted certificate of cluster {alias}", f"mount the secret `{held.text}` where workers run", held.span
        )
    return {"ca": {"file": f"{held.text}/{said.text}"}}
