"""An access token, and what it says about itself."""

from __future__ import annotations

import base64
import binascii
import datetime
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from watershed.topology.bounded_json import parse_json_object

_RENEWED_AT = 0.8  # of its life, as librdkafka and Kafka's own client do
_LONGEST_CLAIM = 100  # characters of one, in a message
_INSTANT = "%Y-%m-%dT%H:%M:%SZ"
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750, section 2.1
LARGEST_TOKEN = 64 << 10  # characters


@dataclass(frozen=True, slots=True)
class AccessToken:
    """fetched and ends are monotonic seconds; principal is the JWT's `sub`, or the client id of an opaque token."""

    value: str = field(repr=False)
    principal: str
    fetched: float
    ends: float

    def aged(self, now: float) -> bool:
        """Whether 80 % of the token's life are over, so that the next one should be fetched."""
        return now >= self.fetched + _RENEWED_AT * (self.ends - self.fetched)


def read_jwt_claims(value: str) -> dict[str, Any]:
    """The claims of a JWT, unverified (the broker verifies); {} of an opaque token."""
    parts = value.split(".")
    if len(parts) != 3:
        return {}
    try:
        return parse_json_object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return {}


def describe_token(value: str) -> str:
    """What a JWT says about itself, for the message about a broker that refuses it; "" of an opaque token."""
    claims = read_jwt_claims(value)
    said = [
        f"{words} {str(claims[name])[:_LONGEST_CLAIM]}"
        for name, words in {"sub": "subject", "iss": "issuer", "aud": "audience", "scope": "scope"}.items()
        if claims.get(name)
    ]
    left = compute_seconds_left(claims)
    ends = format_end(left) if left is not None else ""
    return ", ".join([*said, f"valid until {ends}"] if ends else said)


def format_end(seconds_left: float) -> str:
    """The instant in UTC at which that time is over, by this machine's clock; "" beyond all calendars."""
    with suppress(OverflowError, ValueError, OSError):
        return f"{datetime.datetime.fromtimestamp(time.time() + seconds_left, datetime.UTC):{_INSTANT}}"
    return ""


def is_bearer_token(value: str) -> bool:
    """Whether it can be sent as a token: in a login it stands between control characters (RFC 7628)."""
    return len(value) <= LARGEST_TOKEN and _BEARER.fullmatch(value) is not None


def compute_seconds_left(claims: dict[str, Any]) -> float | None:
    """Until the JWT's `exp`, by this machine's clock; None if it says none."""
    exp = claims.get("exp")
    return float(exp) - time.time() if isinstance(exp, int | float) else None
