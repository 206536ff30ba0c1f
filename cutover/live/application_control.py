"""Telling applications to stop and to start: their own control endpoint, or a person where none is declared.

Endpoint: `GET /` → {"state", "cluster", …}, `POST /stop`, `POST /start` with {"cluster", "bootstrap"}; both posts
are idempotent and return when it is done; a refusal says why in {"error"}. Only addresses from the topology file are
called, and of those only hosts that the environment allows; redirects are not followed, and an answer is waited for as
long as `timeout` in all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from cutover.errors import CutoverError
from cutover.live.allowed_hosts import find_host_refusal
from cutover.live.bounded_http import NoHttpAnswer, call_http

_MOST_WORDS = 300  # characters of an application's own words
_A_STATE = 20  # characters of a word for a state, such as `starting`
_LOOK_S = 10.0  # what an application says of itself, it says at once
_DECLARE = "declare its control address in migration.applications.{name}.http, or run `topology migrate` in a terminal"

ConfirmByPerson = Callable[[str], bool]


class ApplicationControlFailed(CutoverError):
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


class ApplicationControl(Protocol):
    """What stops and starts applications: `ApplicationEndpoints`, or a rehearsal's own (`cutover.drill`). Raises
    ApplicationFailed."""

    def look(self, name: str) -> ApplicationState:
        """State of the application. Raises ApplicationControlFailed."""

    def stop(self, name: str, role: str, alias: str) -> ApplicationState:
        """Stops it at this cluster and returns when it has ended. Raises ApplicationControlFailed."""

    def start(self, name: str, role: str, alias: str, bootstrap: Sequence[str]) -> ApplicationState:
        """Starts it at this cluster. Raises ApplicationControlFailed."""


@dataclass(frozen=True, slots=True)
class ApplicationEndpoints:
    """endpoints: application (or group) → URL, None or absent: `confirm` asks a person. timeout in seconds.

    confirm None: nobody can be asked, so applications without an endpoint cannot be moved. environ: says which hosts
    may be called (`cutover.live.allowed_hosts`).
    """

    endpoints: Mapping[str, str | None]
    confirm: ConfirmByPerson | None
    timeout: float = 60.0
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def look(self, name: str) -> ApplicationState:
        """State by its endpoint; `unknown` where only a person can tell."""
        url = self.endpoints.get(name)
        if url:
            return _state(name, self._call(name, url, "GET", timeout=min(self.timeout, _LOOK_S)))
        return ApplicationState("unknown", None, "nobody" if self.confirm is None else "person")

    def stop(self, name: str, role: str, alias: str) -> ApplicationState:
        """`POST /stop`, or the question to a person."""
        url = self.endpoints.get(name)
        if url:
            return _state(name, self._call(name, f"{url.rstrip('/')}/stop", "POST", {}))
        self._ask(name, f"Stop the {role} {name} (at {alias}) and wait until it has ended. Is it stopped?")
        return ApplicationState("unknown", None, "person")

    def start(self, name: str, role: str, alias: str, bootstrap: Sequence[str]) -> ApplicationState:
        """`POST /start` with alias and bootstrap, or the question to a person."""
        url = self.endpoints.get(name)
        if url:
            body = {"cluster": alias, "bootstrap": ",".join(bootstrap)}
            return _state(name, self._call(name, f"{url.rstrip('/')}/start", "POST", body))
        self._ask(name, f"Start the {role} {name} at {alias} ({','.join(bootstrap)}). Is it running there?")
        return ApplicationState("unknown", None, "person")

    def _ask(self, name: str, question: str) -> None:
        if self.confirm is None:
            raise ApplicationControlFailed(
                f"application {name} has no control endpoint and nobody can be asked; {_DECLARE.format(name=name)}",
                transient=False,
            )
        if not self.confirm(question):
            raise ApplicationControlFailed(f"not confirmed: {question}", transient=False)

    def _call(
        self, name: str, url: str, method: str, body: dict[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        at = f"migration.applications.{name}.http"
        data = None if body is None else json.dumps(body).encode()
        try:
            if urlsplit(url).scheme not in ("http", "https"):
                raise ApplicationControlFailed(
                    f"application {name}: {url} is not an http address; correct {at}", transient=False
                )
            refused = find_host_refusal(url, self.environ)
            if refused is not None:
                raise ApplicationControlFailed(f"application {name}: {refused} ({at})", transient=False)
            seconds = self.timeout if timeout is None else timeout
            answer = call_http(method, url, data, {"content-type": "application/json"}, seconds)
        except NoHttpAnswer as silence:
            if silence.transient and not silence.garbled:
                raise ApplicationControlFailed(
                    f"application {name} does not answer at {url} ({silence}); check that it runs and that {at} is its "
                    "control address",
                    transient=True,
                ) from None
            raise _uncallable(name, url, silence) from None
        except ValueError as error:  # a malformed address
            raise _uncallable(name, url, error) from None
        value = _object(answer.body)
        if not 200 <= answer.status < 300:
            # Only what it says as an application: any other page behind this address is nobody's business here.
            detail = str(value.get("error", "")).strip()[:_MOST_WORDS] if value else ""
            message = f"application {name}: {method} {url} answered {answer.status}" + (f": {detail}" if detail else "")
            raise ApplicationControlFailed(message, transient=answer.status >= 500)
        if value is None:
            raise ApplicationControlFailed(f"application {name}: {url} answered no JSON object", transient=False)
        return value


def _uncallable(name: str, url: str, error: Exception) -> ApplicationControlFailed:
    return ApplicationControlFailed(
        f"application {name} cannot be called at {url} ({str(error) or type(error).__name__}); correct "
        f"migration.applications.{name}.http, its control address",
        transient=False,
    )


def _object(content: bytes) -> dict[str, Any] | None:
    """The JSON object that an answer is; None for anything else."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _state(name: str, value: Mapping[str, Any]) -> ApplicationState:
    state = value.get("state")
    if state not in ("running", "stopped"):
        raise ApplicationControlFailed(
            f"application {name} is {_describe_state(state)}, expected running or stopped", transient=True
        )
    cluster = value.get("cluster")
    return ApplicationState(str(state), None if cluster is None else str(cluster), "endpoint")


def _describe_state(state: object) -> str:
    """A state as an application would name one; anything else behind this address is not repeated."""
    return repr(state) if isinstance(state, str) and state.isalpha() and len(state) <= _A_STATE else "in no known state"
