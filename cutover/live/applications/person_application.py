"""An application that a person stops and starts. The run goes on when the person has confirmed, and a later step sees
at the cluster that it is true: the group is empty, the log ends stand still, the first record is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from watershed.cutover.live.applications.application_adapter import (
    UNKNOWN,
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationState,
    ApplicationVerb,
)

_DECLARE = (
    "declare how it is stopped and started in migration.applications.{name} (docs/applications.md), or run `topology "
    "migrate` in a terminal"
)


@dataclass(frozen=True, slots=True)
class PersonRequest:
    """What a person is asked to do, and then to confirm. words: from the file. timeout_ms: how long they have.
    together: other applications that are asked about next, with the same verb, role and cluster."""

    verb: ApplicationVerb
    name: str
    role: str
    alias: str
    bootstrap: tuple[str, ...]
    words: str
    timeout_ms: int
    together: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        """What to do, in sentences."""
        words = f" {self.words.strip().rstrip('.')}." if self.words.strip() else ""
        if self.verb == "stop":
            return (
                f"Stop the {self.role} {self.name} (at {self.alias}), every instance of it, and wait until it has "
                f"ended.{words}"
            )
        goes_on = " It goes on at positions that stand there: reset nothing." if self.role == "consumer" else ""
        return f"Start the {self.role} {self.name} at {self.alias} ({','.join(self.bootstrap)}).{goes_on}{words}"

    @property
    def question(self) -> str:
        """What is to be confirmed."""
        return "Is it stopped?" if self.verb == "stop" else "Is it running there?"


@dataclass(frozen=True, slots=True)
class PersonAnswer:
    """word: `done`, `refused` (it cannot be done), or `late` (nobody answered in time). by: who."""

    word: Literal["done", "refused", "late"]
    by: str


AskPerson = Callable[[PersonRequest], PersonAnswer]


@dataclass(frozen=True, slots=True)
class PersonApplication:
    """ask None: nobody can be asked here. find_confirmation: who confirmed this order before, by the journal; None
    where nobody did."""

    name: str
    words: str
    timeout_ms: int
    ask: AskPerson | None
    find_confirmation: Callable[[ApplicationOrder], str | None] = lambda _order: None

    def read(self) -> ApplicationState:
        """Unknown: only the clusters tell."""
        return ApplicationState(UNKNOWN, None, "nobody" if self.ask is None else "person")

    def tell(self, order: ApplicationOrder) -> ApplicationState:
        """Asks, unless it is confirmed in the journal. The state stays unknown: the cluster has to show it."""
        earlier = self.find_confirmation(order)
        if earlier is not None:
            return ApplicationState(UNKNOWN, None, "person", earlier)
        if self.ask is None:
            raise ApplicationControlFailed(
                f"application {self.name} is moved by a person and nobody can be asked; "
                + _DECLARE.format(name=self.name),
                transient=False,
            )
        request = PersonRequest(
            order.verb,
            self.name,
            order.role,
            order.alias,
            order.bootstrap,
            self.words,
            self.timeout_ms,
            order.together,
        )
        answer = self.ask(request)
        if answer.word == "done":
            return ApplicationState(UNKNOWN, None, "person", f"confirmed by {answer.by}")
        if answer.word == "late":
            raise ApplicationControlFailed(
                f"nobody confirmed in {self.timeout_ms / 60_000:g} min: {request.task} Whoever does it now acts "
                "against this run",
                transient=False,
            )
        raise ApplicationControlFailed(f"not confirmed ({answer.by}): {request.task}", transient=False)

    def follow(self, order: ApplicationOrder) -> ApplicationState:
        """As `tell`: an order to a person is never under way."""
        return self.tell(order)
