"""The adapter of Kubernetes on a real API server (1.33) with Kubernetes' own controllers; the node is played."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.cutover.kubernetes_api import running_api_server
from tests.cutover.real_kubernetes import RealCluster, build_client, played_namespace, running_server
from watershed.cutover.live.application_control import DeclaredApplications
from watershed.cutover.live.applications.application_adapter import (
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationVerb,
)
from watershed.lab.certificates import CertificateAuthority
from watershed.lab.kubernetes_server import KubernetesServer
from watershed.topology.application_controls import KubernetesControl, PlanApplication
from watershed.topology.secret_ref import SecretRef

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ONPREM, CLOUD = ("o1:9092", "o2:9092"), ("c1:9092",)
CREDENTIALS = SecretRef("env", "WATERSHED_SECRET_KUBECONFIG")
DEPLOYMENT, STATEFUL_SET = "deployment/search", "statefulset/search-writer"  # the names of docs/applications.md
BOTH = KubernetesControl("shop", (DEPLOYMENT, STATEFUL_SET), env="KAFKA", credentials=CREDENTIALS)
BEFORE = "o2:9092,old:9092"
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesServer]:
    with running_server(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest.fixture
def cluster(server: KubernetesServer) -> Iterator[RealCluster]:
    with played_namespace(server, f"shop-{next(_NUMBERS)}") as found:
        yield found


def applications(
    cluster: RealCluster, control: KubernetesControl = BOTH, kubeconfig: str = "", **environ: str
) -> DeclaredApplications:
    known = {
        "WATERSHED_SECRET_KUBECONFIG": kubeconfig or cluster.kubeconfig,
        "WATERSHED_KUBERNETES_NAMESPACES": cluster.namespace,
    }
    declared = {"search": PlanApplication(kubernetes=replace(control, namespace=cluster.namespace))}
    return DeclaredApplications(declared, {"onprem": ONPREM, "cloud": CLOUD}, environ=known | environ)


def order(verb: ApplicationVerb, alias: str, former: dict[str, Any] | None = None) -> ApplicationOrder:
    side: Any = "source" if alias == "onprem" else "target"
    servers = ONPREM if alias == "onprem" else CLOUD
    return ApplicationOrder(verb, "search", "producer", side, alias, servers, f"{verb}/{side}", former or {})


def followed(told: DeclaredApplications, given: ApplicationOrder, state: str, seconds: float = 120) -> list[str]:
    """Gives the order and follows it to this state; returns what was seen on the way."""
    deadline, seen = time.monotonic() + seconds, told.tell(given)
    texts = [seen.text]
    while seen.state != state:
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)
        seen = told.follow(given)
        texts.append(seen.text)
    return texts


def add_both(cluster: RealCluster) -> None:
    cluster.add(DEPLOYMENT, 3, {"KAFKA": BEFORE})
    cluster.add(STATEFUL_SET, 2, {"KAFKA": BEFORE})


def stands(cluster: RealCluster) -> list[tuple[int, str]]:
    return [(cluster.replicas(each), cluster.variable(each, "KAFKA")) for each in (DEPLOYMENT, STATEFUL_SET)]


def test_there_and_back_with_pods_that_end_slowly(cluster: RealCluster) -> None:
    """No pod of the new place is there beside one of the old place, and everything stands again as it was."""
    alive: dict[str, str] = {}
    places: list[set[str]] = []

    def start(pod: Any) -> None:
        alive[pod.metadata.uid] = pod.spec.containers[0].env[0].value
        places.append(set(alive.values()))

    cluster.on_start, cluster.on_end = start, lambda pod: alive.pop(pod.metadata.uid)
    add_both(cluster)
    told = applications(cluster)
    seen = told.look("search")
    assert (seen.state, seen.cluster) == ("running", "onprem")
    former = seen.former
    assert former == {"replicas": {DEPLOYMENT: 3, STATEFUL_SET: 2}, "bootstrap": BEFORE}

    cluster.slow_s = 2.0
    texts = followed(told, order("stop", "onprem"), "stopped")
    assert any("is terminating" in each for each in texts), texts
    assert (cluster.list_pods(), alive) == ([], {})
    followed(told, order("start", "cloud", former), "running")
    assert stands(cluster) == [(3, "c1:9092"), (2, "c1:9092")]
    assert told.look("search").cluster == "cloud"

    followed(told, order("stop", "cloud"), "stopped")
    followed(told, order("start", "onprem", former), "running")
    assert stands(cluster) == [(3, BEFORE), (2, BEFORE)]
    assert len(alive) == 5
    assert {len(each) for each in places} == {1}


def test_an_order_that_is_repeated_changes_nothing(cluster: RealCluster) -> None:
    add_both(cluster)
    told = applications(cluster)
    former = told.look("search").former
    for verb, alias, state in (("stop", "onprem", "stopped"), ("start", "cloud", "running")):
        given = order(verb, alias, former)  # type: ignore[arg-type]
        followed(told, given, state)
        generations = [cluster.read(each).metadata.generation for each in (DEPLOYMENT, STATEFUL_SET)]
        assert told.tell(given).state == state
        assert [cluster.read(each).metadata.generation for each in (DEPLOYMENT, STATEFUL_SET)] == generations


def test_a_pod_that_does_not_end_is_named_and_taken_back_beside_it(cluster: RealCluster) -> None:
    cluster.add(DEPLOYMENT, 2, {"KAFKA": BEFORE})
    told = applications(cluster, replace(BOTH, workloads=(DEPLOYMENT,)))
    former = told.look("search").former
    stuck = cluster.list_pods()[0].metadata.name
    cluster.core.patch_namespaced_pod(stuck, cluster.namespace, {"metadata": {"labels": {"kept": "1"}}})
    cluster.stuck = {stuck}
    told.tell(order("stop", "onprem"))
    cluster.until(lambda: len(cluster.list_pods()) == 1)
    seen = told.follow(order("stop", "onprem"))
    assert (seen.state, seen.text) == ("stopping", f"1 pods are left: {stuck} is terminating")
    with pytest.raises(ApplicationControlFailed, match="it has to be stopped before it can start elsewhere"):
        told.tell(order("start", "cloud", former))
    followed(told, order("start", "onprem", former), "running")
    assert (cluster.replicas(DEPLOYMENT), cluster.variable(DEPLOYMENT, "KAFKA")) == (2, BEFORE)
    assert len(cluster.list_pods()) == 3  # the one that does not end is still there
    cluster.stuck.clear()
    cluster.until(lambda: len(cluster.list_pods()) == 2)


def test_a_pod_whose_container_has_ended_and_that_a_finalizer_keeps_is_no_part_of_it(cluster: RealCluster) -> None:
    cluster.add(DEPLOYMENT, 1, {"KAFKA": BEFORE})
    [pod] = [each.metadata.name for each in cluster.list_pods()]
    body = {"metadata": {"finalizers": ["example.internal/held"]}}
    cluster.core.patch_namespaced_pod(pod, cluster.namespace, body)
    told = applications(cluster, replace(BOTH, workloads=(DEPLOYMENT,)))
    former = told.look("search").former
    followed(told, order("stop", "onprem"), "stopped")
    [left] = cluster.list_pods()
    assert (left.metadata.name, left.status.phase) == (pod, "Succeeded")
    followed(told, order("start", "cloud", former), "running")
    assert cluster.variable(DEPLOYMENT, "KAFKA") == "c1:9092"
    cluster.core.patch_namespaced_pod(pod, cluster.namespace, {"metadata": {"finalizers": None}})


def test_pods_that_do_not_get_ready_are_named(cluster: RealCluster) -> None:
    add_both(cluster)
    told = applications(cluster)
    former = told.look("search").former
    followed(told, order("stop", "onprem"), "stopped")
    cluster.unready = {"search-writer"}
    told.tell(order("start", "cloud", former))
    cluster.until(lambda: any(pod.status.container_statuses for pod in cluster.list_pods("search-writer")))
    seen = told.follow(order("start", "cloud", former))
    assert seen.state == "starting"
    assert "search-writer-0 app CrashLoopBackOff" in seen.text


def test_a_config_map_and_a_workload_that_was_switched_off(cluster: RealCluster) -> None:
    cluster.add(STATEFUL_SET, 2)
    cluster.add("deployment/spare", 0)
    data = {"servers": "inside:1", "other": "kept"}
    cluster.core.create_namespaced_config_map(cluster.namespace, {"metadata": {"name": "kafka"}, "data": data})
    control = KubernetesControl(
        "shop", (STATEFUL_SET, "deployment/spare"), config_map="kafka", key="servers",
        values={"onprem": "inside:1", "cloud": "edge:2"}, credentials=CREDENTIALS,
    )  # fmt: skip
    told = applications(cluster, control)
    former = told.look("search").former
    followed(told, order("stop", "onprem"), "stopped")
    followed(told, order("start", "cloud", former), "running")
    assert (cluster.replicas(STATEFUL_SET), cluster.replicas("deployment/spare")) == (2, 0)
    held = cluster.core.read_namespaced_config_map("kafka", cluster.namespace)
    assert held.data == {"servers": "edge:2", "other": "kept"}


def test_others_may_change_the_same_objects_meanwhile(cluster: RealCluster) -> None:
    """Each of our patches names only what it changes, and no resource version: nothing of others is lost."""
    add_both(cluster)
    told, ended, count = applications(cluster), threading.Event(), itertools.count(1)
    written: list[int] = []
    refused: set[int] = set()

    def annotate() -> None:
        while not ended.is_set():
            number = next(count)
            found = cluster.read(DEPLOYMENT)
            found.metadata.annotations = {**(found.metadata.annotations or {}), f"n{number % 5}": str(number)}
            try:
                cluster.apps.replace_namespaced_deployment("search", cluster.namespace, found)
                written.append(number)
            except ApiException as error:
                refused.add(error.status)

    thread = threading.Thread(target=annotate, daemon=True)
    thread.start()
    former = told.look("search").former
    followed(told, order("stop", "onprem"), "stopped")
    followed(told, order("start", "cloud", former), "running")
    ended.set()
    thread.join(10)
    assert refused <= {409}  # whose look was too old by then
    assert stands(cluster) == [(3, "c1:9092"), (2, "c1:9092")]
    assert cluster.read(DEPLOYMENT).metadata.annotations[f"n{written[-1] % 5}"] == str(written[-1])


def test_workloads_whose_pods_would_keep_the_old_template_are_refused(cluster: RealCluster) -> None:
    cluster.add(DEPLOYMENT, 1, {"KAFKA": BEFORE})
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    cluster.add(STATEFUL_SET, 1, {"KAFKA": BEFORE}, updateStrategy=rolling)
    cluster.apps.patch_namespaced_deployment("search", cluster.namespace, {"spec": {"paused": True}})
    with pytest.raises(ApplicationControlFailed) as failed:
        applications(cluster).look("search")
    assert "its rollout is paused" in str(failed.value)
    assert "`partition` of its rolling update is 1" in str(failed.value)


# -- who may what --------------------------------------------------------------------------------------------------


def read_documented_role() -> dict[str, Any]:
    text = (Path(__file__).parents[2] / "docs" / "applications.md").read_text()
    [block] = [each for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "kind: Role" in each]
    role: dict[str, Any] = yaml.safe_load(block)
    return role


def as_account(cluster: RealCluster, rules: list[dict[str, Any]], seconds: float = 600) -> str:
    """A kubeconfig of a service account that has these rights and no others."""
    name = f"watershed-{next(_NUMBERS)}"
    told = {"metadata": {"name": name}}
    cluster.core.create_namespaced_service_account(cluster.namespace, told)
    cluster.rbac.create_namespaced_role(cluster.namespace, {**told, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": cluster.namespace}
    reference = {"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    cluster.rbac.create_namespaced_role_binding(
        cluster.namespace, {**told, "subjects": [subject], "roleRef": reference}
    )
    until_known(cluster, name, rules)
    return cluster.server.build_kubeconfig({"token": cluster.build_token(name, seconds)})


def until_known(cluster: RealCluster, account: str, rules: list[dict[str, Any]]) -> None:
    """The API server learns of a role and its binding within moments; of all verbs of a role at once."""
    rule = rules[0]
    resource, _, part = rule["resources"][0].partition("/")
    asked = {
        "group": rule["apiGroups"][0], "resource": resource, "subresource": part, "verb": rule["verbs"][0],
        "namespace": cluster.namespace, "name": next(iter(rule.get("resourceNames", ())), ""),
    }  # fmt: skip
    user = f"system:serviceaccount:{cluster.namespace}:{account}"
    review = {"spec": {"user": user, "resourceAttributes": asked}}
    reviews = client.AuthorizationV1Api(build_client(cluster.kubeconfig))
    cluster.until(lambda: bool(reviews.create_subject_access_review(review).status.allowed))


def test_the_documented_role_suffices_and_nothing_of_it_can_be_left_out(cluster: RealCluster) -> None:
    add_both(cluster)
    rules = read_documented_role()["rules"]
    told = applications(cluster, kubeconfig=as_account(cluster, rules))
    former = told.look("search").former
    followed(told, order("stop", "onprem"), "stopped")
    followed(told, order("start", "cloud", former), "running")
    followed(told, order("stop", "cloud"), "stopped")
    assert stands(cluster) == [(0, "c1:9092"), (0, "c1:9092")]
    for at, rule in enumerate(rules):
        for verb in rule["verbs"]:
            fewer = [
                {**each, "verbs": [one for one in each["verbs"] if (number, one) != (at, verb)]}
                for number, each in enumerate(rules)
            ]
            fewer = [each for each in fewer if each["verbs"]]
            poor = applications(cluster, kubeconfig=as_account(cluster, fewer))
            with pytest.raises(ApplicationControlFailed, match="our account may not do that") as failed:
                poor.tell(order("start", "onprem", former))
            assert not failed.value.transient
            assert f'cannot {verb} resource "{rule["resources"][0]}"' in str(failed.value)


def test_a_token_that_has_expired_and_was_renewed_where_it_stood(cluster: RealCluster) -> None:
    add_both(cluster)
    rules = read_documented_role()["rules"]
    environ = {
        "WATERSHED_SECRET_KUBECONFIG": as_account(cluster, rules, seconds=-30),
        "WATERSHED_KUBERNETES_NAMESPACES": cluster.namespace,
    }
    declared = {"search": PlanApplication(kubernetes=replace(BOTH, namespace=cluster.namespace))}
    told = DeclaredApplications(declared, {"onprem": ONPREM, "cloud": CLOUD}, environ=environ)
    assert told.look("search").state == "running"

    def look_until_refused() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            told.look("search")
            time.sleep(0.1)

    with pytest.raises(ApplicationControlFailed, match="does not accept our credentials") as failed:
        look_until_refused()
    assert not failed.value.transient
    environ["WATERSHED_SECRET_KUBECONFIG"] = as_account(cluster, rules)
    assert told.look("search").state == "running"  # the same run goes on


def test_a_server_that_is_not_the_one_and_a_client_that_is_not_known(cluster: RealCluster) -> None:
    cluster.add(DEPLOYMENT, 1, {"KAFKA": BEFORE})
    control = replace(BOTH, workloads=(DEPLOYMENT,))
    foreign = CertificateAuthority("somebody else")
    wrong = cluster.server.build_kubeconfig({"token": cluster.server.admin}, foreign.chain)
    with pytest.raises(ApplicationControlFailed, match=r"no TLS with the API server .*certificate verify") as failed:
        applications(cluster, control, wrong).look("search")
    assert not failed.value.transient
    for issuer, expired, words in (
        (cluster.server.clients, False, "our account may not do that"),  # known, and without rights
        (cluster.server.clients, True, "does not accept our credentials|no TLS with the API server"),
        (foreign, False, "does not accept our credentials|no TLS with the API server"),
    ):
        issued = issuer.issue("ann", expired=expired)
        folder = cluster.server.home / f"client-{next(_NUMBERS)}"
        folder.mkdir()
        (folder / "c.pem").write_text(issued.chain)
        (folder / "c.key").write_text(issued.key_pem())
        user = {"client-certificate": str(folder / "c.pem"), "client-key": str(folder / "c.key")}
        with pytest.raises(ApplicationControlFailed, match=words):
            applications(cluster, control, cluster.server.build_kubeconfig(user)).look("search")


# -- the small server of the pure tests ----------------------------------------------------------------------------


def test_the_small_server_takes_our_patches_as_the_real_one_does(cluster: RealCluster) -> None:
    """The same requests to both, by the same client: what stands there afterwards is equal."""
    from_elsewhere = {"name": "KAFKA", "value": "c1:9092", "valueFrom": None}
    patches: list[dict[str, Any]] = [
        {"spec": {"replicas": 0}},
        {"spec": {"template": {"spec": {"containers": [{"name": "app", "env": [from_elsewhere]}]}}}},
        {"spec": {"template": {"spec": {"containers": [{"name": "app", "env": [{"name": "NEW", "value": "1"}]}]}}}},
        {"spec": {"replicas": 2}},
    ]
    cluster.add(DEPLOYMENT, 1, {"KAFKA": BEFORE, "LEVEL": "info"})
    with running_api_server() as small:
        small.add(DEPLOYMENT, 1, {"KAFKA": BEFORE, "LEVEL": "info"})
        ways = (
            (client.AppsV1Api(build_client(small.kubeconfig)), "shop"),
            (client.AppsV1Api(build_client(cluster.kubeconfig)), cluster.namespace),
        )
        for patch in patches:
            found = []
            for apps, space in ways:
                scales = "template" not in patch["spec"]
                way = apps.patch_namespaced_deployment_scale if scales else apps.patch_namespaced_deployment
                answer = way("search", space, patch)
                item = apps.read_namespaced_deployment("search", space)
                [container] = item.spec.template.spec.containers
                variables = {each.name: (each.value, each.value_from) for each in container.env}
                answered = answer.spec.replicas
                found.append((answered, item.spec.replicas, variables, item.metadata.generation))
            assert found[0] == found[1], patch
        answers = []
        for apps, space in ways:
            with pytest.raises(ApiException) as refused:
                apps.read_namespaced_deployment("absent", space)
            answers.append((refused.value.status, yaml.safe_load(refused.value.body)["kind"]))
        assert answers[0] == answers[1] == (404, "Status")
