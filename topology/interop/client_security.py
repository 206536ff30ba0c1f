"""How a Kafka client of the foreign file connects, as the `security` section of a cluster. Only references come over:
where the file holds a secret itself, the topology gets the name of an environment variable, and the value is dropped
without having been part of any message. And the way back: a cluster's `security` as client settings of an export."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from watershed.topology.interop.client_tokens import AWS_MSK_IAM, find_foreign_provider, import_provider
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes, is_secret_placeholder
from watershed.topology.model import Topology
from watershed.topology.plan import PlanCluster
from watershed.topology.secret_ref import SecretRef

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
# in part from confluentinc/kcp's list of redacted keys, in part from the clients' ConfigDefs (type PASSWORD)
_SECRET = re.compile(r"(?i)(?:.*[._-])?(?:password|passwd|secret|token|jaas\.config|api[._-]?key|keystore\.key)$")
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_FOREIGN_PASSWORDS = {
    "ca_password": "ssl.truststore.password",
    "certificate_password": "ssl.keystore.password",
    "key_password": "ssl.key.password",
}
_STORE_TYPES = {"jks": "JKS", "p12": "PKCS12", "pkcs12": "PKCS12", "pfx": "PKCS12"}
_PEM_ENDINGS = (".pem", ".crt", ".cert")
_REFERENCE = re.compile(r"\$\{(?P<provider>[^:{}]+):(?:(?P<path>[^{}]*?):)?(?P<key>[^:{}]*)\}")
_IN_JAAS = re.compile(r'(?i)(?:password|secret)\s*=\s*(?:"([^"]*)"|\'([^\']*)\'|([^\s;]+))')
_HALF = re.compile(r"[_.-]?(?:USER_?NAME|USER|PASSWORD|PASS)$", re.IGNORECASE)


def is_secret_key(key: str) -> bool:
    """Whether the value under this key is a secret."""
    return _SECRET.fullmatch(key) is not None


def name_secret_variable(alias: str, what: str = "") -> str:
    """The environment variable in which a person puts a secret of this cluster: KAFKA_US_EAST."""
    return "KAFKA_" + re.sub(r"[^A-Z0-9]", "_", alias.upper()) + (f"_{what}" if what else "")


def build_client_security(alias: str, config: Mapping[str, ForeignSetting], notes: ImportNotes) -> dict[str, Any]:
    """`config` holds the client settings of one cluster by plain key (`sasl.mechanism`). {} without any."""
    said = config.get("security.protocol")
    protocol = said.text.strip().upper() if said is not None else ""
    if said is not None and protocol not in _PROTOCOLS:
        notes.add_problem("SYN011", f"`{said.name}`: no protocol of Kafka; one of {', '.join(_PROTOCOLS)}", said.span)
        protocol = ""
    if not protocol:
        stray = [each for key, each in sorted(config.items()) if key.startswith(("ssl.", "sasl."))]
        if not stray or said is not None:
            return {}
        # Kafka's default: these settings change nothing
        notes.add_problem(
            "SEC603",
            f"`{stray[0].name}` changes nothing: the client speaks PLAINTEXT unless `security.protocol` is set",
            stray[0].key,
            "set `security.protocol` to SSL or SASL_SSL",
            severity="warning",
        )
        return {}
    out: dict[str, Any] = {"protocol": protocol}
    if protocol.startswith("SASL"):
        out |= _sasl(alias, config, notes, protocol)
    if protocol.endswith("SSL"):
        out |= _tls(alias, config, notes)
    return out


def check_literal_secrets(settings: list[ForeignSetting], notes: ImportNotes) -> None:
    """SEC601 for every secret that stands in the file itself."""
    for said in settings:
        if not is_secret_key(said.name) or not said.text.strip():
            continue
        texts = [said.text]
        if said.name.endswith("jaas.config"):
            texts = [next(filter(None, groups), "") for groups in _IN_JAAS.findall(said.text)]
        if all(_is_no_secret(text) for text in texts):
            continue  # also a JAAS text without a password
        notes.add_problem(
            "SEC601",
            f"`{said.name}` holds a secret in the file itself",
            said.key,
            "give it to the process as `${env:NAME}` or `${file:PATH:KEY}` (config.providers), and change the secret",
        )


def _is_no_secret(text: str) -> bool:
    """A reference, or nothing but what stands for the secret in a template (`<password>`, `{{ password }}`)."""
    return _REFERENCE.search(text) is not None or is_secret_placeholder(text)


def _sasl(alias: str, config: Mapping[str, ForeignSetting], notes: ImportNotes, protocol: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    said = config.get("sasl.mechanism")
    mechanism = said.text.strip().upper() if said is not None else ""
    if mechanism in SASL_MECHANISMS:
        out["mechanism"] = mechanism
    elif mechanism == AWS_MSK_IAM:
        out["mechanism"] = "OAUTHBEARER"
    elif said is not None:
        notes.add_not_carried(
            f"`{said.name}`", f"a mechanism that Watershed does not speak ({', '.join(SASL_MECHANISMS)})", said.span
        )
    else:
        out["mechanism"] = "GSSAPI"  # Kafka's default
    if protocol == "SASL_PLAINTEXT" and mechanism == "PLAIN":
        place = config["security.protocol"]
        notes.add_problem("SEC602", f"cluster {alias}: the password travels readable", place.span, "use SASL_SSL")
    carried = {"sasl.mechanism", "sasl.jaas.config"}
    provider = find_foreign_provider(config, mechanism)
    found: dict[str, Any] = {}
    if provider is not None:
        found, settings = import_provider(alias, provider, config, notes)
        carried |= settings
    jaas = config.get("sasl.jaas.config")
    if jaas is not None and provider in (None, "client_credentials"):
        out["credentials"] = _import_account(alias, jaas, notes)
    out |= found
    service = config.get("sasl.kerberos.service.name")
    if service is not None and out.get("mechanism") == "GSSAPI":
        out["kerberos"] = {"service": service.text.strip()}
        carried.add("sasl.kerberos.service.name")
    for key, each in sorted(config.items()):
        if key.startswith("sasl.") and key not in carried:
            notes.add_not_carried(
                f"`{each.name}`", "Watershed's client takes a user and a password, and no callbacks", each.span
            )
    return out


def _import_account(alias: str, jaas: ForeignSetting, notes: ImportNotes) -> dict[str, str]:
    """A reference to `user:password`; what a person has to put there is a note."""
    found = _reference(jaas.text) or {"env": name_secret_variable(alias)}
    kind, name = next(iter(found.items()))
    kinds = {"env": "environment variable", "file": "file", "airflow_connection": "Airflow connection"}
    held = f"in the {kinds[kind]} {name}"
    notes.add_not_carried(
        f"`{jaas.name}`", f"the topology holds references only; provide `user:password` {held}", jaas.span
    )
    return found


def _tls(alias: str, config: Mapping[str, ForeignSetting], notes: ImportNotes) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for store, role in (("ssl.truststore", "ca"), ("ssl.keystore", "certificate")):
        location, inline = config.get(f"{store}.location"), config.get(f"{store}.certificates")
        inline = inline or config.get(f"{store}.certificate.chain")
        if location is not None:
            out[role] = _reference(location.text) or {"file": location.text.strip()}
            password, kind = config.get(f"{store}.password"), config.get(f"{store}.type")
            pem = kind.text.strip().upper() == "PEM" if kind is not None else location.text.endswith(_PEM_ENDINGS)
            if password is not None and not pem:
                out[f"{role}_password"] = _import_password(alias, f"{role}_password", password, notes)
        elif inline is not None:
            out[role] = _reference(inline.text) or {"env": name_secret_variable(alias, role.upper())}
            notes.add_not_carried(
                f"`{inline.name}`", "the topology names a PEM file (a variable holds its path)", inline.span
            )
    key_password = config.get("ssl.key.password")
    if key_password is not None and "certificate" in out:
        out["key_password"] = _import_password(alias, "key_password", key_password, notes)
    check = config.get("ssl.endpoint.identification.algorithm")
    if check is not None and check.text.strip().lower() != "https":
        notes.add_problem(
            "SEC604",
            f"`{check.name}` is empty: the client accepts any broker's certificate",
            check.key,
            "set it to `https`, and put the brokers' names into their certificates",
        )
        notes.add_not_carried(f"`{check.name}`", "the names in certificates are always checked", check.span)
    _note_other_tls(config, out, notes)
    return out


def _import_password(alias: str, key: str, said: ForeignSetting, notes: ImportNotes) -> dict[str, str]:
    """A reference to the password alone. Kafka's `${file:PATH:KEY}` is one line of a file, ours is a whole file."""
    match = _REFERENCE.search(said.text)
    if match is not None and match["provider"] in ("dir", "directory") and (match["path"] or "").startswith("/"):
        return {"file": f"{match['path']}/{match['key']}"}
    if match is not None and not match["path"] and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", match["key"]):
        return {"env": match["key"]}
    name = name_secret_variable(alias, key.upper())
    why = f"the topology holds references only; provide this password in the environment variable {name}"
    notes.add_not_carried(f"`{said.name}`", why, said.span)
    return {"env": name}


def _note_other_tls(config: Mapping[str, ForeignSetting], out: Mapping[str, Any], notes: ImportNotes) -> None:
    """What of `ssl.*` is in none of the keys in `out`."""
    done = ("ssl.truststore.", "ssl.keystore.")
    passwords = {theirs: ours for ours, theirs in _FOREIGN_PASSWORDS.items()}
    for key, each in sorted(config.items()):
        if not key.startswith("ssl.") or key == "ssl.endpoint.identification.algorithm" or passwords.get(key) in out:
            continue
        if key.startswith(done) and not is_secret_key(key):
            continue
        why = "there is no store that it opens" if key in passwords else "Watershed's TLS client has its own choice"
        if is_secret_key(key) and key not in passwords:
            why = "the topology names a PEM file with the key in it"
        notes.add_not_carried(f"`{each.name}`", why, each.span)


def _reference(text: str) -> dict[str, str] | None:
    """`${env:KAFKA_X_PASSWORD}` is {env: KAFKA_X}, `${file:/p:key}` {file: /p}; other providers have no path here."""
    found = list(_REFERENCE.finditer(text))
    if not found:
        return None
    match = found[-1]
    path = match["path"]
    if path and path.startswith("/"):
        return {
            "file": path
            if match["provider"] != "dir" and match["provider"] != "directory"
            else f"{path}/{match['key']}"
        }
    if path:
        return None
    name = _HALF.sub("", match["key"]) or match["key"]
    if name.startswith("AIRFLOW_CONN_"):
        return {"airflow_connection": name.removeprefix("AIRFLOW_CONN_").lower()}
    return {"env": name} if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else None


def build_client_properties(
    cluster: PlanCluster, topology: Topology, notes: ImportNotes, *, apart: str, jaas: str, key_store: str
) -> dict[str, str]:
    """The client settings of a cluster for another tool; secrets stay references of Kafka's config providers.

    The notes get what a person has to complete. apart: why, where user and password are needed one by one (`{user}`,
    `{password}`). jaas: what the tool calls `sasl.jaas.config`. key_store: why the key is not carried over.
    """
    security = cluster.security
    where = topology.root.where("clusters", cluster.alias, "security")
    what = f"clusters.{cluster.alias}.security"
    out: dict[str, str] = {"security.protocol": security.protocol}
    if security.protocol.startswith("SASL"):
        mechanism = security.mechanism or "the mechanism"
        if security.mechanism is not None:
            out["sasl.mechanism"] = mechanism
        module = _LOGIN_MODULES.get(mechanism)
        if security.credentials is not None and module is not None:
            user, password = _split_credentials(security.credentials)
            out["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
            notes.add_not_carried(f"{what}.credentials", apart.format(user=user, password=password), where)
        elif security.credentials is not None or security.oauth is not None:
            key = "credentials" if security.credentials is not None else "provider"
            notes.add_not_carried(f"{what}.{key}", f"write `{jaas}` for {mechanism} yourself", where)
    certificate = security.certificate or (security.credentials if security.protocol == "SSL" else None)
    for store, ref in (("ssl.truststore", security.ca), ("ssl.keystore", certificate)):
        if ref is not None:
            place = ref.name if ref.kind == "file" else f"${{env:{_name_variable(ref)}}}"
            out |= {f"{store}.type": _store_type(place), f"{store}.location": place}
    for name in ("ca_password", "certificate_password", "key_password"):
        if getattr(security, name) is not None:
            why = f"write `{_FOREIGN_PASSWORDS[name]}` yourself, as a reference of a config provider"
            notes.add_not_carried(f"{what}.{name}", why, where)
    if security.key is not None:
        notes.add_not_carried(f"{what}.key", key_store, where)
    return out


def _store_type(place: str) -> str:
    """By the name of the file, as nobody looks into it here."""
    return _STORE_TYPES.get(place.strip().lower().rpartition(".")[2], "PEM")


def _split_credentials(ref: SecretRef) -> tuple[str, str]:
    """References to the user and to the password."""
    if ref.kind == "file":
        return f"${{file:{ref.name}:username}}", f"${{file:{ref.name}:password}}"
    return f"${{env:{_name_variable(ref)}_USERNAME}}", f"${{env:{_name_variable(ref)}_PASSWORD}}"


def _name_variable(ref: SecretRef) -> str:
    return ref.name if ref.kind == "env" else f"AIRFLOW_CONN_{ref.name.upper()}"
