"""Workloads of Kubernetes through the official client: scaled to 0, pointed elsewhere, scaled back, exactly."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.cutover.kubernetes_api import APPS, CORE, ApiServer, running_api_server
from watershed.cutover.live.application_control import DeclaredApplications
from watershed.cutover.live.applications.application_adapter import (
    ApplicationControlFailed,
    ApplicationOrder,
    ApplicationVerb,
)
from watershed.cutover.live.applications.kubernetes_connection import parse_connection_extra
from watershed.topology.application_controls import KubernetesControl, PlanApplication
from watershed.topology.secret_ref import SecretRef

ONPREM, CLOUD = ("o1:9092", "o2:9092"), ("c1:9092",)
CREDENTIALS = SecretRef("env", "WATERSHED_SECRET_KUBECONFIG")
ENV = KubernetesControl("shop", ("deployment/checkout",), env="KAFKA", credentials=CREDENTIALS)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with running_api_server() as server:
        server.add("deployment/checkout", 3, {"KAFKA": "o2:9092,old:9092"})
        yield server


def applications(api: ApiServer, control: KubernetesControl = ENV, **environ: str) -> DeclaredApplications:
    known = {"WATERSHED_SECRET_KUBECONFIG": api.kubeconfig, "WATERSHED_KUBERNETES_NAMESPACES": "shop"} | environ
    declared = {"checkout": PlanApplication(kubernetes=control)}
    return DeclaredApplications(declared, {"onprem": ONPREM, "cloud": CLOUD}, environ=known)


def order(verb: ApplicationVerb, alias: str, former: dict[str, Any] | None = None) -> ApplicationOrder:
    side: Any = "source" if alias == "onprem" else "target"
    servers = ONPREM if alias == "onprem" else CLOUD
    return ApplicationOrder(verb, "checkout", "producer", side, alias, servers, f"{verb}/{side}", former or {})


def test_there_and_back(api: ApiServer) -> None:
    told = applications(api)
    seen = told.look("checkout")
    assert (seen.state, seen.cluster, seen.by) == ("running", "onprem", "kubernetes")
    former = seen.former
    assert former == {"replicas": {"deployment/checkout": 3}, "bootstrap": "o2:9092,old:9092"}

    assert told.tell(order("stop", "onprem")).state == "stopped"
    assert told.tell(order("start", "cloud", former)).cluster == "cloud"
    assert (api.replicas("deployment/checkout"), api.variable("deployment/checkout", "KAFKA")) == (3, "c1:9092")

    told.tell(order("stop", "cloud"))
    assert told.tell(order("start", "onprem", former)).cluster == "onprem"
    assert (api.replicas("deployment/checkout"), api.variable("deployment/checkout", "KAFKA")) == (
        3, "o2:9092,old:9092",
    )  # fmt: skip
    assert set(api.tokens) == {"Bearer let-me-in"}


def test_an_order_that_is_repeated_changes_nothing(api: ApiServer) -> None:
    told = applications(api)
    former = told.look("checkout").former
    for verb, alias in (("stop", "onprem"), ("start", "cloud")):
        given: Any = order(verb, alias, former)  # type: ignore[arg-type]
        told.tell(given)
        count = len(api.patches)
        told.tell(given)
        assert len(api.patches) == count


def test_an_order_that_died_half_way_is_finished(api: ApiServer) -> None:
    told = applications(api)
    former = told.look("checkout").former
    told.tell(order("stop", "onprem"))
    api.refuse[f"{APPS}/deployments/checkout/scale"] = (500, "etcd is away")
    with pytest.raises(ApplicationControlFailed, match="answered 500: etcd is away") as failed:
        told.tell(order("start", "cloud", former))
    assert failed.value.transient
    assert api.variable("deployment/checkout", "KAFKA") == "c1:9092"
    del api.refuse[f"{APPS}/deployments/checkout/scale"]
    assert told.tell(order("start", "cloud", former)).state == "running"
    assert api.replicas("deployment/checkout") == 3


def test_a_pod_that_does_not_end_is_named(api: ApiServer) -> None:
    api.stuck = {"checkout-1"}
    told = applications(api)
    seen = told.tell(order("stop", "onprem"))
    assert (seen.state, api.replicas("deployment/checkout")) == ("stopping", 0)
    assert "1 pods are left: checkout-1 is terminating" in seen.text
    assert "beyond its grace period" in seen.text
    api.stuck.clear()
    api.reconcile()
    assert told.follow(order("stop", "onprem")).state == "stopped"


def test_pods_that_do_not_get_ready_are_named(api: ApiServer) -> None:
    told = applications(api)
    former = told.look("checkout").former
    told.tell(order("stop", "onprem"))
    api.unready = {"deployment/checkout"}
    seen = told.tell(order("start", "cloud", former))
    assert seen.state == "starting"
    assert "checkout-0 app CrashLoopBackOff" in seen.text


def test_it_never_starts_beside_itself(api: ApiServer) -> None:
    with pytest.raises(ApplicationControlFailed, match="runs at onprem; it has to be stopped") as failed:
        applications(api).tell(order("start", "cloud"))
    assert not failed.value.transient
    assert api.patches == []


def test_several_workloads_and_a_config_map(api: ApiServer) -> None:
    """One of them was switched off before, and stays so. What is written is what the file says."""
    api.add("statefulset/ledger", 2)
    api.add("deployment/spare", 0)
    api.config_maps["kafka"] = {"metadata": {"name": "kafka", "generation": 1}, "data": {"servers": "inside:1"}}
    control = KubernetesControl(
        "shop", ("statefulset/ledger", "deployment/spare"), config_map="kafka", key="servers",
        values={"onprem": "inside:1", "cloud": "edge:2"}, credentials=CREDENTIALS,
    )  # fmt: skip
    told = applications(api, control)
    former = told.look("checkout").former
    assert told.look("checkout").cluster == "onprem"
    told.tell(order("stop", "onprem"))
    assert told.tell(order("start", "cloud", former)).state == "running"
    assert (api.replicas("statefulset/ledger"), api.replicas("deployment/spare")) == (2, 0)
    assert api.config_maps["kafka"]["data"]["servers"] == "edge:2"


def test_what_was_at_nothing_before_starts_with_one(api: ApiServer) -> None:
    told = applications(api)
    told.tell(order("stop", "onprem"))
    stopped = told.look("checkout").former
    assert told.tell(order("start", "cloud", stopped)).state == "running"
    assert api.replicas("deployment/checkout") == 1


def test_replicas_that_nobody_read_are_not_guessed(api: ApiServer) -> None:
    """They stay as they are; where they are 0, a person says how many."""
    told = applications(api)
    told.tell(order("stop", "onprem"))
    with pytest.raises(ApplicationControlFailed, match="could not read how many it had before") as failed:
        told.tell(order("start", "cloud"))
    assert not failed.value.transient
    assert (api.replicas("deployment/checkout"), api.variable("deployment/checkout", "KAFKA")) == (0, "c1:9092")
    api.workloads["deployment/checkout"]["spec"]["replicas"] = 5
    api.reconcile()
    assert told.tell(order("start", "cloud")).state == "running"
    assert api.replicas("deployment/checkout") == 5


@pytest.mark.parametrize(
    ("path", "answer", "words", "transient"),
    [
        (f"{APPS}/deployments/checkout", (403, "deployments is forbidden"), "may not do that", False),
        (f"{APPS}/deployments/checkout", (401, "no"), "does not accept our credentials", False),
        (f"{CORE}/pods", (429, "too many"), "answered 429", True),
    ],
)
def test_what_the_api_server_says_no_with(
    api: ApiServer, path: str, answer: tuple[int, str], words: str, transient: bool
) -> None:
    api.refuse[path] = answer
    with pytest.raises(ApplicationControlFailed, match=words) as failed:
        applications(api).look("checkout")
    assert failed.value.transient is transient


def test_what_is_not_there_is_named(api: ApiServer) -> None:
    for control, words in (
        (replace(ENV, workloads=("deployment/absent",)), "deployment/absent in namespace shop: is not there"),
        (replace(ENV, env="OTHER"), "has no variable OTHER in any container"),
        (replace(ENV, env=None, config_map="kafka", key="servers"), "ConfigMap kafka in namespace shop: is not there"),
    ):
        with pytest.raises(ApplicationControlFailed, match=words):
            applications(api, control).look("checkout")


def test_what_could_not_be_put_back_is_refused(api: ApiServer) -> None:
    [container] = api.workloads["deployment/checkout"]["spec"]["template"]["spec"]["containers"]
    other = {"name": "side", "image": "x", "env": [{"name": "KAFKA", "value": "elsewhere:1"}]}
    api.workloads["deployment/checkout"]["spec"]["template"]["spec"]["containers"].append(other)
    with pytest.raises(ApplicationControlFailed, match="different values of KAFKA"):
        applications(api).look("checkout")
    assert applications(api, replace(ENV, container="app")).look("checkout").cluster == "onprem"
    container["env"] = [{"name": "KAFKA", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]
    with pytest.raises(ApplicationControlFailed, match="takes KAFKA from elsewhere"):
        applications(api).look("checkout")


def test_only_namespaces_that_the_host_lists(api: ApiServer) -> None:
    with pytest.raises(ApplicationControlFailed, match="WATERSHED_KUBERNETES_NAMESPACES=other,shop"):
        applications(api, WATERSHED_KUBERNETES_NAMESPACES="other").look("checkout")
    assert api.tokens == []


def test_credentials_that_cannot_be_used_are_named_and_not_shown(api: ApiServer) -> None:
    secret = "a: [let-me-in"
    with pytest.raises(ApplicationControlFailed, match="cannot be used") as failed:
        applications(api, WATERSHED_SECRET_KUBECONFIG=secret).look("checkout")
    assert "let-me-in" not in str(failed.value)
    with pytest.raises(ApplicationControlFailed, match="there is no service account here"):
        applications(api, replace(ENV, credentials=None)).look("checkout")


def test_an_api_server_that_is_away_is_asked_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ApplicationControlFailed, match="does not answer") as failed:
        applications(ApiServer(port)).look("checkout")
    assert failed.value.transient


def test_a_token_that_was_renewed_where_it_stood_is_read_anew_once(api: ApiServer) -> None:
    environ = {"WATERSHED_SECRET_KUBECONFIG": api.kubeconfig, "WATERSHED_KUBERNETES_NAMESPACES": "shop"}
    declared = {"checkout": PlanApplication(kubernetes=ENV)}
    told = DeclaredApplications(declared, {"onprem": ONPREM, "cloud": CLOUD}, environ=environ)
    assert told.look("checkout").state == "running"
    api.token = "renewed"
    api.tokens.clear()
    with pytest.raises(ApplicationControlFailed, match="does not accept our credentials"):
        told.look("checkout")
    assert api.tokens == ["Bearer let-me-in"] * 2
    for half_written in ("", api.kubeconfig[:40], json.dumps({"clusters": []})):
        environ["WATERSHED_SECRET_KUBECONFIG"] = half_written
        for _ in range(2):
            with pytest.raises(ApplicationControlFailed) as failed:
                told.look("checkout")
            assert failed.value.transient, half_written
    environ["WATERSHED_SECRET_KUBECONFIG"] = api.kubeconfig
    assert told.look("checkout").state == "running"


@pytest.mark.parametrize(
    ("reason", "words", "transient"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)",
         "no TLS with the API server (certificate verify failed: self-signed certificate); correct", False),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)", "(tlsv1 alert unknown ca)", True),
        ("EOF occurred in violation of protocol (_ssl.c:1006)", "no TLS with the API server (", True),
    ],
)  # fmt: skip
def test_tls_that_fails(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch, reason: str, words: str, transient: bool
) -> None:
    """As the official client reports it (kubernetes/client/rest.py): a status of 0, and the exception in two lines."""
    from kubernetes.client import AppsV1Api
    from kubernetes.client.exceptions import ApiException

    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise ApiException(status=0, reason=f"SSLError\n{reason}")

    monkeypatch.setattr(AppsV1Api, "read_namespaced_deployment", fail)
    with pytest.raises(ApplicationControlFailed) as failed:
        applications(api).look("checkout")
    assert words in str(failed.value)
    assert failed.value.transient is transient


@pytest.mark.parametrize("wrap", [lambda e: json.dumps({"extra": e}), lambda e: json.dumps({"extra": json.dumps(e)})])
def test_airflows_connection_serves(api: ApiServer, monkeypatch: pytest.MonkeyPatch, wrap: Any) -> None:
    control = replace(ENV, credentials=SecretRef("airflow_connection", "watershed_shop"))
    connection = wrap({"extra__kubernetes__kube_config": api.kubeconfig})
    assert applications(api, control, AIRFLOW_CONN_WATERSHED_SHOP=connection).look("checkout").state == "running"


def test_a_connection_as_an_address() -> None:
    assert parse_connection_extra("kubernetes://?in_cluster=True") == {"in_cluster": "True"}
    assert parse_connection_extra("kubernetes://?__extra__=%7B%22kube_config_path%22%3A%22/k%22%7D") == {
        "kube_config_path": "/k"
    }


def test_a_start_that_ended_between_two_patches_is_taken_back(api: ApiServer) -> None:
    """Two workloads had different servers then, and every further order was refused for that."""
    api.add("statefulset/ledger", 2, {"KAFKA": "o2:9092,old:9092"})
    told = applications(api, replace(ENV, workloads=("deployment/checkout", "statefulset/ledger")))
    former = told.look("checkout").former
    told.tell(order("stop", "onprem"))
    api.refuse[f"{APPS}/statefulsets/ledger"] = (500, "etcd is away")
    with pytest.raises(ApplicationControlFailed, match="etcd is away"):
        told.tell(order("start", "cloud", former))
    api.refuse.clear()
    api.workloads["deployment/checkout"]["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = "c1:9092"
    with pytest.raises(ApplicationControlFailed, match="different values"):  # no migration begins so
        told.look("checkout")
    assert told.tell(order("stop", "cloud")).state == "stopped"
    assert told.follow(order("stop", "cloud")).cluster is None
    seen = told.tell(order("start", "onprem", former))
    assert (seen.state, seen.cluster) == ("running", "onprem")
    for workload, replicas in (("deployment/checkout", 3), ("statefulset/ledger", 2)):
        assert (api.replicas(workload), api.variable(workload, "KAFKA")) == (replicas, "o2:9092,old:9092")


def test_workloads_whose_pods_would_keep_the_old_template_are_refused(api: ApiServer) -> None:
    api.add("statefulset/ledger", 2, {"KAFKA": "o2:9092"})
    ledger = replace(ENV, workloads=("statefulset/ledger",))
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    api.workloads["statefulset/ledger"]["spec"]["updateStrategy"] = rolling
    with pytest.raises(ApplicationControlFailed, match=r"ledger: `partition` of its rolling update is 1; make it 0"):
        applications(api, ledger).look("checkout")
    api.workloads["deployment/checkout"]["spec"]["paused"] = True
    with pytest.raises(ApplicationControlFailed, match=r"checkout: its rollout is paused \(`spec\.paused`\)") as failed:
        applications(api).look("checkout")
    assert not failed.value.transient
    api.config_maps["kafka"] = {"metadata": {"name": "kafka"}, "data": {"servers": "o1:9092"}}
    by_map = replace(ENV, env=None, config_map="kafka", key="servers")
    assert applications(api, by_map).look("checkout").state == "running"  # pods read it whatever template they have


def test_it_is_stopped_when_its_controller_has_seen_that(api: ApiServer) -> None:
    told = applications(api)
    told.tell(order("stop", "onprem"))
    api.workloads["deployment/checkout"]["metadata"]["generation"] += 1
    seen = told.follow(order("stop", "onprem"))
    assert (seen.state, seen.text) == ("stopping", "its controller has not seen the end of deployment/checkout")
    api.reconcile()
    assert told.follow(order("stop", "onprem")).state == "stopped"
