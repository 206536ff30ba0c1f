"""The chart of docker/chart, rendered by the lab's Helm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from watershed.lab.helm_program import CHART_FOLDER, is_helm_built, run_helm

EXAMPLES = CHART_FOLDER / "examples"
TOPOLOGY = EXAMPLES / "orders.yaml"
OWN_TOPOLOGY = ("keda",)  # examples whose topology is in a ConfigMap of the user's
NAMES = sorted(each.stem for each in EXAMPLES.glob("*.yaml") if each != TOPOLOGY)
NOT_BUILT = "Helm is not built here: python -m watershed.lab.helm_program build (needs go; minutes)"
RELEASE, NAMESPACE = "orders", "watershed"


def require_helm() -> None:
    """Skips where the program is not built: that takes longer than a test may."""
    if not is_helm_built():
        pytest.skip(NOT_BUILT)


def list_values(name: str) -> list[str]:
    """Helm's options for one of the examples."""
    topology = [] if name in OWN_TOPOLOGY else ["--set-file", f"topology.text={TOPOLOGY}"]
    return ["--namespace", NAMESPACE, "--values", str(EXAMPLES / f"{name}.yaml"), *topology]


def render_chart(home: Path, name: str, *options: str) -> list[dict[str, Any]]:
    """All objects of an example. Raises LabError with what Helm says."""
    text = run_helm(home, "template", RELEASE, str(CHART_FOLDER), *list_values(name), *options)
    return [each for each in yaml.safe_load_all(text) if each]


def select(items: list[dict[str, Any]], kind: str, name: str = "") -> list[dict[str, Any]]:
    return [each for each in items if each["kind"] == kind and name in ("", each["metadata"]["name"])]
