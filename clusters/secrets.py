"""From a reference to the secret it names: environment variables, files, Airflow connections."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from clusters.errors import SecretMissing

if TYPE_CHECKING:
    from topology.plan import SecretRef


@dataclass(frozen=True, slots=True)
class Vault:
    """Resolves the references of one cluster; `what` is the key under `clusters.<alias>.<section>`, or under `where`.

    Raises SecretMissing, which names the reference and never its content. Nothing is kept: every call reads anew.
    """

    alias: str
    environ: Mapping[str, str]
    section: str = "security"
    where: str = ""

    def account(self, what: str, ref: SecretRef) -> tuple[str, str]:
        """User name and password (client id and secret)."""
        text = self.text(what, ref)
        if text.startswith("{"):
            try:
                fields = json.loads(text)
                return str(fields.get("username") or fields["login"]), str(fields["password"])
            except (ValueError, KeyError, AttributeError):
                raise self._missing(what, ref, "is JSON without username and password") from None
        if ref.kind == "airflow_connection":
            uri = urlsplit(text)
            if uri.username is not None and uri.password is not None:
                return unquote(uri.username), unquote(uri.password)
        elif ":" in text:
            username, _, password = text.partition(":")
            return username, password
        raise self._missing(what, ref, "holds no user name and password (`user:password` or JSON)")

    def path(self, what: str, ref: SecretRef) -> str:
        """A file reference names the file; any other reference holds its path."""
        path = ref.name if ref.kind == "file" else self.text(what, ref)
        if not os.access(path, os.R_OK):
            raise self._missing(what, ref, "names no readable file")
        return path

    def text(self, what: str, ref: SecretRef) -> str:
        """The whole content, without white space around it."""
        if ref.kind == "file":
            try:
                return Path(ref.name).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
                raise self._missing(what, ref, f"cannot be read ({reason})") from None
        name = ref.name if ref.kind == "env" else f"AIRFLOW_CONN_{ref.name.upper()}"
        value = self.environ.get(name, "").strip()
        if not value:
            raise self._missing(what, ref, f"is not set: export {name}")
        return value

    def _missing(self, what: str, ref: SecretRef, why: str) -> SecretMissing:
        return SecretMissing(
            f"{self.where or f'clusters.{self.alias}.{self.section}'}.{what}: secret {{{ref.kind}: {ref.name}}} {why}. "
            "Provide it where this command runs; secrets are never part of the topology file.",
            alias=self.alias,
        )


def stamp(path: str | None) -> tuple[int, int, int] | None:
    """What changes when a file is replaced or written; None for no file."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns
