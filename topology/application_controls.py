"""How an application is stopped, started and pointed to another cluster, as the plan holds it.

Exactly one way is declared for each application: `http`, `person`, `command`, `airflow` or `kubernetes`. None of them
declared means a person. docs/applications.md tells operators what each of them does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from watershed.topology.secret_ref import SecretRef

ControlKind = Literal["http", "person", "command", "airflow", "kubernetes"]
CONTROL_KINDS: tuple[ControlKind, ...] = ("http", "person", "command", "airflow", "kubernetes")
# How long one order to an application may take, unless the file says otherwise.
DEFAULT_CONTROL_TIMEOUTS_MS: Mapping[ControlKind, int] = {
    "http": 60_000,
    "person": 30 * 60_000,
    "command": 60_000,
    "airflow": 10 * 60_000,
    "kubernetes": 5 * 60_000,
}


@dataclass(frozen=True, slots=True)
class HttpAuthentication:
    """How requests to an application's switch prove who asks. Exactly one of: bearer (a token), hmac (the key of a
    signature over timestamp and body), or certificate with key (mutual TLS). ca: certificates that the switch is
    trusted by; None means the system's."""

    bearer: SecretRef | None = None
    hmac: SecretRef | None = None
    certificate: SecretRef | None = None
    key: SecretRef | None = None
    ca: SecretRef | None = None

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> HttpAuthentication:
        """Reads the JSON form of the plan."""
        return cls(**{name: SecretRef.from_json(each) for name, each in value.items()})


@dataclass(frozen=True, slots=True)
class AirflowControl:
    """`dag_id` or `dag_id/task_id` of the runs that stop and that start the application."""

    stop: str
    start: str


@dataclass(frozen=True, slots=True)
class KubernetesControl:
    """workloads: `deployment/NAME` or `statefulset/NAME`, all in one namespace, scaled together.

    The bootstrap servers stand in the environment variable `env` (of `container`; None: of each container that has it),
    or under `key` of the ConfigMap `config_map`. values: cluster alias → what is written there, where it is not the
    cluster's own bootstrap list. credentials: a kubeconfig, or Airflow's Kubernetes connection; None: the account of
    the pod that runs the migration. context: of the kubeconfig."""

    namespace: str
    workloads: tuple[str, ...]
    env: str | None = None
    container: str | None = None
    config_map: str | None = None
    key: str | None = None
    values: dict[str, str] = field(default_factory=dict)
    credentials: SecretRef | None = None
    context: str | None = None

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> KubernetesControl:
        """Reads the JSON form of the plan."""
        read = {"workloads": tuple(value["workloads"]), "credentials": SecretRef.from_json(value["credentials"])}
        return cls(**value | read)


@dataclass(frozen=True, slots=True)
class PlanApplication:
    """http: address of the application's own switch. person: words for whoever stops and starts it. command: a program
    that the settings of the host allow. timeout_ms: of one order; None means the default of its kind. principal
    (`User:name`) and client_id: who it is for brokers."""

    http: str | None = None
    principal: str | None = None
    client_id: str | None = None
    authentication: HttpAuthentication | None = None
    person: str | None = None
    command: str | None = None
    airflow: AirflowControl | None = None
    kubernetes: KubernetesControl | None = None
    timeout_ms: int | None = None

    @property
    def kind(self) -> ControlKind:
        """The way in which it is stopped and started. `person` where none is declared."""
        return next((kind for kind in CONTROL_KINDS if getattr(self, kind) is not None), "person")

    @property
    def bound_ms(self) -> int:
        """How long one order may take, in milliseconds."""
        return DEFAULT_CONTROL_TIMEOUTS_MS[self.kind] if self.timeout_ms is None else self.timeout_ms

    def to_json(self) -> dict[str, Any]:
        """The JSON form of the plan. What is not declared is left out, so that files from before there were other ways
        than `http` keep the hash that their unfinished runs know."""
        always = ("http", "principal", "client_id")
        return {name: value for name, value in asdict(self).items() if value is not None or name in always}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PlanApplication:
        """Reads the JSON form of the plan."""
        readers: dict[str, Any] = {
            "authentication": HttpAuthentication.from_json,
            "airflow": lambda each: AirflowControl(**each),
            "kubernetes": KubernetesControl.from_json,
        }
        return cls(**{name: readers[name](each) if name in readers else each for name, each in value.items()})


UNDECLARED_APPLICATION = PlanApplication()
