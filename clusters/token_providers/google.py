"""Tokens of Google for Managed Service for Apache Kafka: as a service account with a key, or as this machine's own.

The brokers take the access token in an envelope of three parts, as Google's login handler sends it (repository
googleapis/managedkafka, kafka-auth-local-server): header, claims and access token, each in base64url.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from watershed.clusters.connection_parameters import ConnectionParameters, OAuthSettings
from watershed.clusters.errors import ProtocolError, SecretMissing
from watershed.clusters.token_providers.access_token import AccessToken
from watershed.clusters.token_providers.token_endpoint import (
    TokenRequest,
    request_access_token,
    request_answer,
    require_plain_endpoint,
)
from watershed.topology.bounded_json import parse_json_object

_METADATA = "http://metadata.google.internal"
_ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default/"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_ASSERTION_S = 3600  # the longest that Google takes
_LARGEST_KEY_FILE = 64 << 10


def request_google_token(settings: ConnectionParameters, oauth: OAuthSettings) -> AccessToken:
    """As the service account in the key file that the cluster's credentials name, else as this machine's.

    Raises what `request_access_token` raises, SecretMissing for a file that is no key of a service account,
    ProtocolError without the package `cryptography`.
    """
    if oauth.credentials_file is None:
        return _ask_metadata(settings, oauth)
    account = _read_account(settings, oauth.credentials_file)
    endpoint = oauth.token_endpoint or account.token_uri
    request = TokenRequest(
        endpoint,
        f"the service account {account.email}",
        f"Check its key (clusters.{settings.alias}.security.credentials), and this machine's clock.",
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",  # RFC 7523, section 2.1
            "assertion": _sign_assertion(settings, account, endpoint, oauth.scope or _SCOPE),
        },
        protocol="OAuth 2.0 for service accounts",
    )
    return _wrap(request_access_token(settings, request), account.email)


@dataclass(frozen=True, slots=True)
class _ServiceAccount:
    email: str
    key_id: str
    token_uri: str
    private_key: str = field(repr=False)


def _ask_metadata(settings: ConnectionParameters, oauth: OAuthSettings) -> AccessToken:
    require_plain_endpoint(settings, oauth.token_endpoint or _METADATA)
    base = (oauth.token_endpoint or _METADATA).rstrip("/") + _ACCOUNT
    scopes = ",".join((oauth.scope or "").split())  # Compute Engine documentation: commas; without any, the machine's
    request = TokenRequest(
        f"{base}token" + (f"?{urlencode({'scopes': scopes})}" if scopes else ""),
        "this machine's service account",
        f"Give this machine one, or name a key file in clusters.{settings.alias}.security.credentials.",
        headers={"Metadata-Flavor": "Google"},
        protocol="Google's metadata server",
        metadata=True,
    )
    found = request_access_token(settings, request)
    account = request_answer(settings, replace(request, url=f"{base}?recursive=true"))
    email = account.get("email")
    if not isinstance(email, str) or not email:
        message = f"the metadata server {base} of cluster {settings.alias} names no e-mail of this machine's account"
        raise ProtocolError(message, alias=settings.alias)
    return _wrap(found, email)


def _read_account(settings: ConnectionParameters, path: str) -> _ServiceAccount:
    about = f"clusters.{settings.alias}.security.credentials"
    try:
        with open(path, "rb") as file:
            said = parse_json_object(file.read(_LARGEST_KEY_FILE))
        texts = [said[name] for name in ("client_email", "private_key_id", "token_uri", "private_key")]
        if said["type"] != "service_account" or not all(isinstance(each, str) for each in texts):
            raise ValueError
    except OSError as error:
        raise SecretMissing(f"{about}: {path} cannot be read ({error.strerror})", alias=settings.alias) from None
    except (ValueError, KeyError):
        raise SecretMissing(
            f"{about}: {path} is no key of a service account (JSON, as Google's console makes it)", alias=settings.alias
        ) from None
    return _ServiceAccount(*texts)


def _sign_assertion(settings: ConnectionParameters, account: _ServiceAccount, endpoint: str, scope: str) -> str:
    """A JWT with which the account asks for a token (RFC 7523, section 3), signed by RS256."""
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import padding, rsa
    except ImportError as error:
        raise ProtocolError(
            f"cluster {settings.alias} takes tokens of Google by a service account's key, and the package cryptography "
            f"is not installed here ({error}); install watershed[keystores]",
            alias=settings.alias,
        ) from None
    now = int(time.time())
    claims = {"iss": account.email, "scope": scope, "aud": endpoint, "iat": now, "exp": now + _ASSERTION_S}
    signed = f"{_encode({'alg': 'RS256', 'typ': 'JWT', 'kid': account.key_id})}.{_encode(claims)}"
    try:
        key = serialization.load_pem_private_key(account.private_key.encode(), None)
        if not isinstance(key, rsa.RSAPrivateKey):
            raise TypeError
    except (ValueError, TypeError):
        message = f"clusters.{settings.alias}.security.credentials: the private key in that file is no RSA key in PEM"
        raise SecretMissing(message, alias=settings.alias) from None
    return f"{signed}.{_to_base64url(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _wrap(found: AccessToken, email: str) -> AccessToken:
    now = time.time()
    claims = {"exp": now + found.ends - time.monotonic(), "iat": now, "iss": "Google", "scope": "kafka", "sub": email}
    parts = (_encode({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}), _encode(claims), _to_base64url(found.value.encode()))
    return replace(found, value=".".join(parts), principal=email)


def _encode(value: dict[str, Any]) -> str:
    return _to_base64url(json.dumps(value, separators=(",", ":")).encode())


def _to_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
