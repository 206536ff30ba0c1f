"""The chart on a real API server (Kubernetes 1.33): installed by Helm, applied on the server's side, and what its
service accounts may do there: exactly what the migrations need, and nothing else."""

from __future__ import annotations

import itertools
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.cutover.real_kubernetes import RealCluster, build_client, played_namespace, running_server
from tests.docker.rendered_chart import NAMES, NAMESPACE, RELEASE, list_values, render_chart, require_helm, select
from watershed.cutover.live.application_control import DeclaredApplications
from watershed.cutover.live.applications.application_adapter import ApplicationOrder
from watershed.lab.certificates import write_secret_file
from watershed.lab.helm_program import CHART_FOLDER, run_helm
from watershed.lab.kubernetes_documents import fetch_kubernetes_documents, has_kubernetes_documents
from watershed.lab.kubernetes_server import KubernetesServer
from watershed.topology.application_controls import KubernetesControl, PlanApplication
from watershed.topology.secret_ref import SecretRef

pytestmark = [pytest.mark.slow, pytest.mark.soak]

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
NAME = f"{RELEASE}-watershed"
# What every authenticated user may do: ask who he is, and what he may do (system:basic-user).
BASIC = {("", "create", resource, "") for resource in (
    "selfsubjectaccessreviews.authorization.k8s.io", "selfsubjectrulesreviews.authorization.k8s.io",
    "selfsubjectreviews.authentication.k8s.io",
)}  # fmt: skip


@dataclass
class Installed:
    server: KubernetesServer
    home: Path
    kubeconfig: Path

    @property
    def api(self) -> client.ApiClient:
        return build_client(self.kubeconfig.read_text())

    def helm(self, *arguments: str) -> str:
        return run_helm(self.home, *arguments, "--kubeconfig", str(self.kubeconfig))

    def ask(self, method: str, path: str, body: Any = None, form: str = "application/json") -> Any:
        """What the server answers. Raises Refused with its reason."""
        headers = {"Content-Type": form, "Accept": "application/json", "Authorization": f"Bearer {self.server.admin}"}
        text = None if body is None else json.dumps(body).encode()  # JSON is YAML
        asked = urllib.request.Request(self.server.address + path, text, headers, method=method)
        trust = ssl.create_default_context(cadata=self.server.authority)
        try:
            with urllib.request.urlopen(asked, timeout=60, context=trust) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Refused(error.read().decode()) from None


class Refused(Exception):
    pass


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The release `orders` of examples/full.yaml, where pods that are not `restricted` are refused."""
    require_helm()
    if not has_kubernetes_documents():
        pytest.skip("descriptions of Kubernetes are not here: python -m watershed.lab.helm_program build (needs go)")
    home = tmp_path_factory.mktemp("kubernetes")
    with running_server(home) as server:
        kubeconfig = write_secret_file(home / "admin.json", server.build_kubeconfig({"token": server.admin}))
        found = Installed(server, home, Path(kubeconfig))
        core = client.CoreV1Api(found.api)
        for name in (NAMESPACE, "airflow"):
            labels = {"pod-security.kubernetes.io/enforce": "restricted"} if name == NAMESPACE else {}
            core.create_namespace({"metadata": {"name": name, "labels": labels}})
        client.SchedulingV1Api(found.api).create_priority_class({"metadata": {"name": "high"}, "value": 1000})
        define_resources(found)
        with played_namespace(server, "shop"):
            told = found.helm("install", RELEASE, str(CHART_FOLDER), *list_values("full"))
            assert f"exec -it deploy/{NAME}-console -- topology apply /topologies/topology.yaml" in told
            yield found


def define_resources(found: Installed) -> None:
    """Custom resources of KEDA and of Prometheus' operator, until the server serves them."""
    api = client.ApiextensionsV1Api(found.api)
    for each in fetch_kubernetes_documents().definitions:
        api.create_custom_resource_definition(each)
        deadline = time.monotonic() + 60
        while not is_served(api, each["metadata"]["name"]):
            assert time.monotonic() < deadline
            time.sleep(0.2)


def is_served(api: client.ApiextensionsV1Api, name: str) -> bool:
    conditions = api.read_custom_resource_definition(name).status.conditions or []
    return any(each.type == "Established" and each.status == "True" for each in conditions)


def list_resources(found: Installed) -> Iterator[tuple[str, dict[str, Any]]]:
    """All that the server has, subresources among them: path of the version, and what is said of the resource."""
    groups = found.ask("GET", "/apis")["groups"]
    for path in ("/api/v1", *(f"/apis/{version['groupVersion']}" for each in groups for version in each["versions"])):
        for resource in found.ask("GET", path)["resources"]:
            yield path, resource


def find_path(found: Installed, item: dict[str, Any]) -> str:
    version = item["apiVersion"]
    base = "/api/v1" if version == "v1" else f"/apis/{version}"
    plural = next(e["name"] for e in found.ask("GET", base)["resources"] if e["kind"] == item["kind"])
    return f"{base}/namespaces/{item['metadata']['namespace']}/{plural}/{item['metadata']['name']}"


@pytest.mark.parametrize("name", NAMES)
def test_a_server_side_apply_takes_every_object(installed: Installed, name: str) -> None:
    """With strict validation: a key that is not there is an error, in custom resources as well."""
    items = render_chart(installed.home, name)
    for item in items:
        path = f"{find_path(installed, item)}?fieldManager=test&force=true&fieldValidation=Strict&dryRun=All"
        applied = installed.ask("PATCH", path, item, "application/apply-patch+yaml")
        assert applied["metadata"]["name"] == item["metadata"]["name"]
    broken = {**select(items, "Deployment")[0], "speck": {}}
    path = f"{find_path(installed, broken)}?fieldManager=test&force=true&fieldValidation=Strict&dryRun=All"
    with pytest.raises(Refused, match="speck"):
        installed.ask("PATCH", path, broken, "application/apply-patch+yaml")


def test_pods_are_made_in_a_namespace_that_takes_restricted_ones_only(installed: Installed) -> None:
    apps, core = client.AppsV1Api(installed.api), client.CoreV1Api(installed.api)
    wanted = {f"{NAME}-cloud": 1, f"{NAME}-onprem": 1, f"{NAME}-exporter": 1, f"{NAME}-console": 1}
    deadline = time.monotonic() + 60
    while True:
        found = {each.metadata.name: each.status.replicas for each in apps.list_namespaced_deployment(NAMESPACE).items}
        if found == wanted:
            break
        failures = [
            condition.message
            for each in apps.list_namespaced_replica_set(NAMESPACE).items
            for condition in each.status.conditions or []
        ]
        assert time.monotonic() < deadline, (found, failures)
        time.sleep(0.2)
    assert len(core.list_namespaced_pod(NAMESPACE).items) == len(wanted)
    with pytest.raises(ApiException, match="violates PodSecurity"):
        core.create_namespaced_pod(
            NAMESPACE, {"metadata": {"name": "loose"}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
        )


def list_allowed(installed: Installed, account: str, namespaces: list[str], names: list[str]) -> set[tuple[str, ...]]:
    """(namespace, verb, resource with group, name) of all that the service account may do, by SubjectAccessReviews of
    every resource that the server has."""
    api = client.AuthorizationV1Api(installed.api)
    user, groups = f"system:serviceaccount:{NAMESPACE}:{account}", ["system:serviceaccounts", "system:authenticated"]
    asked = [
        ("" if not resource["namespaced"] else namespace, verb, resource["name"], path, name)
        for path, resource in list_resources(installed)
        for namespace in (namespaces if resource["namespaced"] else namespaces[:1])
        for verb in VERBS
        for name in names
    ]

    def is_allowed(each: tuple[str, str, str, str, str]) -> bool:
        namespace, verb, resource, path, name = each
        attributes = {"verb": verb, "resource": resource.partition("/")[0], "subresource": resource.partition("/")[2]}
        attributes |= {"group": find_group(path), "namespace": namespace, "name": name}
        spec = {"user": user, "groups": groups, "resourceAttributes": attributes}
        return bool(api.create_subject_access_review({"spec": spec}).status.allowed)

    with ThreadPoolExecutor(8) as pool:
        allowed = list(itertools.compress(asked, pool.map(is_allowed, asked)))
    return {
        (namespace, verb, f"{resource}.{find_group(path)}".rstrip("."), name)
        for namespace, verb, resource, path, name in allowed
    }


def find_group(path: str) -> str:
    return "" if path == "/api/v1" else path.split("/")[2]


def test_workers_and_the_exporter_may_do_nothing(installed: Installed) -> None:
    allowed = list_allowed(installed, NAME, [NAMESPACE, "shop"], ["", "search"])
    assert {(*each[:3], "") for each in allowed} == BASIC


def test_migrations_may_do_what_the_adapter_needs_and_nothing_else(installed: Installed) -> None:
    names = ["", "search", "search-writer", "cart", "cart-kafka", "other"]
    allowed = list_allowed(installed, f"{NAME}-console", ["shop", NAMESPACE], names)
    workloads = {
        ("deployments", "search"): True,
        ("statefulsets", "search-writer"): True,
        ("deployments", "cart"): False,
    }
    expected = {
        (verb, f"{resource}.apps", name)
        for (resource, name), patches in workloads.items()
        for verb in (["get", "patch"] if patches else ["get"])
    }
    expected |= {("patch", f"{resource}/scale.apps", name) for resource, name in workloads}
    expected |= {("list", "pods", name) for name in names}
    expected |= {(verb, "configmaps", "cart-kafka") for verb in ("get", "patch")}
    found = {each for each in allowed if (*each[:3], "") not in BASIC}
    assert found == {("shop", *each) for each in expected}


def test_the_account_itself_is_told_the_same(installed: Installed) -> None:
    """By SelfSubjectRulesReviews, with a token of the console's service account."""
    cluster = RealCluster(installed.server, NAMESPACE)
    token = cluster.build_token(f"{NAME}-console", 600)
    own = client.AuthorizationV1Api(build_client(installed.server.build_kubeconfig({"token": token})))
    for namespace, least in (("shop", {"deployments", "pods", "configmaps"}), (NAMESPACE, set())):
        status = own.create_self_subject_rules_review({"spec": {"namespace": namespace}}).status
        rules = [
            rule
            for rule in status.resource_rules
            if not set(rule.api_groups) & {"authorization.k8s.io", "authentication.k8s.io"}
        ]
        assert not any("*" in (*rule.verbs, *rule.resources, *rule.api_groups) for rule in rules)
        resources = {name for rule in rules for name in rule.resources}
        assert least <= resources
        assert bool(resources) is bool(least)
        assert all(rule.resource_names or rule.resources == ["pods"] for rule in rules)


def test_an_application_is_moved_and_brought_back_with_these_rights(installed: Installed) -> None:
    shop = RealCluster(installed.server, "shop")
    shop.add("deployment/search", 2, {"KAFKA": "o1:9092"})
    token = RealCluster(installed.server, NAMESPACE).build_token(f"{NAME}-console", 600)
    environ = {
        "WATERSHED_SECRET_KUBECONFIG": installed.server.build_kubeconfig({"token": token}),
        "WATERSHED_KUBERNETES_NAMESPACES": "shop",
    }
    control = KubernetesControl(
        "shop", ("deployment/search",), env="KAFKA", credentials=SecretRef("env", "WATERSHED_SECRET_KUBECONFIG")
    )
    clusters = {"onprem": ("o1:9092",), "cloud": ("c1:9092",)}
    told = DeclaredApplications({"search": PlanApplication(kubernetes=control)}, clusters, environ=environ)
    former = told.look("search").former
    for verb, side, alias, state in (("stop", "source", "onprem", "stopped"), ("start", "target", "cloud", "running")):
        order = ApplicationOrder(
            verb, "search", "producer", side, alias, clusters[alias], f"{verb}/{side}", former or {}  # type: ignore[arg-type]
        )  # fmt: skip
        deadline, seen = time.monotonic() + 120, told.tell(order)
        while seen.state != state:
            assert time.monotonic() < deadline, seen
            time.sleep(0.1)
            seen = told.follow(order)
    assert (shop.replicas("deployment/search"), shop.variable("deployment/search", "KAFKA")) == (2, "c1:9092")


def test_an_upgrade_changes_and_an_uninstall_leaves_nothing(installed: Installed) -> None:
    """The last one: afterwards the release is gone."""
    network = client.NetworkingV1Api(installed.api)
    assert len(network.list_namespaced_network_policy(NAMESPACE).items) == 3
    installed.helm("upgrade", RELEASE, str(CHART_FOLDER), *list_values("full"), "--set", "console.enabled=false")
    assert len(network.list_namespaced_network_policy(NAMESPACE).items) == 2
    installed.helm("uninstall", RELEASE, "--namespace", NAMESPACE)
    left = [
        f"{path}/{resource['name']}"
        for path, resource in list_resources(installed)
        if resource["namespaced"] and "list" in resource["verbs"] and resource["name"] not in ("events", "pods")
        for namespace in (NAMESPACE, "shop", "airflow")
        for each in installed.ask("GET", f"{path}/namespaces/{namespace}/{resource['name']}")["items"]
        if each["metadata"].get("labels", {}).get("app.kubernetes.io/instance") == RELEASE
        and not each["metadata"].get("deletionTimestamp") and not each["metadata"].get("ownerReferences")
    ]  # fmt: skip
    assert left == []
