"""A token in a file that something else renews (a sidecar, a projected volume). It is read anew for every login."""

from __future__ import annotations

import time

from watershed.clusters.connection_parameters import ConnectionParameters, OAuthSettings
from watershed.clusters.errors import AuthenticationFailed, SecretMissing
from watershed.clusters.token_providers.access_token import (
    LARGEST_TOKEN,
    AccessToken,
    compute_seconds_left,
    format_end,
    is_bearer_token,
    read_jwt_claims,
)

_LOOKED_AT_S = 60.0  # a client that keeps a token looks into the file again after 80 % of this at most


def read_token_file(settings: ConnectionParameters, oauth: OAuthSettings) -> AccessToken:
    """Raises SecretMissing for a file without a token, AuthenticationFailed for a token that has ended."""
    path, about = oauth.credentials_file or "", f"clusters.{settings.alias}.security.credentials"
    asked = time.monotonic()
    try:
        with open(path, "rb") as file:
            value = file.read(LARGEST_TOKEN + 1).decode("ascii", "replace").strip()
    except OSError as error:
        raise SecretMissing(
            f"{about}: the token's file {path} cannot be read ({error.strerror})", alias=settings.alias
        ) from None
    if not is_bearer_token(value):
        raise SecretMissing(
            f"{about}: {path} does not hold one token and nothing else (RFC 6750, at most {LARGEST_TOKEN} bytes). "
            "Have whatever renews it write the token alone.",
            alias=settings.alias,
        )
    claims = read_jwt_claims(value)
    left = compute_seconds_left(claims)
    if left is not None and left <= 0:
        ended = f"ended at {format_end(left)}".removesuffix(" at ")
        raise AuthenticationFailed(
            f"{about}: the token in {path} {ended}. Look at what renews the file, and at this machine's clock.",
            alias=settings.alias,
        )
    life = _LOOKED_AT_S if left is None else min(left, _LOOKED_AT_S)
    return AccessToken(value, str(claims.get("sub") or "unknown"), asked, asked + life)
