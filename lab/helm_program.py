"""Helm, which renders and installs the chart of docker/chart.

It is built once from lab/helm (Go modules, held to lab/helm/go.sum) into the user's cache:
`python -m watershed.lab.helm_program build`, which also fetches what tests hold the chart against
(lab/kubernetes_documents.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from watershed.lab.errors import LabError
from watershed.lab.fetched_programs import build_go_program, fetch_program_once, find_fetched_program
from watershed.lab.kubernetes_documents import fetch_kubernetes_documents

HELM_FOLDER: Final = Path(__file__).with_name("helm")
CHART_FOLDER: Final = Path(__file__).resolve().parents[1] / "docker" / "chart"
_PACKAGE: Final = "helm.sh/helm/v3/cmd/helm"
# The release of Kubernetes that Helm renders for where it asks none, as its own Makefile does it: that of client-go.
_CAPABILITIES: Final = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
_FLAGS: Final = f"-ldflags=-s -w -X {_CAPABILITIES}Major=1 -X {_CAPABILITIES}Minor=37"
_RUN_S: Final = 300.0


def is_helm_built(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the program is in the cache: a test does not begin to build it."""
    return find_fetched_program("helm", _list_pins(), os.environ if environ is None else environ).exists()


def fetch_helm(environ: Mapping[str, str] | None = None) -> Path:
    """The program, built when it is not there yet. Raises ToolMissing (no go), LabError."""
    return fetch_program_once("helm", _list_pins(), os.environ if environ is None else environ, _build)


def run_helm(home: Path, *arguments: str) -> str:
    """What `helm ARGUMENTS` prints. home: a folder for its cache and settings, so that those of the user are not read.
    Raises ToolMissing, LabError with what it says."""
    folders = {name: str(home / name.lower()) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    environ = {**os.environ, **folders, "KUBECONFIG": os.devnull}
    done = subprocess.run(
        [str(fetch_helm()), *arguments], env=environ, capture_output=True, text=True, check=False, timeout=_RUN_S
    )
    if done.returncode != 0:
        raise LabError(f"`helm {arguments[0]}` failed (exit {done.returncode}):\n{(done.stderr + done.stdout).strip()}")
    return done.stdout


def _list_pins() -> list[Path]:
    return [HELM_FOLDER / name for name in ("go.mod", "go.sum")]


def _build(scratch: Path, environ: Mapping[str, str]) -> None:
    build_go_program("helm", HELM_FOLDER, "Helm", scratch, environ, {}, (_FLAGS,), _PACKAGE)


if __name__ == "__main__":
    if sys.argv[1:] != ["build"]:
        sys.exit("usage: python -m watershed.lab.helm_program build")
    try:
        fetch_kubernetes_documents()
        click.echo(str(fetch_helm()))
    except LabError as error:
        sys.exit(f"lab: {error}")
