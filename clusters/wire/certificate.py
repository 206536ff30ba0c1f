"""What a certificate says of itself, for messages: subject, issuer, end of validity."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from asn1crypto import pem, x509


def describe_certificate(der: bytes) -> str:
    """`CN=…, issued by CN=…, for …, valid until 2026-01-01T00:00Z`; asn1crypto's words for names."""
    try:
        certificate: Any = x509.Certificate.load(der)
        names = [str(name) for name in (*certificate.valid_domains, *certificate.valid_ips)]
        ends: datetime = certificate.not_valid_after
        parts = [f"subject {certificate.subject.human_friendly}", f"issuer {certificate.issuer.human_friendly}"]
        parts += [f"for {', '.join(names[:5])}"] if names else []
        return "; ".join((*parts, f"valid until {ends:%Y-%m-%dT%H:%MZ}"))
    except (ValueError, TypeError, KeyError) as error:
        return f"not readable: {error}"


def describe_certificate_file(path: str) -> str:
    """Of the first certificate in a PEM file."""
    try:
        content = Path(path).read_bytes()
        for kind, _headers, der in pem.unarmor(content, multiple=True):
            if kind == "CERTIFICATE":
                return describe_certificate(der)
    except (OSError, ValueError):
        pass
    return f"{path}, not readable"
