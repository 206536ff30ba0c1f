"""What three releases of Kubernetes, KEDA and Prometheus' operator take: their own descriptions, out of Go modules.

lab/helm/documents.sum names the modules with their checksums, and the files. They are fetched once into the user's
cache.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from watershed.lab.errors import LabError, ToolMissing
from watershed.lab.fetched_programs import fetch_program_once, find_fetched_program

DOCUMENTS_PIN: Final = Path(__file__).with_name("helm") / "documents.sum"
_NAME: Final = "kubernetes-documents.json"
_FETCH_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class KubernetesDocuments:
    """releases: version (`v1.33.5`) → its OpenAPI document (Swagger 2.0). definitions: CustomResourceDefinitions of
    ScaledObject, ServiceMonitor and PrometheusRule."""

    releases: Mapping[str, dict[str, Any]]
    definitions: tuple[dict[str, Any], ...]


def has_kubernetes_documents(environ: Mapping[str, str] | None = None) -> bool:
    """Whether they are in the cache."""
    return find_fetched_program(_NAME, [DOCUMENTS_PIN], os.environ if environ is None else environ).exists()


def fetch_kubernetes_documents(environ: Mapping[str, str] | None = None) -> KubernetesDocuments:
    """The documents, fetched when they are not there yet: about 150 MB of modules, of which 12 MB are kept. Raises
    ToolMissing (no go), LabError where a module is another than was pinned."""
    environ = os.environ if environ is None else environ
    path = fetch_program_once(_NAME, [DOCUMENTS_PIN], environ, _write)
    found = json.loads(path.read_text())
    return KubernetesDocuments(found["releases"], tuple(found["definitions"]))


def _write(scratch: Path, environ: Mapping[str, str]) -> None:
    releases: dict[str, Any] = {}
    definitions: list[Any] = []
    for version, path in _fetch_files(environ):
        if path.suffix == ".json":
            releases[version] = json.loads(path.read_text())
        else:
            definitions.append(yaml.safe_load(path.read_text()))
    (scratch / _NAME).write_text(json.dumps({"releases": releases, "definitions": definitions}))


def _fetch_files(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """The version of its module, and where each file is."""
    go = shutil.which("go", path=environ.get("PATH", ""))
    if go is None:
        raise ToolMissing("go", "no go found", "Go 1.26 or newer fetches descriptions of Kubernetes; install it")
    for line in DOCUMENTS_PIN.read_text().splitlines():
        module, version, checksum, file = line.split()
        command = [go, "mod", "download", "-json", f"{module}@{version}"]
        told = {**environ, "GOFLAGS": "-mod=mod", "GOWORK": "off"}
        done = subprocess.run(command, env=told, capture_output=True, text=True, check=False, timeout=_FETCH_S)
        if done.returncode != 0:
            raise LabError(f"Go could not fetch {module} {version}:\n{(done.stderr or done.stdout).strip()}")
        fetched = json.loads(done.stdout)
        if fetched["Sum"] != checksum:
            raise LabError(f"{module} {version} is another than was pinned: {fetched['Sum']}, not {checksum}")
        yield version, Path(fetched["Dir"]) / file
