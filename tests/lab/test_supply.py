"""What is installed and fetched is pinned to the byte, and written down."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from watershed.lab.errors import LabError
from watershed.lab.helm_program import HELM_FOLDER
from watershed.lab.kubernetes_server import KUBERNETES_FOLDER
from watershed.lab.other_servers import KFAKE_FOLDER, TANSU_PIN
from watershed.lab.prometheus_server import PROMETHEUS_FOLDER
from watershed.lab.sbom import SBOM_ROOT, build_bill_of_materials

FILES = [*sorted((SBOM_ROOT / "requirements").glob("*.txt")), TANSU_PIN]


def entries(path: Path) -> list[str]:
    return path.read_text().replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_requirement_has_one_version_and_hashes(path: Path) -> None:
    assert entries(path)
    for entry in entries(path):
        assert re.match(r"[\w.\[\]-]+==[^ ;]+ ", entry), entry
        assert "--hash=sha256:" in entry, entry


@pytest.mark.parametrize("path", ["Makefile", "docker/Dockerfile"])
def test_hashes_are_asked_for_wherever_requirements_are_installed(path: str) -> None:
    commands = re.sub(r"\\\n", " ", (SBOM_ROOT / path).read_text()).splitlines()
    installing = [each for each in commands if re.search(r"pip (install|sync)\b.*requirements/", each)]
    assert installing
    for each in installing:
        assert "--require-hashes" in each, each


def test_the_bill_names_everything_with_its_hashes() -> None:
    found = {each["bom-ref"]: each for each in build_bill_of_materials()["components"]}
    pinned = {entry.split("==")[0] for path in FILES for entry in entries(path)}
    named = {each["name"] for ref, each in found.items() if ref.startswith("pkg:pypi/")}
    assert named == {re.sub(r"[-_.]+", "-", name).lower() for name in pinned}
    jars = {ref: each for ref, each in found.items() if ref.startswith("jar:")}
    for sums in (SBOM_ROOT / "lab").glob("*.sha256"):
        for line in sums.read_text().splitlines():
            checksum, name = line.split()
            assert jars[f"jar:{name}"]["hashes"] == [{"alg": "SHA-256", "content": checksum}]
    sums = [folder / "go.sum" for folder in (HELM_FOLDER, KFAKE_FOLDER, KUBERNETES_FOLDER, PROMETHEUS_FOLDER)]
    modules = [line.split()[:2] for path in sums for line in path.read_text().splitlines()]
    for name, version in modules:
        assert version.endswith("/go.mod") or found[f"pkg:golang/{name}@{version}"]["properties"]
    broker = next(each for each in jars.values() if each["name"] == "kafka_2.13")
    assert (broker["group"], broker["version"]) == ("org.apache.kafka", "4.3.1")
    assert build_bill_of_materials() == build_bill_of_materials()


def test_a_requirement_without_a_hash_is_no_bill(tmp_path: Path) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "base.txt").write_text("click==8.5.1\n")
    (tmp_path / "pyproject.toml").write_bytes((SBOM_ROOT / "pyproject.toml").read_bytes())
    with pytest.raises(LabError, match=r"click==8\.5\.1 has no hash"):
        build_bill_of_materials(tmp_path)
