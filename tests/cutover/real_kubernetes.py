"""A namespace of the lab's real API server, with a node that is played: a thread binds pods, makes them ready and ends
them, as the scheduler and a kubelet would. Deployments and StatefulSets are followed by Kubernetes' own controllers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from tests.cutover.kubernetes_api import build_workload
from watershed.lab.kubernetes_server import (
    ISSUER,
    KubernetesServer,
    end_kubernetes,
    is_kubernetes_built,
    start_kubernetes,
)

NOT_BUILT = "not built here: python -m watershed.lab.kubernetes_server build (needs go; 16 minutes on two busy cores)"
_LOOK_S = 0.1
_NODE = "node-1"


def build_client(kubeconfig: str) -> client.ApiClient:
    configuration = client.Configuration()
    config.load_kube_config_from_dict(yaml.safe_load(kubeconfig), client_configuration=configuration)
    return client.ApiClient(configuration)


@dataclass
class RealCluster:
    """One namespace. stuck: names of pods that do not end; unready: apps whose pods do not get ready; slow_s: from a
    pod's deletion to its end. on_start, on_end: called with the pod when its container starts, and when it ends."""

    server: KubernetesServer
    namespace: str = "shop"
    stuck: set[str] = field(default_factory=set)
    unready: set[str] = field(default_factory=set)
    slow_s: float = 0.0
    on_start: Callable[[Any], None] = lambda _pod: None
    on_end: Callable[[Any], None] = lambda _pod: None
    failures: list[BaseException] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        api = build_client(self.kubeconfig)
        self.core, self.apps = client.CoreV1Api(api), client.AppsV1Api(api)
        self.rbac = client.RbacAuthorizationV1Api(api)

    @property
    def kubeconfig(self) -> str:
        """Of somebody who may do everything."""
        return self.server.build_kubeconfig({"token": self.server.admin})

    def add(self, workload: str, replicas: int, env: dict[str, str] | None = None, **spec: Any) -> None:
        """Makes it, and waits until its pods are ready (where they get ready)."""
        item = build_workload(workload, replicas, env, self.namespace)
        item["spec"] |= spec
        if workload.startswith("deployment/"):
            self.apps.create_namespaced_deployment(self.namespace, item)
        else:
            self.apps.create_namespaced_stateful_set(self.namespace, item)
        if item["metadata"]["name"] not in self.unready:
            self.until(lambda: (self.read(workload).status.ready_replicas or 0) == replicas)

    def read(self, workload: str) -> Any:
        kind, _, name = workload.partition("/")
        read = self.apps.read_namespaced_deployment if kind == "deployment" else self.apps.read_namespaced_stateful_set
        return read(name, self.namespace)

    def replicas(self, workload: str) -> int:
        return int(self.read(workload).spec.replicas)

    def variable(self, workload: str, name: str) -> Any:
        [container] = self.read(workload).spec.template.spec.containers
        return next(each.value for each in container.env if each.name == name)

    def list_pods(self, app: str = "") -> list[Any]:
        told = {"label_selector": f"app={app}"} if app else {}
        return list(self.core.list_namespaced_pod(self.namespace, **told).items)

    def until(self, holds: Callable[[], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, [(p.metadata.name, p.status.phase) for p in self.list_pods()]
            time.sleep(_LOOK_S)

    def build_token(self, account: str, seconds: float) -> str:
        """What the API server would give a service account, for any time (its own are for 10 minutes at least). A token
        is taken for a minute more than that (go-jose's leeway); what was found is kept for 10 s."""
        now = int(time.time())
        there = self.core.read_namespaced_service_account(account, self.namespace).metadata
        inside = {"namespace": self.namespace, "serviceaccount": {"name": account, "uid": there.uid}}
        claims = {
            "iss": ISSUER, "aud": [ISSUER], "sub": f"system:serviceaccount:{self.namespace}:{account}",
            "iat": now - 600, "nbf": now - 600, "exp": int(now + seconds), "kubernetes.io": inside,
        }  # fmt: skip
        return jwt.encode(claims, self.server.token_key, algorithm="ES256")

    # -- the node -----------------------------------------------------------------------------------------------

    def play_node(self) -> None:
        """Until `ended`; what cannot be expected ends it, and is in `failures`."""
        try:
            while not self.ended.wait(_LOOK_S):
                for pod in self.list_pods():
                    self._serve(pod)
        except Exception as error:  # noqa: BLE001 -- a thread of a test: whoever waits sees it
            self.failures.append(error)

    def _serve(self, pod: Any) -> None:
        try:
            if pod.metadata.deletion_timestamp is not None:
                self._end(pod)
            elif pod.spec.node_name is None:
                target = client.V1ObjectReference(kind="Node", name=_NODE)
                binding = client.V1Binding(metadata=client.V1ObjectMeta(name=pod.metadata.name), target=target)
                self.core.create_namespaced_binding(self.namespace, binding, _preload_content=False)
            elif not pod.status.container_statuses:
                self.on_start(pod)
                self._write_status(pod, ready=pod.metadata.labels["app"] not in self.unready)
        except ApiException as error:  # it has changed, or is gone: the next look sees that
            if error.status not in (404, 409):
                raise

    def _end(self, pod: Any) -> None:
        """As a kubelet: the container ends, and then the pod is deleted for good, which a finalizer holds up."""
        grace = float(pod.metadata.deletion_grace_period_seconds or 0)
        asked = pod.metadata.deletion_timestamp.timestamp() - grace
        if pod.metadata.name in self.stuck or time.time() < asked + self.slow_s or pod.status.phase == "Succeeded":
            return
        self.on_end(pod)
        if pod.metadata.finalizers:
            self.core.patch_namespaced_pod_status(pod.metadata.name, self.namespace, {"status": {"phase": "Succeeded"}})
        self.core.delete_namespaced_pod(pod.metadata.name, self.namespace, grace_period_seconds=0)

    def _write_status(self, pod: Any, *, ready: bool) -> None:
        now = datetime.now(UTC).isoformat()
        state = {"running": {"startedAt": now}} if ready else {"waiting": {"reason": "CrashLoopBackOff"}}
        container = {
            "name": pod.spec.containers[0].name, "ready": ready, "restartCount": 0, "image": "x", "imageID": "x",
            "state": state,
        }  # fmt: skip
        conditions = [
            {"type": kind, "status": "True" if ready else "False", "lastTransitionTime": now}
            for kind in ("Ready", "ContainersReady")
        ]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": [container], "startTime": now}
        self.core.patch_namespaced_pod_status(pod.metadata.name, self.namespace, {"status": status})


@contextmanager
def running_server(home: Path) -> Iterator[KubernetesServer]:
    """Skips where the program is not built: that takes longer than a test may."""
    if not is_kubernetes_built():
        pytest.skip(NOT_BUILT)
    server = start_kubernetes(home)
    try:
        yield server
    finally:
        end_kubernetes(server)


@contextmanager
def played_namespace(server: KubernetesServer, namespace: str) -> Iterator[RealCluster]:
    """A namespace of its own, and its node."""
    cluster = RealCluster(server, namespace)
    cluster.core.create_namespace({"metadata": {"name": namespace}})
    thread = threading.Thread(target=cluster.play_node, daemon=True)
    thread.start()
    try:
        yield cluster
    finally:
        cluster.ended.set()
        thread.join(10)
    assert not cluster.failures, cluster.failures
