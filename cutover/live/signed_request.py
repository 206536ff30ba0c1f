"""The signature of requests to hooks and to applications' switches (docs/hooks.md has the recipe to check it)."""

from __future__ import annotations

import hashlib
import hmac


def build_signature_headers(secret: str, body: bytes, seconds: float) -> dict[str, str]:
    """`v1=` and HMAC-SHA256 (RFC 2104) in hexadecimal, over the timestamp, a dot and the body as sent. seconds: since
    1970; the time is in it so that a receiver can refuse what somebody recorded and sends again."""
    stamp = str(int(seconds))
    digest = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Watershed-Timestamp": stamp, "X-Watershed-Signature": f"v1={digest}"}
