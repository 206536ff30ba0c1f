"""Rules of Prometheus as plain data, and the two kinds of files that hold them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import yaml

AlertSeverity = Literal["critical", "warning"]
RuleFileFormat = Literal["prometheus", "operator"]
_KUBERNETES_NAME: Final = 253  # letters: a DNS subdomain name (RFC 1123)


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """record: the name of the series that `expression` becomes. labels: set on it."""

    record: str
    expression: str
    labels: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As in a rule file."""
        labels = {"labels": dict(self.labels)} if self.labels else {}
        return {"record": self.record, "expr": self.expression, **labels}


@dataclass(frozen=True, slots=True)
class AlertRule:
    """hold: how long the expression must be true before the alert fires, such as `30s`. severity: critical wakes
    somebody, warning waits for the day. summary and description: templates of Prometheus. section: the heading's anchor
    in docs/runbooks.md."""

    name: str
    expression: str
    hold: str
    severity: AlertSeverity
    summary: str
    description: str
    section: str
    topology: str
    runbooks: str

    def to_json(self) -> dict[str, Any]:
        """As in a rule file."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.hold,
            "labels": {"severity": self.severity, "topology": self.topology},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{self.runbooks}#{self.section}",
            },
        }


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """interval: between two evaluations, such as `2m`; "" for the server's own."""

    name: str
    rules: tuple[RecordingRule | AlertRule, ...]
    interval: str = ""

    def to_json(self) -> dict[str, Any]:
        """As in a rule file."""
        interval = {"interval": self.interval} if self.interval else {}
        return {"name": self.name, **interval, "rules": [rule.to_json() for rule in self.rules]}


def render_rule_file(groups: Sequence[RuleGroup], topology: str, form: RuleFileFormat) -> str:
    """A rule file of Prometheus, or a resource PrometheusRule of the Prometheus operator. topology: the file's name."""
    document: dict[str, Any] = {"groups": [group.to_json() for group in groups if group.rules]}
    if form == "operator":
        document = {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {
                "name": derive_resource_name(topology),
                "labels": {"app.kubernetes.io/name": "watershed"},
            },
            "spec": document,
        }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def derive_resource_name(topology: str) -> str:
    """A name that Kubernetes takes: lower case letters, digits, `-`."""
    return re.sub(r"[^a-z0-9]+", "-", f"watershed-{topology.lower()}")[:_KUBERNETES_NAME].strip("-")
