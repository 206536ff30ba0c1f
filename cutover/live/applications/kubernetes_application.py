"""An application that is one or several workloads of Kubernetes.

To stop it, they are scaled to 0, and it is stopped when none of their pods is left. To start it elsewhere, the
environment variable or the ConfigMap gets the bootstrap servers of that cluster, and then they are scaled to the
replicas that they had when the run began, which the journal knows. Nothing is done twice: what stands there already is
not patched.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from watershed.cutover.live.applications.application_adapter import (
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationState,
)
from watershed.cutover.live.applications.kubernetes_connection import build_kubernetes_client, require_namespace
from watershed.topology.application_controls import KubernetesControl

_T = TypeVar("_T")
_REQUEST_S = (5.0, 15.0)  # to connect, to answer
_MOST_PODS = 5  # that are named
_OVER = ("Succeeded", "Failed")  # phases of pods whose containers have ended, or whose node is given up (PodGC)


_METHODS = {"deployment": "deployment", "statefulset": "stateful_set"}  # how the official client calls them


@dataclass(frozen=True, slots=True)
class _Clients:
    """`AppsV1Api` and `CoreV1Api` of the official client, with the same credentials."""

    apps: Any
    core: Any


@dataclass(frozen=True, slots=True)
class WorkloadStatus:
    """replicas: wanted. pods: those that are not over, by name, with what keeps each from being gone or ready.
    is_ready: as many as wanted run the newest template, and none of an older one. texts: the bootstrap servers in its
    containers: (`containers` or `initContainers`, name) → value. is_empty: its controller has seen that none are
    wanted, and counts none. held_back: why a new template would not reach all pods; "" where it would."""

    workload: str
    replicas: int
    pods: Mapping[str, str]
    is_ready: bool
    texts: Mapping[tuple[str, str], str]
    is_empty: bool = True
    held_back: str = ""


@dataclass(frozen=True)
class KubernetesApplication:
    """bootstraps: cluster alias → its bootstrap servers. environ: what this host allows, and secrets."""

    name: str
    control: KubernetesControl
    bootstraps: Mapping[str, Sequence[str]]
    environ: Mapping[str, str]
    wall: Callable[[], float] = field(default=time.time)

    def read(self) -> ApplicationState:
        """What the API server says: replicas, pods, and the cluster whose bootstrap servers stand there. Raises
        ApplicationControlFailed where an order to start could not be carried out."""
        found = self._read_workloads()
        if self._read_bootstrap(found) is None:
            raise ApplicationControlFailed(
                f"application {self.name}: its containers have different values of {self.control.env}, so nobody knows "
                "where it runs; give them the same, or name one `container`",
                transient=False,
            )
        held = [f"{each.workload}: {each.held_back}" for each in found if each.held_back]
        if held and self.control.config_map is None:
            raise ApplicationControlFailed(
                f"application {self.name}: {'; '.join(held)}. Pods of the old template would start with the old "
                f"{self.control.env}",
                transient=False,
            )
        return self._describe(found)

    def _read_workloads(self) -> list[WorkloadStatus]:
        require_namespace(self.name, self.control, self.environ)
        return [self._read_workload(workload) for workload in self.control.workloads]

    def _describe(self, found: Sequence[WorkloadStatus]) -> ApplicationState:
        """At no cluster while containers differ: a start that ended between two patches left them so, and an order to
        stop or to start repairs it."""
        text = self._read_bootstrap(found)
        former = {"replicas": {each.workload: each.replicas for each in found}, "bootstrap": text}
        state, told = describe_workloads(found)
        return ApplicationState(state, self._find_cluster(text), "kubernetes", told, former)

    def tell(self, order: ApplicationOrder) -> ApplicationState:
        """Scales to 0; or writes the bootstrap servers, and scales to what it had."""
        found = self._read_workloads()
        if order.verb == "stop":
            wanted = dict.fromkeys(self.control.workloads, 0)
        else:
            self._point_to(order, found)
            wanted = self._find_replicas(order, found)
        for each in found:
            if each.replicas != wanted[each.workload]:
                self._scale(each.workload, wanted[each.workload])
        return self._describe(self._read_workloads())

    def follow(self, order: ApplicationOrder) -> ApplicationState:
        """How far it is."""
        return self._describe(self._read_workloads())

    # -- starting -----------------------------------------------------------------------------------------------

    def _find_replicas(self, order: ApplicationOrder, found: Sequence[WorkloadStatus]) -> dict[str, int]:
        """As when the run began; where everything was at 0 then, 1 each. Where the run could not read them, as they are
        now. Raises ApplicationControlFailed where that is 0."""
        known: Mapping[str, int] | None = order.former.get("replicas")
        if known is None:
            now = {each.workload: each.replicas for each in found}
            if any(now.values()):
                return now
            raise ApplicationControlFailed(
                f"application {self.name} has 0 replicas, and this run could not read how many it had before: scale "
                f"{', '.join(self.control.workloads)} in namespace {self.control.namespace} to what is right, then run "
                "again with --resume",
                transient=False,
            )
        had = {workload: int(known.get(workload, 0)) for workload in self.control.workloads}
        return had if any(had.values()) else dict.fromkeys(had, 1)

    def _point_to(self, order: ApplicationOrder, found: Sequence[WorkloadStatus]) -> None:
        """Writes the bootstrap servers of the order's cluster. Raises ApplicationControlFailed while it runs at another
        one."""
        there, wanted = self._read_bootstrap(found), self._find_text(order)
        if there == wanted:
            return
        if any(each.replicas or each.pods for each in found):
            raise ApplicationControlFailed(
                f"application {self.name} runs at {self._find_cluster(there) or 'another cluster'}; it has to be "
                "stopped before it can start elsewhere",
                transient=False,
            )
        if self.control.config_map is not None:
            self._call(
                f"ConfigMap {self.control.config_map}",
                lambda clients: clients.core.patch_namespaced_config_map(
                    self.control.config_map,
                    self.control.namespace,
                    {"data": {str(self.control.key): wanted}},
                    _request_timeout=_REQUEST_S,
                ),
            )
            return
        for each in found:
            template: dict[str, list[Any]] = {}
            for where, container in each.texts:
                variable = {"name": self.control.env, "value": wanted, "valueFrom": None}
                template.setdefault(where, []).append({"name": container, "env": [variable]})
            self._patch(each.workload, {"spec": {"template": {"spec": template}}})

    def _find_text(self, order: ApplicationOrder) -> str:
        """What is written for the order's cluster: back where the run found it, exactly what stood there."""
        former = order.former.get("bootstrap")
        if order.side == "source" and former is not None:
            return str(former)
        return self.control.values.get(order.alias) or ",".join(order.bootstrap)

    # -- reading ------------------------------------------------------------------------------------------------

    def _read_workload(self, workload: str) -> WorkloadStatus:
        kind, _, name = workload.partition("/")
        space = self.control.namespace
        method = f"read_namespaced_{_METHODS[kind]}"
        found = self._call(
            workload, lambda clients: getattr(clients.apps, method)(name, space, _request_timeout=_REQUEST_S)
        )
        selector = build_label_selector(found.spec.selector)
        pods = self._call(
            f"the pods of {workload}",
            lambda clients: clients.core.list_namespaced_pod(
                space, label_selector=selector, _request_timeout=_REQUEST_S
            ),
        )
        replicas = 1 if found.spec.replicas is None else int(found.spec.replicas)
        status = found.status
        current = int(status.observed_generation or 0) >= int(found.metadata.generation or 0)
        counts = [int(each or 0) for each in (status.replicas, status.updated_replicas, status.ready_replicas)]
        ready = current and counts == [replicas] * 3
        alive = {pod.metadata.name: self._describe_pod(pod) for pod in pods.items if pod.status.phase not in _OVER}
        texts = self._read_variables(found.spec.template.spec)
        empty = current and counts[0] == 0
        return WorkloadStatus(workload, replicas, alive, ready, texts, empty, describe_held_back(found.spec))

    def _read_variables(self, spec: Any) -> dict[tuple[str, str], str]:
        """(`containers` or `initContainers`, name) → the text of the variable; empty with a ConfigMap."""
        found = {}
        for where, containers in (("containers", spec.containers), ("initContainers", spec.init_containers or ())):
            for container in containers if self.control.env is not None else ():
                said = [each for each in container.env or () if each.name == self.control.env]
                if said and self.control.container in (None, container.name):
                    found[(where, container.name)] = self._require_value(container.name, said[-1])
        return found

    def _require_value(self, container: str, variable: Any) -> str:
        """Raises ApplicationControlFailed for one that is taken from elsewhere: it could not be put back."""
        if variable.value_from is not None:
            raise ApplicationControlFailed(
                f"application {self.name}: container {container} takes {self.control.env} from elsewhere "
                "(`valueFrom`); name the ConfigMap and its key in `bootstrap`",
                transient=False,
            )
        return str(variable.value or "")

    def _read_bootstrap(self, found: Sequence[WorkloadStatus]) -> str | None:
        """The bootstrap servers that stand there; None where containers differ. Raises ApplicationControlFailed where
        nothing would be read by the application."""
        if self.control.config_map is None:
            lacking = [each.workload for each in found if not each.texts]
            if lacking:
                whose = f"container {self.control.container}" if self.control.container else "any container"
                raise ApplicationControlFailed(
                    f"application {self.name}: {', '.join(lacking)} has no variable {self.control.env} in {whose}; "
                    f"correct migration.applications.{self.name}.kubernetes.bootstrap",
                    transient=False,
                )
            texts = {text for each in found for text in each.texts.values()}
            return texts.pop() if len(texts) == 1 else None
        what = f"ConfigMap {self.control.config_map}"
        name, space = self.control.config_map, self.control.namespace
        held = self._call(
            what, lambda clients: clients.core.read_namespaced_config_map(name, space, _request_timeout=_REQUEST_S)
        )
        data: Mapping[str, str] = held.data or {}
        if self.control.key not in data:
            raise ApplicationControlFailed(
                f"application {self.name}: {what} has no key {self.control.key}; correct "
                f"migration.applications.{self.name}.kubernetes.bootstrap",
                transient=False,
            )
        return data[str(self.control.key)]

    def _find_cluster(self, text: str | None) -> str | None:
        """The cluster whose bootstrap servers these are; None for others."""
        said = {each.strip() for each in (text or "").split(",")}
        for alias, servers in self.bootstraps.items():
            if text is not None and (text == self.control.values.get(alias) or said & set(servers)):
                return alias
        return None

    def _describe_pod(self, pod: Any) -> str:
        """What keeps the pod from being gone, or from being ready; "" for one that is ready."""
        deleted = pod.metadata.deletion_timestamp
        if deleted is not None:
            late = int(self.wall() - deleted.timestamp())  # Kubernetes writes down the end of the grace period
            return "is terminating" + (f", {late} s beyond its grace period" if late > 0 else "")
        for each in pod.status.container_statuses or ():
            waiting = each.state.waiting if each.state is not None else None
            if waiting is not None and waiting.reason:
                return f"{each.name} {waiting.reason}"
        conditions = {each.type: each for each in pod.status.conditions or ()}
        ready = conditions.get("Ready")
        if ready is not None and ready.status == "True":
            return ""
        reason = getattr(conditions.get("PodScheduled"), "reason", None) or getattr(ready, "reason", None)
        return str(reason or pod.status.phase or "not ready")

    # -- asking -------------------------------------------------------------------------------------------------

    def _scale(self, workload: str, replicas: int) -> None:
        self._patch(workload, {"spec": {"replicas": replicas}}, "_scale")

    def _patch(self, workload: str, body: dict[str, Any], part: str = "") -> None:
        kind, _, name = workload.partition("/")
        method, space = f"patch_namespaced_{_METHODS[kind]}{part}", self.control.namespace
        self._call(
            workload, lambda clients: getattr(clients.apps, method)(name, space, body, _request_timeout=_REQUEST_S)
        )

    def _call(self, what: str, ask: Callable[[_Clients], _T]) -> _T:
        """Raises ApplicationControlFailed, transient where asking again may help. Credentials that are not taken are
        read anew once: a run may be longer than a token lives, and it is renewed where the last one stood."""
        import urllib3
        from kubernetes.client.exceptions import ApiException

        about = f"application {self.name}: {what} in namespace {self.control.namespace}"
        try:
            try:
                return ask(self._clients)
            except ApiException as error:
                if error.status != 401:
                    raise
                self._read_credentials_anew()
                return ask(self._clients)
        except ApiException as error:
            status = int(error.status or 0)
            if status == 0:  # how the official client says that TLS failed
                raise self._explain_tls(about, str(error.reason)) from None
            why = {
                401: "the API server does not accept our credentials",
                403: f"our account may not do that ({_read_message(error)}); docs/applications.md has the role",
                404: "is not there",
            }.get(status, f"the API server answered {status}: {_read_message(error)}")
            raise ApplicationControlFailed(f"{about}: {why}", transient=status in (409, 429) or status >= 500) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApplicationControlFailed(
                f"{about}: the API server does not answer ({type(error).__name__})", transient=True
            ) from None

    def _explain_tls(self, about: str, reason: str) -> ApplicationControlFailed:
        """A certificate that is not taken stays so; a connection that broke in its handshake is worth another try."""
        words = " ".join(reason.partition("\n")[2].partition("] ")[2].partition(" (_ssl.c")[0].split())[:200]
        told = f"{about}: no TLS with the API server ({words or 'no reason given'})"
        where = f"migration.applications.{self.name}.kubernetes.credentials"
        if "certificate" not in words:
            return ApplicationControlFailed(told, transient=True)
        return ApplicationControlFailed(
            f"{told}; correct the authority, the server's name or our certificate in {where}", transient=False
        )

    def _read_credentials_anew(self) -> None:
        """Raises ApplicationControlFailed, transient whatever the reason: they could be used before, perhaps somebody
        writes them just now. Those of before stay until then, and whoever asks with them comes here again."""
        try:
            self.__dict__["_clients"] = self._build_clients()
        except ApplicationControlFailed as failed:
            raise ApplicationControlFailed(str(failed), transient=True) from None

    @cached_property
    def _clients(self) -> _Clients:
        return self._build_clients()

    def _build_clients(self) -> _Clients:
        from kubernetes.client import AppsV1Api, CoreV1Api

        found = build_kubernetes_client(self.name, self.control, self.environ)
        return _Clients(AppsV1Api(found), CoreV1Api(found))


def describe_workloads(found: Sequence[WorkloadStatus]) -> tuple[str, str]:
    """(state of the application, what is missing). A workload that is to have no pods is no part of a running
    application: some have workers that are switched off."""
    wanted = [each for each in found if each.replicas]
    if not wanted:
        left = [f"{pod} {why}".rstrip() for each in found for pod, why in each.pods.items()]
        if left:
            return STOPPING, f"{len(left)} pods are left: {_name_some(left)}"
        counted = [each.workload for each in found if not each.is_empty]
        return (STOPPING, f"its controller has not seen the end of {', '.join(counted)}") if counted else (STOPPED, "")
    late = [each for each in wanted if not each.is_ready]
    if not late:
        return RUNNING, ""
    why = [f"{pod} {text}" for each in late for pod, text in each.pods.items() if text]
    named = ", ".join(f"{each.workload} ({each.replicas} wanted)" for each in late)
    return STARTING, f"not ready: {named}" + (f"; {_name_some(why)}" if why else "")


def describe_held_back(spec: Any) -> str:
    """Why a new template would not reach all pods of a Deployment or StatefulSet, and what to do; "" where it would
    (kubernetes.io: "Pausing and Resuming a rollout of a Deployment", "Partitioned rolling updates")."""
    if getattr(spec, "paused", None):
        return "its rollout is paused (`spec.paused`); resume it"
    rolling = getattr(getattr(spec, "update_strategy", None), "rolling_update", None)
    partition = int(getattr(rolling, "partition", None) or 0)
    return f"`partition` of its rolling update is {partition}; make it 0" if partition else ""


def build_label_selector(selector: Any) -> str:
    """A workload's selector as the API's query takes it."""
    parts = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    for each in selector.match_expressions or ():
        operator = each.operator
        if operator in ("In", "NotIn"):
            parts.append(f"{each.key} {operator.lower()} ({','.join(each.values)})")
        else:
            parts.append(each.key if operator == "Exists" else f"!{each.key}")
    return ",".join(parts)


def _name_some(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_PODS
    return ", ".join(texts[:_MOST_PODS]) + (f" and {more} more" if more > 0 else "")


def _read_message(error: Any) -> str:
    """The message of a Status object, cut short; the status line where the answer is none."""
    try:
        text = str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        text = str(error.reason or "no reason given")
    return " ".join(text.split())[:200]
