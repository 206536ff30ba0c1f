"""What every way of stopping and starting an application has in common.

An order is given once or several times: the second time it finds its work done. An adapter returns at once, or as soon
as it knows; what takes minutes is followed (`ApplicationAdapter.follow`), so that a run can leave its worker meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from watershed.cutover.actions import ClusterSide
from watershed.cutover.errors import CutoverError

ApplicationVerb = Literal["stop", "start"]
RUNNING, STOPPED, UNKNOWN = "running", "stopped", "unknown"
STARTING, STOPPING = "starting", "stopping"
APPLICATION_STATES = (RUNNING, STOPPED, STARTING, STOPPING)


class ApplicationControlFailed(CutoverError):
    """An application could not be asked or told, or said no. transient: worth asking again."""

    exit_code = 1

    def __init__(self, message: str, *, transient: bool) -> None:
        self.transient = transient
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """state: `running`, `stopped`, `starting`, `stopping`, or `unknown` where only the cluster can tell.

    cluster: alias, None where nobody says. by: the way that was taken (`endpoint`, `person`, `command`, `airflow`,
    `kubernetes`), or `nobody` who could be asked. text: for people, what is missing or who answered. former: what an
    order to start needs to know of the time before (replicas of workloads), JSON."""

    state: str
    cluster: str | None
    by: str
    text: str = ""
    former: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApplicationOrder:
    """Stop or start this application at this cluster. side: of the run, `source` is where it found the application.
    bootstrap: `host:port` each. key: the same however often the order is given for one purpose in one run. former:
    `ApplicationState.former` when the run began. opposites: (alias, key) of the orders with the other verb that this
    run may have given: a stop that is still under way would end behind a start. together: other applications that
    persons move, and that are told the same next: one question may be about all."""

    verb: ApplicationVerb
    name: str
    role: str
    side: ClusterSide
    alias: str
    bootstrap: tuple[str, ...]
    key: str
    former: dict[str, Any] = field(default_factory=dict)
    opposites: tuple[tuple[str, str], ...] = ()
    together: tuple[str, ...] = ()

    def to_json(self) -> dict[str, str]:
        """What programs and DAGs are told; its keys are promised to their authors (docs/applications.md)."""
        return {
            "verb": self.verb,
            "application": self.name,
            "role": self.role,
            "cluster": self.alias,
            "bootstrap": ",".join(self.bootstrap),
            "key": self.key,
        }


class ApplicationAdapter(Protocol):
    """One application, and the way to it. Every method raises ApplicationControlFailed."""

    def read(self) -> ApplicationState:
        """Its state now. Raises also where no order could be given, so that preflight finds out."""

    def tell(self, order: ApplicationOrder) -> ApplicationState:
        """Gives the order. `stopping` and `starting` mean that it is under way."""

    def follow(self, order: ApplicationOrder) -> ApplicationState:
        """How far an order is that was under way."""
