"""How applications are declared: what is accepted becomes the plan, what is not clear is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from watershed.topology import compile_path
from watershed.topology.application_controls import (
    AirflowControl,
    HttpAuthentication,
    KubernetesControl,
    PlanApplication,
)
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.migration_waves import PlanMigration
from watershed.topology.secret_ref import SecretRef

HEAD = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: shop, owner: tests}
clusters:
  a: {bootstrap: ["127.0.0.1:1"], security: {protocol: PLAINTEXT}}
  b: {bootstrap: ["127.0.0.1:2"], security: {protocol: PLAINTEXT}}
flows:
  - {source: a, target: b, topics: {include: [orders]}}
  - {source: b, target: a, topics: {include: [orders]}, state: paused}
migration:
  flow: a-to-b
  applications:
"""
TAIL = """
  waves:
    - name: all
      topics: [orders]
      consumers: [billing]
      producers: [checkout]
      gates:
        before: [{lag: {max_records: 0, hold: 5m}}, {verify: {level: L1}}]
        after: [{stragglers: {watch: 6m}}]
      rollback: {until: 24h, reverse: b-to-a}
"""
KEY = SecretRef("env", "WATERSHED_SECRET_X")


def text(declared: str) -> str:
    return f"{HEAD}    checkout: {declared}{TAIL}"


def compiled(declared: str, folder: Path) -> PlanMigration:
    path = folder / "shop.yaml"
    path.write_text(text(declared))
    plan = compile_path(path)
    assert plan.migration is not None
    return plan.migration


def found(declared: str) -> list[tuple[str, str]]:
    result = lint_topology(parse_topology(text(declared)))
    return [(each.rule, each.message) for each in result.findings if each.severity == "error"]


@pytest.mark.parametrize(
    ("declared", "application"),
    [
        ("{}", PlanApplication()),
        ('{person: "call ann", timeout: 45m}', PlanApplication(person="call ann", timeout_ms=2_700_000)),
        (
            '{http: "https://x/y", authentication: {hmac: {env: WATERSHED_SECRET_X}}}',
            PlanApplication("https://x/y", authentication=HttpAuthentication(hmac=KEY)),
        ),
        (
            '{http: "https://x", authentication: {mtls: {certificate: {file: /c}, key: {file: /k}, ca: {file: /a}}}}',
            PlanApplication(
                "https://x",
                authentication=HttpAuthentication(
                    certificate=SecretRef("file", "/c"), key=SecretRef("file", "/k"), ca=SecretRef("file", "/a")
                ),
            ),
        ),
        ("{command: checkout-switch}", PlanApplication(command="checkout-switch")),
        (
            "{airflow: {stop: stop_it, start: start_it/go}}",
            PlanApplication(airflow=AirflowControl("stop_it", "start_it/go")),
        ),
        (
            "{kubernetes: {namespace: shop, workloads: [deployment/x, statefulset/x.y], context: prod, "
            "credentials: {env: WATERSHED_SECRET_X}, "
            'bootstrap: {env: KAFKA, container: app, values: {a: "old:1", b: "new:1"}}}}',
            PlanApplication(
                kubernetes=KubernetesControl(
                    "shop", ("deployment/x", "statefulset/x.y"), env="KAFKA", container="app",
                    values={"a": "old:1", "b": "new:1"}, credentials=KEY, context="prod",
                )
            ),
        ),
    ],
)  # fmt: skip
def test_what_is_declared_is_in_the_plan_and_comes_back_from_it(
    declared: str, application: PlanApplication, tmp_path: Path
) -> None:
    migration = compiled(declared, tmp_path)
    assert migration.applications["checkout"] == application
    assert PlanMigration.from_json(json.loads(json.dumps(migration.to_json()))) == migration


def test_a_file_from_before_there_were_other_ways_keeps_its_hash(tmp_path: Path) -> None:
    told = compiled('{http: "http://127.0.0.1:8081", client_id: checkout}', tmp_path).to_json()["applications"][
        "checkout"
    ]
    assert told == {"http": "http://127.0.0.1:8081", "principal": None, "client_id": "checkout"}


@pytest.mark.parametrize(
    ("declared", "rule", "words"),
    [
        ('{http: "https://x", command: switch}', "MIG828", "in 2 ways: http, command"),
        ("{person: x, authentication: {bearer: {env: X}}}", "MIG828", "no `http` that it would be sent to"),
        (
            "{kubernetes: {namespace: s, workloads: [deployment/x], bootstrap: {env: K, config_map: m, key: k}}}",
            "MIG828", "is not clear",
        ),
        ("{kubernetes: {namespace: s, workloads: [deployment/x], bootstrap: {config_map: m}}}", "MIG828", "not clear"),
        ("{kubernetes: {namespace: s, workloads: [deployment/x], bootstrap: {}}}", "MIG828", "is not clear"),
        (
            "{kubernetes: {namespace: s, workloads: [deployment/x], bootstrap: {env: K, values: {c: x}}}}",
            "MIG828", "`c`, which is no cluster",
        ),
        (
            "{kubernetes: {namespace: s, workloads: [deployment/x], bootstrap: {env: K}, context: c}}",
            "MIG828", "names no kubeconfig",
        ),
        ('{http: "http://x", authentication: {bearer: {env: X}}}', "MIG829", "a token over plain http"),
        (
            '{http: "http://127.0.0.1", authentication: {mtls: {certificate: {file: /c}, key: {file: /k}}}}',
            "MIG829", "a certificate over plain http",
        ),
        ("{kubernetes: {namespace: s, workloads: [pod/x], bootstrap: {env: K}}}", "SYN011", "`deployment/NAME`"),
        ("{kubernetes: {namespace: s, workloads: [], bootstrap: {env: K}}}", "SYN010", "at least one workload"),
        ("{command: /bin/sh}", "SYN011", "without a path"),
        ("{command: switch, timeout: 0s}", "SYN011", "nothing can be done in no time"),
        ("{airflow: {stop: a}}", "SYN012", "`start`"),
        ('{http: "https://x", authentication: {bearer: {env: X}, hmac: {env: X}}}', "SYN009", "exactly one of"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_refused(declared: str, rule: str, words: str) -> None:
    assert [message for code, message in found(declared) if code == rule and words in message], found(declared)


@pytest.mark.parametrize(
    "declared",
    [
        '{http: "http://127.0.0.1", authentication: {bearer: {env: X}}}',
        '{http: "http://switch.example.internal", authentication: {hmac: {env: X}}}',
        "{kubernetes: {namespace: s, workloads: [deployment/x], bootstrap: {config_map: m, key: k}}}",
    ],
)
def test_what_is_clear_is_not(declared: str) -> None:
    assert found(declared) == []
