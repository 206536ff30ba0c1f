"""A schema registry in memory, behind HTTP on the loopback: Confluent's API as documented, for tests and examples.

`tests/clusters/brokers/test_registry_contract.py` holds it against a real one.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from watershed.clusters.registry.schema import Schema, SchemaReference, SchemaVersion, render_canonical_schema
from watershed.clusters.registry.subject_names import parse_subject

FAKE_REGISTRY_HOST = "127.0.0.1"
_READWRITE, _READONLY, _IMPORT = "READWRITE", "READONLY", "IMPORT"


class _RegistryRefusal(Exception):
    """status and error code as Confluent's API reference has them."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(slots=True)
class FakeRegistry:
    """accounts: user → password; empty: everybody may. modes False: has no modes (Apicurio 3.0). heeds_ids False: says
    IMPORT and gives ids of its own all the same (Apicurio 3.3). read_only: users who may not change anything.
    next_id: of the default context."""

    accounts: dict[str, str] = field(default_factory=dict)
    modes: bool = True
    heeds_ids: bool = True
    read_only: frozenset[str] = frozenset()
    next_id: int = 1
    compatibility: str = "BACKWARD"
    mode: str = _READWRITE
    asked: list[str] = field(default_factory=list)
    _versions: dict[str, list[SchemaVersion]] = field(default_factory=dict)
    _levels: dict[str, str] = field(default_factory=dict)
    _modes: dict[str, str] = field(default_factory=dict)
    _next: dict[str, int] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer((FAKE_REGISTRY_HOST, 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), name="registry", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where the registry listens, on the loopback interface."""
        assert self._server is not None, "it serves inside its `with` block"
        scheme = "https" if isinstance(self._server.socket, ssl.SSLSocket) else "http"
        return f"{scheme}://{FAKE_REGISTRY_HOST}:{self._server.server_port}"

    def over(self, context: ssl.SSLContext) -> None:
        """From now on by TLS."""
        assert self._server is not None, "it serves inside its `with` block"
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def answer(self, method: str, target: str, body: Any, user: str = "") -> Any:
        """One request. Raises _RegistryRefusal."""
        url = urlsplit(target)
        asked = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if method != "GET" and user in self.read_only and not re.fullmatch(r"/subjects/[^/]+", url.path):
            raise _RegistryRefusal(403, 40301, f"User {user} is denied operation")
        with self._lock:
            self.asked.append(f"{method} {target}")
            for verb, pattern, handle in _ROUTES:
                found = re.fullmatch(pattern, url.path)
                if verb == method and found is not None:
                    return getattr(self, handle)(
                        *(unquote(part) for part in found.groups() if part is not None), asked=asked, body=body
                    )
        raise _RegistryRefusal(404, 404, "HTTP 404 Not Found")

    def _types(self, *, asked: dict[str, str], body: Any) -> Any:
        return ["JSON", "PROTOBUF", "AVRO"]

    def _subjects(self, *, asked: dict[str, str], body: Any) -> Any:
        prefix = asked.get("subjectPrefix", "")
        contexts = prefix == ":*:"
        return [
            subject
            for subject, versions in self._versions.items()
            if any(_counts(each, asked) for each in versions)
            and (contexts or (not parse_subject(subject).context and subject.startswith(prefix)))
        ]

    def _numbers(self, subject: str, *, asked: dict[str, str], body: Any) -> Any:
        found = [each.version for each in self._versions.get(subject, ()) if _counts(each, asked)]
        if not found:
            raise _RegistryRefusal(404, 40401, f"Subject '{subject}' not found.")
        return found

    def _version(self, subject: str, number: str, *, asked: dict[str, str], body: Any) -> Any:
        self._numbers(subject, asked=asked, body=None)
        there = [each for each in self._versions[subject] if _counts(each, asked)]
        wanted = there[-1].version if number in ("latest", "-1") else int(number)
        for each in there:
            if each.version == wanted:
                return {"subject": subject, "version": wanted, "id": each.id, **_as_read(each.schema)}
        raise _RegistryRefusal(404, 40402, f"Version {number} not found.")

    def _schema(self, id: str, *, asked: dict[str, str], body: Any) -> Any:
        context = parse_subject(asked.get("subject", "")).context
        for each in self._all(context):
            if each.id == int(id):
                return _as_read(each.schema)
        raise _RegistryRefusal(404, 40403, f"Schema {id} not found")

    def _lookup(self, subject: str, *, asked: dict[str, str], body: Any) -> Any:
        wanted = _meaning(self._resolved(Schema.from_json({"schemaType": "AVRO"} | body)))
        if subject not in self._versions:
            raise _RegistryRefusal(404, 40401, f"Subject '{subject}' not found.")
        for each in reversed(self._versions[subject]):
            if _meaning(each.schema) == wanted and _counts(each, asked):
                return {"subject": subject, "version": each.version, "id": each.id, **_as_read(each.schema)}
        raise _RegistryRefusal(404, 40403, "Schema not found")

    def _register(self, subject: str, *, asked: dict[str, str], body: Any) -> Any:
        schema = self._resolved(Schema.from_json({"schemaType": "AVRO"} | body))
        mode = self._modes.get(subject, self.mode)
        id, number = (body.get("id"), body.get("version")) if self.heeds_ids else (None, None)
        if mode == _READONLY:
            raise _RegistryRefusal(422, 42205, f"Subject {subject} is in read-only mode")
        if self.heeds_ids and (mode == _IMPORT) != (id is not None):
            raise _RegistryRefusal(
                422, 42205, f"Subject {subject} is {'' if mode == _IMPORT else 'not '}in import mode"
            )
        history = self._versions.setdefault(subject, [])
        meaning, context = _meaning(schema), parse_subject(subject).context
        for each in history:
            if not each.deleted and _meaning(each.schema) == meaning and id in (None, each.id):
                return {"id": each.id}
        alike = next((each.id for each in self._all(context) if _meaning(each.schema) == meaning), None)
        if id is not None:
            other = next((each for each in self._all(context) if each.id == id), None)
            if other is not None and _meaning(other.schema) != meaning:
                raise _RegistryRefusal(422, 42205, f"Overwrite new schema with id {id} is not permitted.")
        else:
            id = alike or self._new_id(context)
        last = history[-1].version if history else 0
        if number is not None and number <= last:
            raise _RegistryRefusal(422, 42205, f"Version {number} of subject {subject} exists")
        history.append(SchemaVersion(subject, number or last + 1, id, schema))
        self._next[context] = max(self._next.get(context, 1), id + 1)
        return {"id": id}

    def _new_id(self, context: str) -> int:
        least = 1 if context else self.next_id
        return max(self._next.get(context, least), least)

    def _delete(self, subject: str, number: str, *, asked: dict[str, str], body: Any) -> Any:
        history = self._versions.get(subject, [])
        for index, each in enumerate(history):
            if each.version == int(number) and not each.deleted:
                history[index] = SchemaVersion(subject, each.version, each.id, each.schema, True)
                return each.version
        raise _RegistryRefusal(404, 40402, f"Version {number} not found.")

    def _config(self, subject: str = "", *, asked: dict[str, str], body: Any) -> Any:
        if body is not None:
            if subject:
                self._levels[subject] = body["compatibility"]
            else:
                self.compatibility = body["compatibility"]
            return {"compatibility": body["compatibility"]}
        if subject and subject not in self._levels and asked.get("defaultToGlobal") != "true":
            raise _RegistryRefusal(
                404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
            )
        return {"compatibilityLevel": self._levels.get(subject, self.compatibility)}

    def _mode(self, subject: str = "", *, asked: dict[str, str], body: Any) -> Any:
        if not self.modes:
            raise _RegistryRefusal(404, 404, "HTTP 404 Not Found")
        if body is not None:
            there = self._versions.get(subject) if subject else [each for _, each in self._everything()]
            if body["mode"] == _IMPORT and there and asked.get("force") != "true":
                raise _RegistryRefusal(422, 42205, "Cannot import since found existing subjects")
            if subject:
                self._modes[subject] = body["mode"]
            else:
                self.mode = body["mode"]
            return {"mode": body["mode"]}
        if subject and subject not in self._modes and asked.get("defaultToGlobal") != "true":
            raise _RegistryRefusal(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")
        return {"mode": self._modes.get(subject, self.mode)}

    def _no_mode(self, subject: str, *, asked: dict[str, str], body: Any) -> Any:
        if not self.modes or subject not in self._modes:
            raise _RegistryRefusal(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")
        return {"mode": self._modes.pop(subject)}

    def _contexts(self, *, asked: dict[str, str], body: Any) -> Any:
        return sorted({"."} | {parse_subject(subject).context.strip(":") for subject in self._versions} - {""})

    def _everything(self) -> Iterator[tuple[str, SchemaVersion]]:
        return ((subject, each) for subject, versions in self._versions.items() for each in versions)

    def _all(self, context: str) -> list[SchemaVersion]:
        return [each for subject, each in self._everything() if parse_subject(subject).context == context]

    def _resolved(self, schema: Schema) -> Schema:
        """Raises _RegistryRefusal where a reference leads nowhere, or the text is none."""
        if schema.type in ("AVRO", "JSON") and schema.text.strip()[:1] in "{[":
            try:
                json.loads(schema.text)
            except ValueError:
                raise _RegistryRefusal(422, 42201, "Invalid schema") from None
        for each in schema.references:
            if not any(there.version == each.version for there in self._versions.get(each.subject, ())):
                raise _RegistryRefusal(422, 42201, f"No schema reference found for subject {each.subject}")
        return schema


def _meaning(schema: Schema) -> tuple[str, str, tuple[SchemaReference, ...]]:
    return schema.type, render_canonical_schema(schema), schema.references


def _as_read(schema: Schema) -> dict[str, Any]:
    return schema.to_json()


def _counts(version: SchemaVersion, asked: dict[str, str]) -> bool:
    return not version.deleted or asked.get("deleted") == "true"


_SUBJECT = r"/subjects/([^/]+)"
_ROUTES = (
    ("GET", "/schemas/types", "_types"),
    ("GET", "/subjects", "_subjects"),
    ("GET", f"{_SUBJECT}/versions", "_numbers"),
    ("GET", rf"{_SUBJECT}/versions/(\d+|latest|-1)", "_version"),
    ("GET", r"/schemas/ids/(\d+)", "_schema"),
    ("POST", _SUBJECT, "_lookup"),
    ("POST", f"{_SUBJECT}/versions", "_register"),
    ("DELETE", rf"{_SUBJECT}/versions/(\d+)", "_delete"),
    ("GET", "/config(?:/([^/]+))?", "_config"),
    ("PUT", "/config(?:/([^/]+))?", "_config"),
    ("GET", "/mode(?:/([^/]+))?", "_mode"),
    ("PUT", "/mode(?:/([^/]+))?", "_mode"),
    ("DELETE", "/mode/([^/]+)", "_no_mode"),
    ("GET", "/contexts", "_contexts"),
)


def _handler(registry: FakeRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 1 << 16  # one write an answer: small ones would wait for the client's delayed acknowledgement

        def _serve(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            scheme, _, encoded = self.headers.get("Authorization", "").partition(" ")
            user, _, password = base64.b64decode(encoded).decode().partition(":") if scheme == "Basic" else ("", "", "")
            try:
                if registry.accounts and registry.accounts.get(user) != password:
                    raise _RegistryRefusal(401, 401, "Unauthorized")
                self._say(200, registry.answer(self.command, self.path, json.loads(text) if text else None, user))
            except _RegistryRefusal as refusal:
                self._say(refusal.status, {"error_code": refusal.code, "message": refusal.message})

        do_GET = do_PUT = do_POST = do_DELETE = _serve

        def _say(self, status: int, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    return Handler
