"""`tls` and `authentication` of a Strimzi cluster as the `security` section: Kubernetes secrets become references.

A certificate in a secret becomes `{file: SECRET/KEY}`, where the secret is mounted; a password an environment variable.
"""

from __future__ import annotations

from typing import Any

from watershed.topology.interop.client_security import (
    SASL_MECHANISMS,
    build_client_security,
    check_literal_secrets,
    name_secret_variable,
)
from watershed.topology.interop.client_tokens import import_token_endpoint
from watershed.topology.interop.import_formats import find_child_node
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes, parse_java_boolean
from watershed.topology.interop.yaml_settings import collect_settings, find_key_span, find_scalar_setting
from watershed.topology.yaml_tree import YamlNode

_SASL = {
    "scram-sha-256": "SCRAM-SHA-256",
    "scram-sha-512": "SCRAM-SHA-512",
    "plain": "PLAIN",
    "oauth": "OAUTHBEARER",
}


def build_strimzi_security(
    alias: str, cluster: YamlNode, config: dict[str, ForeignSetting], notes: ImportNotes
) -> dict[str, Any]:
    """{} for a plain connection without authentication."""
    tls, authentication = find_child_node(cluster, "tls"), find_child_node(cluster, "authentication")
    kind = find_scalar_setting(authentication, "type", "authentication")
    if tls is None and kind is None:
        return {}
    what = kind.text if kind is not None else ""
    custom = collect_settings(find_child_node(authentication, "config"), "authentication.config", notes)
    sasl = what in _SASL or (
        what == "custom" and parse_java_boolean(find_scalar_setting(authentication, "sasl"), False)
    )
    protocol = ("SASL_" if sasl else "") + ("SSL" if tls is not None else "PLAINTEXT")
    out: dict[str, Any] = {"protocol": protocol}
    if what in _SASL:
        assert authentication is not None, "it has a type"
        out |= _sasl(alias, cluster, authentication, what, protocol, notes)
    elif what == "tls" and authentication is not None:
        out |= _certificate(alias, authentication, notes)
        if tls is None:
            notes.add_problem(
                "SEC603",
                f"cluster {alias}: a client certificate without `tls` is not used",
                find_key_span(cluster, "authentication"),
            )
            return {}
    elif what == "custom":
        check_literal_secrets(list(custom.values()), notes)
        mechanism, servers = custom.get("sasl.mechanism"), find_scalar_setting(cluster, "bootstrapServers")
        client = {**custom, "security.protocol": _said(kind, protocol)}
        # the region at AWS is part of the brokers' names
        found = build_client_security(alias, client | ({"bootstrap.servers": servers} if servers else {}), notes)
        out |= {key: value for key, value in found.items() if key != "protocol"}
        if mechanism is not None and "provider" not in out and mechanism.text.upper() not in SASL_MECHANISMS:
            out.pop("mechanism", None)
    elif kind is not None:
        notes.add_not_carried(f"authentication of cluster {alias}", f"`{what}` is none that Watershed knows", kind.span)
    if tls is not None:
        out |= _authority(alias, cluster, tls, notes)
    _check_host_names(config, notes)
    return out


def _sasl(
    alias: str, cluster: YamlNode, authentication: YamlNode, what: str, protocol: str, notes: ImportNotes
) -> dict[str, Any]:
    """Mechanism and credentials; the account itself is a secret of Kubernetes and stays behind."""
    out: dict[str, Any] = {"mechanism": _SASL[what], "credentials": {"env": name_secret_variable(alias)}}
    place = find_key_span(cluster, "authentication")
    notes.add_not_carried(
        f"authentication of cluster {alias}", _account(authentication, name_secret_variable(alias)), place
    )
    endpoint, scope = (
        find_scalar_setting(authentication, "tokenEndpointUri"),
        find_scalar_setting(authentication, "scope"),
    )
    if what == "oauth" and endpoint is not None:
        address = import_token_endpoint(endpoint, notes)
        oauth = {"token_endpoint": address, "scope": scope.text if scope is not None else None}
        out["oauth"] = {key: value for key, value in oauth.items() if value is not None}
    if protocol == "SASL_PLAINTEXT" and what in ("plain", "oauth"):
        notes.add_problem("SEC602", f"cluster {alias}: the password travels readable", place, "add `tls: {}`")
    return out


def _check_host_names(config: dict[str, ForeignSetting], notes: ImportNotes) -> None:
    check = config.get("ssl.endpoint.identification.algorithm")
    if check is not None and check.text.strip().lower() != "https":
        notes.add_problem(
            "SEC604", f"`{check.name}` is empty: the client accepts any broker's certificate", check.key, "leave it out"
        )


def _said(kind: ForeignSetting | None, protocol: str) -> ForeignSetting:
    assert kind is not None, "custom has a type"
    return ForeignSetting("authentication.type", protocol, kind.span, kind.key)


def _account(authentication: YamlNode, name: str) -> str:
    user, secret = find_scalar_setting(authentication, "username"), find_child_node(authentication, "passwordSecret")
    held, key = find_scalar_setting(secret, "secretName"), find_scalar_setting(secret, "password")
    whose = f"user `{user.text}`, " if user is not None else ""
    where = f"the secret `{held.text}`, key `{key.text}`" if held is not None and key is not None else "a secret"
    return f"the topology holds references only; put `user:password` ({whose}{where}) into {name}"


def _certificate(alias: str, authentication: YamlNode, notes: ImportNotes) -> dict[str, Any]:
    pair = find_child_node(authentication, "certificateAndKey")
    held = find_scalar_setting(pair, "secretName")
    if held is None or pair is None:
        return {}
    out: dict[str, Any] = {}
    for name in ("certificate", "key"):
        said = find_scalar_setting(pair, name)
        if said is not None:
            out[name] = {"file": f"{held.text}/{said.text}"}
    notes.add_not_carried(
        f"client certificate of cluster {alias}", f"mount the secret `{held.text}` where workers run", held.span
    )
    return out


def _authority(alias: str, cluster: YamlNode, tls: YamlNode, notes: ImportNotes) -> dict[str, Any]:
    trusted = find_child_node(tls, "trustedCertificates")
    entries = [each for each in trusted.items if each.kind == "map"] if trusted is not None else []
    if not entries:
        return {}
    held = find_scalar_setting(entries[0], "secretName")
    said = find_scalar_setting(entries[0], "certificate") or find_scalar_setting(entries[0], "pattern")
    if held is None or said is None:
        return {}
    if "*" in said.text:
        notes.add_not_carried(f"trusted certificates of cluster {alias}", "a pattern; `ca` is one PEM file", said.span)
        return {"ca": {"file": f"{held.text}/ca.crt"}}
    if len(entries) > 1:
        more = "`ca` is one PEM file: put all the certificates into it"
        notes.add_not_carried(f"trusted certificates of cluster {alias}", more, find_key_span(cluster, "tls"))
    else:
        notes.add_not_carried(
            f"trusted certificate of cluster {alias}", f"mount the secret `{held.text}` where workers run", held.span
        )
    return {"ca": {"file": f"{held.text}/{said.text}"}}
