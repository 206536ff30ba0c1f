"""The signatures of requests to hooks and to applications' switches (docs/hooks.md and docs/applications.md have the
recipes to check them)."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlsplit


def build_signature_headers(secret: str, body: bytes, seconds: float) -> dict[str, str]:
    """`v1=` and HMAC-SHA256 (RFC 2104) in hexadecimal, over the timestamp, a dot and the body as sent. seconds: since
    1970; the time is in it so that a receiver can refuse what somebody recorded and sends again."""
    stamp = str(int(seconds))
    return _build_headers("v1", secret, stamp, stamp.encode() + b"." + body)


def build_request_signature_headers(secret: str, method: str, url: str, body: bytes, seconds: float) -> dict[str, str]:
    """`v2=` and the same over timestamp, method, path with query, a line feed behind each, and the body: an order to
    stop is none to start, and one for an application is none for another with the same key."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    stamp = str(int(seconds))
    return _build_headers("v2", secret, stamp, f"{stamp}\n{method}\n{target}\n".encode() + body)


def _build_headers(version: str, secret: str, stamp: str, signed: bytes) -> dict[str, str]:
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return {"X-Watershed-Timestamp": stamp, "X-Watershed-Signature": f"{version}={digest}"}
