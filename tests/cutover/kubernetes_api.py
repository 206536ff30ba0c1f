"""An API server of Kubernetes in miniature: the paths that a migration uses, with strategic merge patches, and a
controller that makes and ends pods as Deployments and StatefulSets ask (there is no kubelet in it, nor in a test)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

APPS, CORE = "/apis/apps/v1/namespaces/shop", "/api/v1/namespaces/shop"


@dataclass
class ApiServer:
    """workloads: `deployment/NAME` → object. stuck: pods that do not end. unready: workloads whose pods do not get
    ready. refuse: path → (status, message). patches: in order. token: the only one that is taken; tokens: those that
    came."""

    port: int = 0
    workloads: dict[str, dict[str, Any]] = field(default_factory=dict)
    config_maps: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    unready: set[str] = field(default_factory=set)
    refuse: dict[str, tuple[int, str]] = field(default_factory=dict)
    patches: list[tuple[str, Any]] = field(default_factory=list)
    token: str = "let-me-in"
    tokens: list[str] = field(default_factory=list)
    on_change: Callable[[ApiServer], None] = lambda _server: None
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def kubeconfig(self) -> str:
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        user = {"name": "u", "user": {"token": self.token}}
        return json.dumps(
            {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user], "contexts": [context],
             "current-context": "x"}
        )  # fmt: skip

    def add(self, workload: str, replicas: int, env: dict[str, str] | None = None) -> None:
        """With its pods, all ready."""
        item = build_workload(workload, replicas, env, "shop")
        item["metadata"]["generation"] = 1
        self.workloads[workload] = item | {"status": {}}
        self.reconcile()

    def replicas(self, workload: str) -> int:
        return int(self.workloads[workload]["spec"]["replicas"])

    def variable(self, workload: str, name: str) -> Any:
        [container] = self.workloads[workload]["spec"]["template"]["spec"]["containers"]
        return next(each.get("value") for each in container["env"] if each["name"] == name)

    def reconcile(self) -> None:
        """What controllers and kubelets would do: pods come and go, statuses follow."""
        for workload, item in self.workloads.items():
            name, wanted = item["metadata"]["name"], item["spec"]["replicas"]
            mine = [pod for pod in self.pods.values() if pod["metadata"]["labels"] == {"app": name}]
            for pod in mine[wanted:]:
                if pod["metadata"]["name"] in self.stuck:
                    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                else:
                    del self.pods[pod["metadata"]["name"]]
            for number in range(wanted):
                self._pod(name, number, ready=workload not in self.unready)
            ready = 0 if workload in self.unready else wanted
            counts = {"replicas": wanted, "updatedReplicas": wanted, "readyReplicas": ready}
            always = {"replicas"} if workload.startswith("statefulset/") else set()  # the rest has Go's `omitempty`
            shown = {each: count for each, count in counts.items() if count or each in always}
            item["status"] = {"observedGeneration": item["metadata"]["generation"], **shown}
        self.on_change(self)

    def _pod(self, name: str, number: int, *, ready: bool) -> None:
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        waiting = {} if ready else {"waiting": {"reason": "CrashLoopBackOff"}}
        container = {"name": "app", "ready": ready, "restartCount": 0, "image": "x", "imageID": "", "state": waiting}
        self.pods[f"{name}-{number}"] = {
            "metadata": {"name": f"{name}-{number}", "labels": {"app": name}},
            "spec": {"containers": [{"name": "app", "image": "x"}]},
            "status": {"phase": "Running", "conditions": [condition], "containerStatuses": [container]},
        }

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        if path in self.refuse:
            status, message = self.refuse[path]
            return status, {"kind": "Status", "message": message, "code": status}
        if path == f"{CORE}/pods":
            label = query.partition("labelSelector=app%3D")[2].partition("&")[0]
            found = [pod for pod in self.pods.values() if pod["metadata"]["labels"]["app"] == label]
            return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": found}
        item, scales = self._find(path)
        if item is None:
            return 404, {"kind": "Status", "message": f"{path} not found", "code": 404}
        if method == "PATCH":
            self.patches.append((path.removeprefix(APPS).removeprefix(CORE), body))
            before = json.dumps(item.get("spec"))
            merge_patch(item, body)
            if json.dumps(item.get("spec")) != before:
                item["metadata"]["generation"] += 1
            self.reconcile()
        if scales:
            replicas = item["spec"]["replicas"]
            return 200, {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": item["metadata"],
                         "spec": {"replicas": replicas} if replicas else {}}  # fmt: skip
        return 200, item

    def _find(self, path: str) -> tuple[dict[str, Any] | None, bool]:
        for prefix, kind in ((f"{APPS}/deployments/", "deployment"), (f"{APPS}/statefulsets/", "statefulset")):
            if path.startswith(prefix):
                name = path.removeprefix(prefix)
                return self.workloads.get(f"{kind}/{name.removesuffix('/scale')}"), name.endswith("/scale")
        return self.config_maps.get(path.removeprefix(f"{CORE}/configmaps/")), False


def build_workload(workload: str, replicas: int, env: dict[str, str] | None, namespace: str) -> dict[str, Any]:
    """The object of `deployment/NAME` or `statefulset/NAME`, with one container."""
    kind, _, name = workload.partition("/")
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "app", "image": "x", "env": variables}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    if kind == "statefulset":
        spec["serviceName"] = name
    kind = "Deployment" if kind == "deployment" else "StatefulSet"
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def merge_patch(into: dict[str, Any], patch: dict[str, Any]) -> None:
    """A strategic merge patch (Kubernetes' sig-api-machinery/strategic-merge-patch.md): lists of containers and
    variables are merged by name, null removes."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merge_patch(into.setdefault(key, {}), value)
        elif isinstance(value, list) and key in ("containers", "initContainers", "env"):
            for each in value:
                there = next((one for one in into.setdefault(key, []) if one["name"] == each["name"]), None)
                if there is None:
                    into[key].append(there := {})
                merge_patch(there, each)
        else:
            into[key] = value


@contextmanager
def running_api_server() -> Iterator[ApiServer]:
    there = ApiServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            with there.lock:
                there.tokens.append(self.headers.get("authorization") or "")
                if there.tokens[-1] == f"Bearer {there.token}":
                    status, value = there.answer(self.command, self.path, json.loads(content or b"null"))
                else:
                    status, value = 401, {"kind": "Status", "message": "Unauthorized", "code": 401}
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PATCH = do_GET

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    there.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield there
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
