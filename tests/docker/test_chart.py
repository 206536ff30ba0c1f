"""The chart: its values, what Helm makes of them, and what three releases of Kubernetes say to that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.docker.kubernetes_schemas import Place, can_pass, is_selected, list_problems
from tests.docker.rendered_chart import EXAMPLES, NAMES, NAMESPACE, TOPOLOGY, render_chart, require_helm, select
from watershed.lab.errors import LabError
from watershed.lab.helm_program import CHART_FOLDER, run_helm
from watershed.lab.kubernetes_documents import KubernetesDocuments, fetch_kubernetes_documents, has_kubernetes_documents

ROOT = CHART_FOLDER.parents[1]
VALUES: dict[str, Any] = yaml.safe_load((CHART_FOLDER / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART_FOLDER / "values.schema.json").read_text())

needs_helm = pytest.mark.soak


@pytest.fixture
def home(tmp_path: Path) -> Path:
    require_helm()
    return tmp_path


@pytest.fixture(scope="module")
def documents() -> KubernetesDocuments:
    if not has_kubernetes_documents():
        pytest.skip("descriptions of Kubernetes are not here: python -m watershed.lab.helm_program build (needs go)")
    return fetch_kubernetes_documents()


def containers(items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By name of their Deployment."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]["containers"][0]
        for each in select(items, "Deployment")
    }


def test_the_chart_has_the_projects_version() -> None:
    """Its own in Helm's way of writing; the images' as Python writes it."""
    chart = yaml.safe_load((CHART_FOLDER / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == project["version"]
    assert chart["version"] == project["version"].replace(".dev", "-dev.")


def test_the_values_have_every_key_of_their_schema() -> None:
    def walk(values: Any, schema: dict[str, Any], place: str) -> None:
        if schema.get("additionalProperties") is False:
            assert values.keys() == schema["properties"].keys() - {"global"}, place
            for key, value in values.items():
                walk(value, schema["properties"][key], f"{place}.{key}")

    Draft7Validator.check_schema(SCHEMA)
    assert not list(Draft7Validator(SCHEMA).iter_errors(VALUES))
    walk(VALUES, SCHEMA, "values")


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_are_values(name: str) -> None:
    assert not list(Draft7Validator(SCHEMA).iter_errors(yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())))


def test_a_secret_is_no_value() -> None:
    refused = Draft7Validator(SCHEMA)
    assert list(refused.iter_errors({"settings": {"WATERSHED_SECRET_CLOUD": "user:password"}}))
    assert list(
        refused.iter_errors({"secrets": {"env": [{"name": "WATERSHED_SECRET_CLOUD", "value": "user:password"}]}})
    )
    assert list(refused.iter_errors({"password": "x"}))


@needs_helm
def test_helm_finds_nothing_to_complain_of(home: Path) -> None:
    for name in NAMES:
        values = [f"--values={EXAMPLES / name}.yaml", f"--set-file=topology.text={TOPOLOGY}"]
        told = run_helm(home, "lint", "--strict", str(CHART_FOLDER), *(values[:1] if name == "keda" else values))
        assert "0 chart(s) failed" in told
        assert "WARNING" not in told


@needs_helm
@pytest.mark.parametrize("name", NAMES)
def test_three_releases_of_kubernetes_take_all_of_it(home: Path, documents: KubernetesDocuments, name: str) -> None:
    items = render_chart(home, name)
    for release in documents.releases:
        for each in items:
            assert list_problems(documents, release, each) == []
    broken = json.loads(json.dumps(select(items, "Deployment")[0]))
    broken["spec"]["template"]["spec"]["containers"][0]["readOnlyRootFileSystem"] = True
    assert list_problems(documents, "v1.33.5", broken)  # a key that is not there is seen


@needs_helm
def test_every_pod_is_restricted(home: Path) -> None:
    for name in NAMES:
        items = render_chart(home, name)
        for each in select(items, "Deployment"):
            pod = each["spec"]["template"]["spec"]
            [container] = pod["containers"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["runAsUser"] == 1000
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
            writable = [mount for mount in container["volumeMounts"] if not mount.get("readOnly")]
            assert [mount["mountPath"] for mount in writable] == ["/tmp"]
            assert container["resources"]["limits"]["memory"]
            labels = each["spec"]["template"]["metadata"]["labels"]
            assert is_selected(each["spec"]["selector"], labels)
            budgets = [b for b in select(items, "PodDisruptionBudget") if is_selected(b["spec"]["selector"], labels)]
            assert len(budgets) == (labels["app.kubernetes.io/component"] == "worker")


@needs_helm
def test_tokens_are_where_there_is_something_to_do_with_them(home: Path) -> None:
    items = render_chart(home, "full")
    tokens = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]["automountServiceAccountToken"]
        for each in select(items, "Deployment")
    }
    name = "orders-watershed"
    assert tokens == {
        f"{name}-cloud": False, f"{name}-onprem": False, f"{name}-exporter": False, f"{name}-console": True,
    }  # fmt: skip
    assert all(each["automountServiceAccountToken"] is False for each in select(items, "ServiceAccount"))
    alone = render_chart(home, "small", "--set", "console.enabled=true")
    assert not any(e["spec"]["template"]["spec"]["automountServiceAccountToken"] for e in select(alone, "Deployment"))


@needs_helm
def test_secrets_are_references_and_their_text_is_nowhere(home: Path) -> None:
    items = render_chart(home, "full")
    assert not select(items, "Secret")
    for container in containers(items).values():
        [reference] = [each for each in container["env"] if "valueFrom" in each]
        assert reference == {
            "name": "WATERSHED_SECRET_CLOUD", "valueFrom": {"secretKeyRef": {"name": "kafka-cloud", "key": "login"}},
        }  # fmt: skip
        assert {"name": "secret-cloud", "mountPath": "/run/secrets/watershed/cloud", "readOnly": True} in (
            container["volumeMounts"]
        )


@needs_helm
def test_the_topology_arrives_byte_for_byte(home: Path) -> None:
    found = [each for each in select(render_chart(home, "full"), "ConfigMap") if "topology.yaml" in each["data"]]
    assert {each["metadata"]["namespace"] for each in found} == {NAMESPACE, "airflow"}
    assert {each["data"]["topology.yaml"] for each in found} == {TOPOLOGY.read_text()}


@needs_helm
def test_alerts_and_dashboards_arrive_as_they_were_written(home: Path, tmp_path: Path) -> None:
    """Their own templates, `{{ $labels.target }}`, are Prometheus' and Grafana's."""
    items = render_chart(home, "full")
    written = yaml.safe_load(
        yaml.safe_load((EXAMPLES / "full.yaml").read_text())["monitoring"]["prometheusRule"]["text"]
    )
    assert select(items, "PrometheusRule")[0]["spec"] == written
    [dashboards] = [each for each in select(items, "ConfigMap") if "flow.json" in each["data"]]
    assert dashboards["data"]["flow.json"] == '{"title": "{{ flow }}"}'
    whole = tmp_path / "rule.yaml"
    whole.write_text(
        yaml.safe_dump({"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "spec": written})
    )
    again = render_chart(home, "full", "--set-file", f"monitoring.prometheusRule.text={whole}")
    assert select(again, "PrometheusRule") == select(items, "PrometheusRule")


@needs_helm
def test_what_topology_writes_goes_into_the_chart(home: Path, documents: KubernetesDocuments) -> None:
    topology = [sys.executable, "-m", "watershed.cli.main"]
    options, specs = ["--set=monitoring.prometheusRule.enabled=true"], []
    subprocess.run([*topology, "dashboards", "--out", home / "boards"], check=True)
    boards = sorted((home / "boards").glob("*.json"))
    options += [f"--set-file=monitoring.dashboards.texts.{each.stem}={each}" for each in boards]
    for form in ("prometheus", "operator"):
        rules = home / f"{form}.yaml"
        asked = [*topology, "alerts", TOPOLOGY, "--format", form]
        rules.write_text(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
        items = render_chart(home, "small", *options, f"--set-file=monitoring.prometheusRule.text={rules}")
        [rule] = select(items, "PrometheusRule")
        assert list_problems(documents, "v1.33.5", rule) == []
        specs.append(rule["spec"])
        [found] = [
            each["data"] for each in select(items, "ConfigMap") if each["metadata"]["name"].endswith("-dashboards")
        ]
        assert found == {each.name: each.read_text() for each in boards}
    assert specs[0] == specs[1]
    assert specs[0]["groups"]


@needs_helm
def test_workers_are_scraped_for_what_the_exporter_does_not_tell(home: Path) -> None:
    for more, kept in ((), {"exporter": False, "worker": True}), (("--set=exporter.enabled=false",), {"worker": False}):
        monitors = select(render_chart(home, "full", *more), "ServiceMonitor")
        found = {
            each["metadata"]["labels"]["app.kubernetes.io/component"]: "metricRelabelings"
            in each["spec"]["endpoints"][0]
            for each in monitors
        }
        assert found == kept


@needs_helm
def test_the_exporter_reads_the_evidence_of_proofs_where_a_claim_holds_it(home: Path) -> None:
    for options, claim in ((), "airflow-state"), (("--set=exporter.proofs.claim=",), None):
        [exporter] = select(render_chart(home, "full", *options), "Deployment", "orders-watershed-exporter")
        pod = exporter["spec"]["template"]["spec"]
        [container] = pod["containers"]
        claims = [each["persistentVolumeClaim"] for each in pod["volumes"] if each["name"] == "proofs"]
        mounts = [each for each in container["volumeMounts"] if each["name"] == "proofs"]
        assert claims == ([] if claim is None else [{"claimName": claim, "readOnly": True}])
        assert mounts == ([] if claim is None else [{"name": "proofs", "mountPath": "/proofs", "readOnly": True}])
        assert ("--proofs=/proofs" in container["command"]) == (claim is not None)


@needs_helm
def test_what_scales_is_not_counted_by_the_deployment(home: Path) -> None:
    full = render_chart(home, "full")
    replicas = {each["metadata"]["name"]: each["spec"].get("replicas") for each in select(full, "Deployment")}
    assert replicas["orders-watershed-cloud"] is None
    assert replicas["orders-watershed-onprem"] == 1
    [scaler] = select(full, "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == "orders-watershed-cloud"
    [scaled] = select(render_chart(home, "keda"), "ScaledObject")
    [trigger] = scaled["spec"]["triggers"]
    service = 'sum(watershed_flow_lag_records{namespace="watershed",job="orders-watershed-cloud"})'
    assert (trigger["metadata"]["query"], trigger["metadata"]["threshold"]) == (service, "100000")


@needs_helm
def test_a_worker_stops_in_good_order_and_is_probed_at_its_port(home: Path) -> None:
    items = render_chart(home, "full", "--set", "monitoring.port=9000")
    for each in select(items, "Deployment"):
        component = each["metadata"]["labels"]["app.kubernetes.io/component"]
        pod = each["spec"]["template"]["spec"]
        [container] = pod["containers"]
        if component == "worker":
            assert pod["terminationGracePeriodSeconds"] >= 60
            assert each["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        if component != "console":
            port = str(container["ports"][0]["containerPort"])
            assert any(word.endswith(f"=0.0.0.0:{port}") for word in container["command"])
            probes = {container[kind]["httpGet"]["path"] for kind in ("livenessProbe", "startupProbe")}
            assert probes == {"/health/live"}
            assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"


def list_places() -> dict[str, tuple[Place, set[int]]]:
    """Destinations of examples/full.yaml and near misses, with the ports that somebody may reach there."""
    return {
        "broker": (Place("10.1.2.3"), {9092, 9093}),
        "strimzi": (Place(namespace="kafka", labels={"strimzi.io/cluster": "cloud"}), {9093}),
        "other cluster": (Place(namespace="kafka", labels={"strimzi.io/cluster": "other"}), set()),
        "registry": (Place(namespace="registry"), {8081}),
        "login": (Place("10.9.9.9"), {443}),
        "api": (Place("10.0.0.1"), {443}),
        "metadata of the machine": (Place("169.254.169.254"), set()),
        "internet": (Place("93.184.216.34"), set()),
        "another pod": (Place(namespace="shop", labels={"app": "search"}), set()),
        "beside": (Place("10.2.0.1"), set()),
    }


@needs_helm
def test_nothing_is_reachable_but_what_the_values_name(home: Path) -> None:
    items = render_chart(home, "full")
    policies = select(items, "NetworkPolicy")
    nowhere = {"worker": {"api"}, "exporter": {"api", "registry"}, "console": set()}
    for each in select(items, "Deployment"):
        labels = each["spec"]["template"]["metadata"]["labels"]
        component = labels["app.kubernetes.io/component"]
        for name, (place, open_ports) in list_places().items():
            for port in (22, 53, 80, 443, 8081, 9092, 9093, 10250):
                expected = port in open_ports and name not in nowhere[component]
                assert can_pass(policies, labels, "egress", place, port) is expected, (component, name, port)
                assert not can_pass(policies, labels, "egress", place, port, "UDP"), (component, name, port)
        dns = Place(namespace="kube-system", labels={"k8s-app": "kube-dns"})
        for protocol in ("UDP", "TCP"):
            assert can_pass(policies, labels, "egress", dns, 53, protocol)
        assert not can_pass(policies, labels, "egress", Place(namespace="kube-system"), 53, "UDP")
        scraper = Place(namespace="monitoring", labels={"app.kubernetes.io/name": "prometheus"})
        assert can_pass(policies, labels, "ingress", scraper, "metrics") is (component != "console")
        for other in (Place(namespace="monitoring"), Place(namespace="shop"), Place("10.1.2.3")):
            assert not can_pass(policies, labels, "ingress", other, "metrics")


@needs_helm
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--set-file", "topology.text=/dev/null"], r"topology\.text is empty: add --set-file"),
        (["--set", "networkPolicy.brokers=null"], r"networkPolicy\.brokers is empty, so no pod could reach a broker"),
        (["--set", "workers.clod.replicas=1"], r"workers\.clod: the topology has no cluster.*cloud, onprem"),
        (["--set", "workers.cloud.replicass=1"], r"additional properties 'replicass' not allowed"),
        (["--set", "workers.cloud.autoscaling.kind=keda"], r"workers\.cloud: autoscaling by keda needs"),
        (["--set", "workers.cloud.autoscaling.min=9"], r"autoscaling\.min 9 is more than autoscaling\.max 4"),
        (["--set", "applications[0].namespace=shop,applications[0].deployments={a}"], "gives rights to nobody"),
        (["--set", "monitoring.prometheusRule.enabled=true"], r"prometheusRule\.text is empty: write it with"),
        (["--set-string", "monitoring.prometheusRule.text=a: 1", "--set", "monitoring.prometheusRule.enabled=true"],
         "has no groups of rules"),
        (["--set", "settings.WATERSHED_SECRET_CLOUD=x"], "WATERSHED_SECRET_CLOUD"),
        (["--set", "settings.AIRFLOW__CORE__FERNET_KEY=x"], "AIRFLOW__CORE__FERNET_KEY"),
        (["--set", "workers.console.target=cloud"], r"workers\.console: the chart has an object of this name"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_before_anything_is_installed(
    home: Path, options: list[str], complaint: str
) -> None:
    with pytest.raises(LabError) as refused:
        render_chart(home, "small", *options)
    assert re.search(complaint, str(refused.value), re.DOTALL), refused.value
