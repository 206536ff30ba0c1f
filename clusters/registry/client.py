"""Asking one schema registry, by the REST API that Confluent's has and others (Apicurio, Karapace, Redpanda) share.

Source: Confluent's API reference (subjects, schemas, config, mode, contexts; error codes 404xx and 422xx). One
connection, kept; no redirect is followed (it would carry the password to an address that the topology does not name).
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from watershed.clusters.deadline import run_with_deadline
from watershed.clusters.errors import (
    AuthenticationFailed,
    ProtocolError,
    RequestRefused,
    Unauthorised,
    Unreachable,
    UntrustedBroker,
)
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.registry.schema import Schema, SchemaVersion
from watershed.topology.bounded_json import parse_json

_TIMEOUT_S = 5.0  # of a connect and of each read
_DEADLINE_S = 30.0  # of a whole answer
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA, _NO_COMPATIBILITY, _NO_MODE = 40401, 40402, 40403, 40408, 40409
_ABSENT = frozenset({_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA, _NO_COMPATIBILITY, _NO_MODE})
_T = TypeVar("_T")
_LARGEST_ANSWER = 64 << 20
_FORM = "application/vnd.schemaregistry.v1+json"


class RegistryClient:
    """Every question raises Unreachable, AuthenticationFailed, UntrustedBroker, Unauthorised, RequestRefused (`code` is
    the registry's own) and ProtocolError (whatever answers there is no schema registry). What is not there is None or
    empty."""

    def __init__(
        self, settings: RegistrySettings, timeout_s: float = _TIMEOUT_S, deadline_s: float = _DEADLINE_S
    ) -> None:
        self.settings = settings
        self._url = urlsplit(settings.url)
        self._timeout_s, self._deadline_s = timeout_s, deadline_s
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the kept connection."""
        with self._lock:
            self._hang_up()

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """Of all contexts (of the address's own, where it names one), sorted; `deleted`: those too of which only softly
        deleted versions are left."""
        asked = {} if "/contexts/" in f"{self._url.path}/" else {"subjectPrefix": ":*:"}
        asked |= {"deleted": "true"} if deleted else {}
        return sorted(map(self._text, self._list("/subjects", asked)))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """In order; empty where the subject is not there."""
        path = f"/subjects/{_quoted(subject)}/versions"
        return sorted(map(self._number, self._list(path, {"deleted": "true"} if deleted else {})))

    def version(self, subject: str, version: int) -> SchemaVersion | None:
        """Also one that is softly deleted; whether it is, `history` knows."""
        found = self._ask("GET", f"/subjects/{_quoted(subject)}/versions/{version}", {"deleted": "true"})
        return None if found is None else self._version(found)

    def history(self, subject: str) -> list[SchemaVersion]:
        """All versions in order, the softly deleted ones marked."""
        everything = self.versions(subject, deleted=True)
        live = set(self.versions(subject)) if everything else set()
        found = (self.version(subject, number) for number in everything)
        return [
            SchemaVersion(each.subject, each.version, each.id, each.schema, each.version not in live)
            for each in found
            if each is not None
        ]

    def schema(self, id: int, subject: str | None = None) -> Schema | None:
        """By id, in the context of `subject` (ids mean something only in their context)."""
        found = self._ask("GET", f"/schemas/ids/{id}", {"subject": subject} if subject else {})
        return None if found is None else self._read(lambda: Schema.from_json(found))

    def lookup(self, subject: str, schema: Schema) -> SchemaVersion | None:
        """The version of `subject` that the registry takes for the same schema."""
        found = self._ask("POST", f"/subjects/{_quoted(subject)}", {"deleted": "true"}, schema.to_json())
        return None if found is None else self._version({"schemaType": schema.type} | self._object(found))

    def register(self, subject: str, schema: Schema, *, id: int | None = None, version: int | None = None) -> int:
        """Returns the id. id and version are for a subject in mode IMPORT; see that the answer is the id."""
        body = schema.to_json()
        if id is not None:
            body["id"] = id
        if version is not None:
            body["version"] = version
        found = self._ask("POST", f"/subjects/{_quoted(subject)}/versions", {}, body)
        return self._read(lambda: self._number(self._object(found)["id"]))

    def compatibility(self, subject: str | None = None, *, effective: bool = False) -> str | None:
        """Of the subject, or of all (subject None). effective: the registry's own where the subject has none."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        asked = {"defaultToGlobal": "true"} if effective and subject is not None else {}
        found = self._ask("GET", path, asked)
        if not found:
            return None
        found = self._object(found)
        level = found.get("compatibilityLevel") or found.get("compatibility")
        return None if level is None else str(level)

    def set_compatibility(self, subject: str | None, level: str) -> None:
        """Sets the level (BACKWARD, FULL, …) of a subject, or with None that of the registry."""
        self._ask("PUT", "/config" if subject is None else f"/config/{_quoted(subject)}", {}, {"compatibility": level})

    def mode(self, subject: str | None = None, *, effective: bool = False) -> str | None:
        """READWRITE, READONLY or IMPORT; None where a subject has none of its own, and of registries without modes."""
        path = "/mode" if subject is None else f"/mode/{_quoted(subject)}"
        asked = {"defaultToGlobal": "true"} if effective and subject is not None else {}
        found = self._ask("GET", path, asked, missing=True)
        mode = self._object(found).get("mode") if found else None
        return None if mode is None else str(mode)

    def set_mode(self, subject: str, mode: str, *, force: bool = False) -> None:
        """force: IMPORT also where the subject has versions."""
        self._ask("PUT", f"/mode/{_quoted(subject)}", {"force": "true"} if force else {}, {"mode": mode})

    def clear_mode(self, subject: str) -> bool:
        """Take back a subject's own mode, so that the registry's counts. False: this registry cannot."""
        try:
            self._ask("DELETE", f"/mode/{_quoted(subject)}", {}, missing=True)
        except (RequestRefused, ProtocolError):
            return False
        return self.mode(subject) is None

    def contexts(self) -> list[str]:
        """`.` is the default one; empty of registries without contexts."""
        found = self._ask("GET", "/contexts", {}, missing=True)
        return sorted(str(each) for each in found) if isinstance(found, list) else []

    def _list(self, path: str, asked: dict[str, str]) -> list[Any]:
        found = self._ask("GET", path, asked)
        if found is None:
            return []
        if not isinstance(found, list):
            raise self._no_registry(f"GET {path} gives no list")
        return found

    def _object(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._no_registry(f"it gives a {type(value).__name__} where an object is expected")
        return value

    def _number(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._no_registry(f"it gives {value!r:.100} where a number is expected")
        return value

    def _text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self._no_registry(f"it gives {value!r:.100} where a text is expected")
        return value

    def _version(self, value: Any) -> SchemaVersion:
        found = self._object(value)
        return self._read(
            lambda: SchemaVersion(
                str(found["subject"]), self._number(found["version"]), self._number(found["id"]),
                Schema.from_json(found),
            )
        )  # fmt: skip

    def _read(self, how: Callable[[], _T]) -> _T:
        try:
            return how()
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._no_registry(f"its answer lacks something ({error!r})") from None

    def _ask(
        self, method: str, path: str, asked: dict[str, str], body: Any = None, *, missing: bool = False
    ) -> Any | None:
        """None for what is not there. missing: an endpoint that this registry lacks is not there either."""
        status, text = self._answer(method, path, asked, body)
        if status == 204:
            return None
        try:
            value = parse_json(text) if text else None
        except ValueError:
            value = None
        code = value.get("error_code") if isinstance(value, dict) else None
        code = code if isinstance(code, int) else None
        if 200 <= status < 300 and value is not None:
            return value
        if status == 404 and (code in _ABSENT or missing):
            return None
        if status == 401:
            raise AuthenticationFailed(
                f"{self._named} does not know {self.settings.username or 'callers without a user name'} (401). Check "
                f"clusters.{self.settings.alias}.schema_registry.credentials.",
                alias=self.settings.alias,
            )
        if status == 403:
            raise Unauthorised(
                f"{self._named} refuses {method} {path} to {self.settings.username or 'callers without a user name'}: "
                f"{_said(value, status)}",
                alias=self.settings.alias,
            )
        busy = status >= 500 or status == 429  # Too Many Requests
        if code in (None, 0, 404) and (status == 404 or code is None) and not busy:
            raise self._no_registry(f"{method} {path} gives HTTP {status}")
        if busy:
            raise Unreachable(
                f"{self._named} cannot answer {method} {path} now: {_said(value, status)}", alias=self.settings.alias
            )
        error = RequestRefused(f"{self._named} refuses {method} {path}: {_said(value, status)}")
        error.code, error.alias = int(code or 0) or status, self.settings.alias
        raise error

    def _answer(self, method: str, path: str, asked: dict[str, str], body: Any) -> tuple[int, bytes]:
        headers = {"Accept": f"{_FORM}, application/json", "Content-Type": _FORM}
        if self.settings.username is not None:
            account = f"{self.settings.username}:{self.settings.password or ''}"
            headers["Authorization"] = "Basic " + base64.b64encode(account.encode()).decode()
        query = f"?{urlencode(asked)}" if asked else ""
        payload = None if body is None else json.dumps(body).encode()
        with self._lock:
            for fresh in (False, True):
                kept = self._connection is not None
                try:
                    connection = self._connected()

                    def asked_once(connection: http.client.HTTPConnection = connection) -> tuple[int, bytes]:
                        connection.request(method, f"{self._url.path}{path}{query}", payload, headers)
                        answer = connection.getresponse()
                        return answer.status, answer.read(_LARGEST_ANSWER)

                    # the socket's timeout is for each read; an answer that drips would hold the lock for ever
                    return run_with_deadline(self._deadline_s, asked_once)
                except (OSError, http.client.HTTPException, ValueError) as error:
                    self._hang_up()
                    if isinstance(error, ssl.SSLCertVerificationError):
                        raise UntrustedBroker(
                            f"{self._named} shows a certificate that does not prove who it is: {error.verify_message}. "
                            f"Nothing was sent to it. Check clusters.{self.settings.alias}.schema_registry.ca.",
                            alias=self.settings.alias,
                        ) from None
                    if isinstance(error, TimeoutError):
                        raise self._unreachable(error) from None
                    # a kept connection may have been closed by the server meanwhile; what only asks is asked again
                    if kept and not fresh and method == "GET":
                        continue
                    raise self._unreachable(error) from None
        raise AssertionError("the second attempt answers or raises")

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            host, port = self._url.hostname or "", self._url.port
            if self._url.scheme == "https":
                self._connection = http.client.HTTPSConnection(
                    host, port, timeout=self._timeout_s, context=self._context()
                )
            else:
                self._connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        return self._connection

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.settings.ca_file)
        if self.settings.certificate_file is not None:
            context.load_cert_chain(
                self.settings.certificate_file, self.settings.key_file, lambda: self.settings.key_password or ""
            )
        return context

    def _hang_up(self) -> None:
        if self._connection is not None:
            if self._connection.sock is not None:
                with contextlib.suppress(OSError):  # whoever still reads from it is given up
                    self._connection.sock.shutdown(socket.SHUT_RDWR)
            self._connection.close()
            self._connection = None

    @property
    def _named(self) -> str:
        return f"the schema registry of cluster {self.settings.alias} at {self.settings.url}"

    def _unreachable(self, error: Exception) -> Unreachable:
        why = str(getattr(error, "reason", "") or error) or type(error).__name__
        why = "no answer in time" if isinstance(error, TimeoutError) else why
        return Unreachable(
            f"{self._named} does not answer: {why}. Check that it runs, and "
            f"clusters.{self.settings.alias}.schema_registry.",
            alias=self.settings.alias,
        )

    def _no_registry(self, why: str) -> ProtocolError:
        return ProtocolError(
            f"{self._named} answers, but not like a schema registry: {why}. Is the path right? (Apicurio's is "
            "…/apis/ccompat/v7.)",
            alias=self.settings.alias,
        )


def _quoted(subject: str) -> str:
    return quote(subject, safe=":")


def _said(value: Any, status: int) -> str:
    said = str(value.get("message", ""))[:300] if isinstance(value, dict) else ""
    code = value.get("error_code") if isinstance(value, dict) else None
    return f"{said or 'no reason given'} (HTTP {status}{f', error {code}' if code else ''})"
