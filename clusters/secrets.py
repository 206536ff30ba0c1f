"""From a reference to the secret it names: environment variables, files, Airflow connections."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from watershed.clusters import allowed_references
from watershed.clusters.errors import SecretMissing

if TYPE_CHECKING:
    from watershed.topology.secret_ref import SecretRef


@dataclass(frozen=True, slots=True)
class SecretResolver:
    """Resolves the references of one cluster; `what` is the key under `clusters.<alias>.<section>`, or under `where`.
    own: the reference is a setting of whoever runs this, which needs nobody's permission.

    Only references that whoever runs this allows (`clusters.allowed_references`) are read. Raises SecretMissing, which
    names the reference and never its content. Nothing is kept: every call reads anew.
    """

    alias: str
    environ: Mapping[str, str]
    section: str = "security"
    where: str = ""
    own: bool = False

    def account(self, what: str, ref: SecretRef) -> tuple[str, str]:
        """User name and password (client id and secret)."""
        text = self.text(what, ref)
        if text.startswith("{"):
            try:
                fields = json.loads(text)
                username, password = fields.get("username") or fields["login"], fields["password"]
                if _is_account(username, password):
                    return username, password
            except (ValueError, KeyError, AttributeError, RecursionError):
                pass
            raise self._missing(what, ref, "is JSON without username and password as text")
        if ref.kind == "airflow_connection":
            try:
                uri = urlsplit(text)
                user, secret = unquote(uri.username or ""), unquote(uri.password or "")
            except ValueError:  # its text would be part of the message
                user = secret = ""
            if _is_account(user, secret):
                return user, secret
        else:
            user, _, secret = text.partition(":")
            if _is_account(user, secret):
                return user, secret
        raise self._missing(what, ref, "holds no user name and password (`user:password` or JSON)")

    def path(self, what: str, ref: SecretRef) -> str:
        """A file reference names the file; any other reference holds its path."""
        authority = what.rpartition(".")[2] == "ca"
        self._permit(what, ref, allowed_references.explain_reference_refusal(ref, authority=authority))
        path = ref.name if ref.kind == "file" else self.text(what, ref)
        self._permit(what, ref, allowed_references.explain_file_refusal(path, authority=authority))
        if not os.access(path, os.R_OK):
            raise self._missing(what, ref, "names no readable file")
        return path

    def text(self, what: str, ref: SecretRef) -> str:
        """The whole content, without white space around it."""
        self._permit(what, ref, allowed_references.explain_reference_refusal(ref))
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

    def _permit(self, what: str, ref: SecretRef, refused: str | None) -> None:
        if refused is not None and not self.own:
            raise self._missing(what, ref, refused)

    def _missing(self, what: str, ref: SecretRef, why: str) -> SecretMissing:
        return SecretMissing(
            f"{self.where or f'clusters.{self.alias}.{self.section}'}.{what}: secret {{{ref.kind}: {ref.name}}} {why}. "
            "Provide it where this command runs; secrets are never part of the topology file.",
            alias=self.alias,
        )


def _is_account(username: object, password: object) -> bool:
    """Whether both are text, and what stands where the user's name is expected can be one: names are printed when a
    broker refuses them, and half of a secret that was written down wrongly must not be."""
    if not (isinstance(username, str) and isinstance(password, str) and username and password):
        return False
    if username.startswith("/") or password.startswith("//"):  # a path, or an address with its own account in it
        return False
    return not any(char.isspace() or ord(char) < 0x20 or ord(char) == 0x7F for char in username)


def read_file_stamp(path: str | None) -> tuple[int, int, int] | None:
    """What changes when a file is replaced or written; None for no file."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns
