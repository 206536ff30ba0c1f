"""Telling applications to stop and to start: their own control endpoint, or a person where none is declared.

Endpoint: `GET /` → {"state", "cluster", …}, `POST /stop`, `POST /start` with {"cluster", "bootstrap"}; both posts
are idempotent and return when it is done. Only addresses from the topology file are called; redirects are refused.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from cutover.errors import CutoverError

_MOST_BYTES = 64 * 1024
LOOK_S = 10.0  # what an application says of itself, it says at once
_DECLARE = "declare its control address in migration.applications.{name}.http, or run `topology migrate` in a terminal"

Confirm = Callable[[str], bool]


class ApplicationFailed(CutoverError):
    """An application's endpoint did not answer, or said no. transient: worth asking again."""

    exit_code = 1

    def __init__(self, message: str, *, transient: bool) -> None:
        self.transient = transient
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """state: `running` | `stopped` | `unknown`. by: `endpoint`, `person`, or `nobody` who could be asked."""

    state: str
    cluster: str | None
    by: str


class Switches(Protocol):
    """What stops and starts applications: `Applications`, or a rehearsal's own (`cutover.drill`). Raises
    ApplicationFailed."""

    def look(self, name: str) -> ApplicationState: ...

    def stop(self, name: str, role: str, alias: str) -> ApplicationState: ...

    def start(self, name: str, role: str, alias: str, bootstrap: Sequence[str]) -> ApplicationState: ...


@dataclass(frozen=True, slots=True)
class Applications:
    """endpoints: application (or group) → URL, None or absent: `confirm` asks a person. timeout in seconds.

    confirm None: nobody can be asked, so applications without an endpoint cannot be moved.
    """

    endpoints: Mapping[str, str | None]
    confirm: Confirm | None
    timeout: float = 60.0

    def look(self, name: str) -> ApplicationState:
        url = self.endpoints.get(name)
        if url:
            return _state(name, self._call(name, url, "GET", timeout=min(self.timeout, LOOK_S)))
        return ApplicationState("unknown", None, "nobody" if self.confirm is None else "person")

    def stop(self, name: str, role: str, alias: str) -> ApplicationState:
        url = self.endpoints.get(name)
        if url:
            return _state(name, self._call(name, f"{url.rstrip('/')}/stop", "POST", {}))
        self._ask(name, f"Stop the {role} {name} (at {alias}) and wait until it has ended. Is it stopped?")
        return ApplicationState("unknown", None, "person")

    def start(self, name: str, role: str, alias: str, bootstrap: Sequence[str]) -> ApplicationState:
        url = self.endpoints.get(name)
        if url:
            body = {"cluster": alias, "bootstrap": ",".join(bootstrap)}
            return _state(name, self._call(name, f"{url.rstrip('/')}/start", "POST", body))
        self._ask(name, f"Start the {role} {name} at {alias} ({','.join(bootstrap)}). Is it running there?")
        return ApplicationState("unknown", None, "person")

    def _ask(self, name: str, question: str) -> None:
        if self.confirm is None:
            raise ApplicationFailed(
                f"application {name} has no control endpoint and nobody can be asked; {_DECLARE.format(name=name)}",
                transient=False,
            )
        if not self.confirm(question):
            raise ApplicationFailed(f"not confirmed: {question}", transient=False)

    def _call(
        self, name: str, url: str, method: str, body: dict[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        try:
            if urlsplit(url).scheme not in ("http", "https"):
                raise ApplicationFailed(
                    f"application {name}: {url} is not an http address; correct migration.applications.{name}.http",
                    transient=False,
                )
            request = urllib.request.Request(url, data=data, method=method, headers=headers)  # noqa: S310 -- checked
            with _OPENER.open(request, timeout=self.timeout if timeout is None else timeout) as answer:
                content = answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(500).decode(errors="replace").strip()
            message = f"application {name}: {method} {url} answered {error.code}" + (f": {said}" if said else "")
            raise ApplicationFailed(message, transient=error.code >= 500) from None
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "reason", None) or error
            raise ApplicationFailed(
                f"application {name} does not answer at {url} ({reason}); check that it runs and that "
                f"migration.applications.{name}.http is its control address",
                transient=True,
            ) from None
        except (http.client.HTTPException, ValueError) as error:  # a malformed address, or no HTTP spoken there
            raise ApplicationFailed(
                f"application {name} cannot be called at {url} ({str(error) or type(error).__name__}); correct "
                f"migration.applications.{name}.http, its control address",
                transient=False,
            ) from None
        try:
            value = json.loads(content)
            if not isinstance(value, dict):
                raise ValueError
        except ValueError:
            raise ApplicationFailed(f"application {name}: {url} answered no JSON object", transient=False) from None
        return value


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


# No proxy: control addresses are loopback or private hosts that the file names.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)


def _state(name: str, value: Mapping[str, Any]) -> ApplicationState:
    state = value.get("state")
    if state not in ("running", "stopped"):
        raise ApplicationFailed(f"application {name} is {state!r}, expected running or stopped", transient=True)
    cluster = value.get("cluster")
    return ApplicationState(str(state), None if cluster is None else str(cluster), "endpoint")
