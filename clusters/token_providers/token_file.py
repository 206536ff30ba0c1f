"""A token in a file that something else renews (a sidecar, a projected volume). It is read anew for every login."""

from __future__ import annotations

import datetime
import re
import time

from clusters.connection_parameters import ConnectionParameters, OAuthSettings
from clusters.errors import AuthenticationFailed, SecretMissing
from clusters.token_providers.access_token import AccessToken, compute_seconds_left, read_jwt_claims

_LARGEST_TOKEN = 64 << 10
_LOOKED_AT_S = 60.0  # a client that keeps a token looks into the file again after 80 % of this at most
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750, section 2.1


def read_token_file(settings: ConnectionParameters, oauth: OAuthSettings) -> AccessToken:
    """Raises SecretMissing for a file without a token, AuthenticationFailed for a token that has ended."""
    path, about = oauth.credentials_file or "", f"clusters.{settings.alias}.security.credentials"
    asked = time.monotonic()
    try:
        with open(path, "rb") as file:
            value = file.read(_LARGEST_TOKEN + 1).decode("ascii", "replace").strip()
    except OSError as error:
        raise SecretMissing(
            f"{about}: the token's file {path} cannot be read ({error.strerror})", alias=settings.alias
        ) from None
    if len(value) > _LARGEST_TOKEN or _TOKEN.fullmatch(value) is None:
        raise SecretMissing(
            f"{about}: {path} does not hold one token and nothing else (RFC 6750, at most {_LARGEST_TOKEN} bytes). "
            "Have whatever renews it write the token alone.",
            alias=settings.alias,
        )
    claims = read_jwt_claims(value)
    left = compute_seconds_left(claims)
    if left is not None and left <= 0:
        ended = datetime.datetime.fromtimestamp(time.time() + left, datetime.UTC)
        raise AuthenticationFailed(
            f"{about}: the token in {path} ended at {ended:%Y-%m-%dT%H:%M:%SZ}. Look at what renews the file, and at "
            "this machine's clock.",
            alias=settings.alias,
        )
    life = _LOOKED_AT_S if left is None else min(left, _LOOKED_AT_S)
    return AccessToken(value, str(claims.get("sub") or "unknown"), asked, asked + life)
