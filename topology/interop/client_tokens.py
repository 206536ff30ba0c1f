"""How a foreign client gets its tokens, as `provider` and `oauth` of the `security` section: AWS_MSK_IAM, the vendors'
login classes for OAUTHBEARER, a token endpoint, a token in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes

AWS_MSK_IAM = "AWS_MSK_IAM"  # a mechanism of the vendor's Java library; others send the same identity by OAUTHBEARER
_AWS_LOGIN = "software.amazon.msk.auth.iam."
_GOOGLE_LOGIN = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
_HANDLERS = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
_ENDPOINT, _SCOPE = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope"
_OWN_IDENTITY = (
    "the identity is that of the machine that runs Watershed, whose operator allows it by "
    "WATERSHED_ALLOW_IDENTITIES={provider}; or name {what} as `credentials`"
)
_JAAS_OPTION = re.compile(r'(?<![\w.])(aws[A-Za-z]{1,40})\s*=\s*(?:"([^"]*)"|([^\s";]+))')
# b-1.orders.0ab12c.c2.kafka.eu-central-1.amazonaws.com, and kafka-serverless
_MSK_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z]{2,8}(?:-[a-z]{1,16}){1,3}-[0-9]{1,2})\.amazonaws\.com")


def find_foreign_provider(config: Mapping[str, ForeignSetting], mechanism: str) -> str | None:
    """Our provider for this client; None where it takes a user and a password, or says nothing that we know."""
    handler = next((config[key].text.strip() for key in _HANDLERS if key in config), "")
    if mechanism == AWS_MSK_IAM or (mechanism == "OAUTHBEARER" and handler.startswith(_AWS_LOGIN)):
        return "aws_msk_iam"
    if mechanism == "OAUTHBEARER" and handler == _GOOGLE_LOGIN:
        return "google"
    if mechanism == "OAUTHBEARER" and _ENDPOINT in config:
        return "file" if config[_ENDPOINT].text.strip().startswith("file:") else "client_credentials"
    return None


def import_provider(
    alias: str, provider: str, config: Mapping[str, ForeignSetting], notes: ImportNotes
) -> tuple[dict[str, Any], set[str]]:
    """The keys of `security` for a provider, and the client's settings that are in them, or in a note."""
    if provider == "aws_msk_iam":
        return _import_aws(alias, config, notes)
    if provider == "google":
        said = next(config[key] for key in _HANDLERS if key in config)
        notes.add_not_carried(f"`{said.name}`", _OWN_IDENTITY.format(provider=provider, what="a key file"), said.span)
        return {"provider": provider}, {"sasl.jaas.config", *_HANDLERS}
    endpoint, scope = config[_ENDPOINT], config.get(_SCOPE)
    if provider == "file":
        path = _read_file_address(endpoint, notes)
        return {"provider": "file"} | ({"credentials": {"file": path}} if path else {}), {_ENDPOINT}
    address = import_token_endpoint(endpoint, notes)
    oauth = ({"token_endpoint": address} if address else {}) | ({"scope": scope.text.strip()} if scope else {})
    return {"oauth": oauth} if oauth else {}, {_ENDPOINT, _SCOPE}


def import_token_endpoint(said: ForeignSetting, notes: ImportNotes) -> str | None:
    """The address without its user, query and fragment, which can hold secrets; a note says so. None for no address."""
    text = said.text.strip()
    try:
        parts = urlsplit(text)
    except ValueError:
        notes.add_not_carried(f"`{said.name}`", "it is no address", said.span)
        return None
    _, user, host = parts.netloc.rpartition("@")
    if not (user or parts.query or parts.fragment):
        return text
    why = "secrets can stand in its user, query or fragment: they are left out, give the client as `credentials`"
    notes.add_not_carried(f"parts of `{said.name}`", why, said.span)
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _read_file_address(said: ForeignSetting, notes: ImportNotes) -> str | None:
    try:
        path = unquote(urlsplit(said.text.strip()).path)
    except ValueError:
        path = ""
    if path and path.isprintable():
        return path
    notes.add_not_carried(f"`{said.name}`", "it names no file: write the token's file as `credentials`", said.span)
    return None


def _import_aws(
    alias: str, config: Mapping[str, ForeignSetting], notes: ImportNotes
) -> tuple[dict[str, Any], set[str]]:
    jaas = config.get("sasl.jaas.config")
    options = {name: quoted or plain for name, quoted, plain in _JAAS_OPTION.findall(jaas.text if jaas else "")}
    servers = config.get("bootstrap.servers")
    named = _MSK_HOST.search(servers.text) if servers is not None else None
    sts = options.get("awsStsRegion")  # of STS only, says the vendor's library; mostly the cluster's, too
    region = named[1] if named is not None else sts
    oauth = {"region": region} if region else {}
    if "awsRoleArn" in options:
        oauth["role"] = options["awsRoleArn"]
    said = jaas or config.get("sasl.mechanism")
    if said is not None:
        notes.add_not_carried(
            f"`{said.name}`",
            _OWN_IDENTITY.format(provider="aws_msk_iam", what="an access key"),
            said.span,
        )
    if jaas is not None and "awsProfileName" in options:
        why = "profiles belong to the machine: set AWS_PROFILE where Watershed runs"
        notes.add_not_carried(f"awsProfileName in `{jaas.name}`", why, jaas.span)
    if jaas is not None and sts and named is None:
        why = f"no address names the region of cluster {alias}: {sts}, that of STS, is taken. Check `oauth.region`"
        notes.add_not_carried(f"awsStsRegion in `{jaas.name}`", why, jaas.span)
    elif jaas is not None and sts and sts != region:
        why = f"the brokers are in {region}; roles are assumed there, too, unless `oauth.token_endpoint` names that STS"
        notes.add_not_carried(f"awsStsRegion {sts} in `{jaas.name}`", why, jaas.span)
    if said is not None and not region:
        why = f"no address names the region of cluster {alias}: write it as `oauth.region`"
        notes.add_not_carried("the region at AWS", why, said.span)
    return {"provider": "aws_msk_iam"} | ({"oauth": oauth} if oauth else {}), {"sasl.jaas.config", *_HANDLERS}
