"""A bill of materials, in CycloneDX's JSON: Python packages, the jars of the POMs and Go modules, with their hashes.

`python -m watershed.lab.sbom FILE` writes it. It says what `make env` and `make jars` install, from the files that pin
that: two
runs on one checkout write the same bytes. A jar that a POM names itself has its group; of the others Maven knows it.
What only servers of the soak need (`lab.other_servers`, `lab.kubernetes_server`, `lab.prometheus_server`) is in it.
What an image has, the system's packages among it, is asked of the image: `lab.containers.image_bill`.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from watershed.lab import checksums
from watershed.lab.errors import LabError
from watershed.lab.jars import KAFKA_POM, name_checksum_file

SBOM_ROOT = Path(__file__).resolve().parents[1]
_PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^ ;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def build_bill_of_materials(root: Path = SBOM_ROOT) -> dict[str, Any]:
    """The document. Raises LabError when something pinned has no hash."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lab = root / KAFKA_POM.parent.name
    parts = (*_packages(root / "requirements"), *_packages(lab), *_jars(lab), *_all_go_modules(lab))
    found = {each["bom-ref"]: each for each in parts}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "watershed",
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [found[ref] for ref in sorted(found)],
    }


def _packages(folder: Path) -> Iterator[dict[str, Any]]:
    """A wheel for each platform has a hash of its own, so hashes stand with the distributions, not with the package."""
    for path in sorted(folder.glob("*.txt")):
        for entry in path.read_text().replace("\\\n", " ").splitlines():
            if not (pinned := _PINNED.match(entry)):
                continue
            name, version = re.sub(r"[-_.]+", "-", pinned[1]).lower(), pinned[2]
            hashes = sorted(set(_HASH.findall(entry)))
            if not hashes:
                raise LabError(f"{path}: {name}=={version} has no hash; `make requirements` writes them")
            purl = f"pkg:pypi/{name}@{version}"
            files = [{"type": "distribution", "hashes": describe_sha256(each), "url": purl} for each in hashes]
            yield describe_library(purl, name, version) | {"externalReferences": files}


def _all_go_modules(folder: Path) -> Iterator[dict[str, Any]]:
    for sums in sorted(folder.glob("*/go.sum")):
        yield from _go_modules(sums)


def _go_modules(sums: Path) -> Iterator[dict[str, Any]]:
    """The hash of a Go module is of its files' hashes (`h1:`), which CycloneDX has no name for: a property."""
    for line in sums.read_text().splitlines():
        name, version, checksum = line.split()
        if not version.endswith("/go.mod"):
            ref = f"pkg:golang/{name}@{version}"
            yield describe_library(ref, name, version) | {"properties": [{"name": "go.sum", "value": checksum}]}


def _jars(folder: Path) -> Iterator[dict[str, Any]]:
    """What lies in a fetched set, by file: a POM names a few artifacts, Maven resolves the rest."""
    for pom in sorted(folder.glob("*pom.xml")):
        named = _named(pom)
        for file, checksum in sorted(checksums.read_checksums(name_checksum_file(pom)).items()):
            group, name, version = _coordinates(file, named)
            yield describe_library(f"jar:{file}", name, version) | {"hashes": describe_sha256(checksum)} | group


def _named(pom: Path) -> dict[str, str]:
    """Group by artifact, of what a POM names itself."""
    spaces = {"m": "http://maven.apache.org/POM/4.0.0"}
    found = ElementTree.parse(pom).iterfind(".//m:dependency", spaces)  # noqa: S314 -- a file of ours
    return {each.findtext("m:artifactId", "", spaces): each.findtext("m:groupId", "", spaces) for each in found}


def _coordinates(file: str, named: dict[str, str]) -> tuple[dict[str, str], str, str]:
    stem = re.sub(r"\.(jar|tar\.gz)$", "", file)
    match = re.match(r"(.+?)-(\d[\w.]*(?:-\w[\w.]*)*)$", stem)
    name, version = (match[1], match[2]) if match else (stem, "")
    group = named.get(name)
    return ({"group": group} if group else {}), name, version


def describe_library(ref: str, name: str, version: str) -> dict[str, Any]:
    """A component, as CycloneDX has it. ref: its package URL, or another name that is its own in the document."""
    purl = {"purl": ref} if ref.startswith("pkg:") else {}
    return {"type": "library", "bom-ref": ref, "name": name, "version": version, **purl}


def describe_sha256(checksum: str) -> list[dict[str, str]]:
    """The `hashes` of a component. checksum: hexadecimal."""
    return [{"alg": "SHA-256", "content": checksum}]


if __name__ == "__main__":
    try:
        Path(sys.argv[1]).write_text(json.dumps(build_bill_of_materials(), indent=2) + "\n")
    except (LabError, IndexError) as error:
        sys.exit(f"sbom: {error}")
