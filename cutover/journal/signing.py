"""Who may write entries that count: with a key, whoever has it; without one, whoever may write to the topic."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.secrets import SecretResolver
from watershed.topology.plan import Plan

PLAIN_HASH_PREFIX: Final = "sha256:"
SIGNED_HASH_PREFIX: Final = "hmac-sha256:"


@dataclass(frozen=True, slots=True)
class Signing:
    """The keys of one topology's journal, newest first; none: entries are not signed. trusting: there is a key, but
    not for who reads here; signed entries are taken as they are and told as not verified."""

    keys: tuple[bytes, ...] = field(default=(), repr=False)
    trusting: bool = False

    def seal(self, body: bytes) -> str:
        """The hash of an entry that is written now."""
        return _sign_entry(self.keys[0], body) if self.keys else hash_entry(body)

    def key_of(self, body: bytes, seal: str) -> int | None:
        """Which key the entry was signed with (0: the newest); None for none of ours."""
        mac = seal.encode(errors="surrogatepass")  # compare_digest takes no text beyond ASCII
        found = (
            number for number, key in enumerate(self.keys) if hmac.compare_digest(_sign_entry(key, body).encode(), mac)
        )
        return next(found, None)


UNSIGNED: Final = Signing()
TRUSTING: Final = Signing(trusting=True)


def hash_entry(body: bytes) -> str:
    """SHA-256 of the entry's body, for a journal without a key."""
    return PLAIN_HASH_PREFIX + hashlib.sha256(body).hexdigest()


def _sign_entry(key: bytes, body: bytes) -> str:
    """HMAC-SHA256 (RFC 2104)."""
    return SIGNED_HASH_PREFIX + hmac.new(key, body, hashlib.sha256).hexdigest()


def read_signing_keys(plan: Plan, environ: Mapping[str, str] = os.environ) -> Signing:
    """The keys that the file refers to (`migration.journal`). Raises SecretMissing."""
    journal = plan.migration.journal if plan.migration is not None else None
    if journal is None:
        return UNSIGNED
    vault = SecretResolver("", environ, where="migration.journal")
    earlier = (vault.text(f"earlier_keys[{number}]", ref) for number, ref in enumerate(journal.earlier_keys))
    return Signing(tuple(text.encode() for text in (vault.text("key", journal.key), *earlier)))
