"""The wheel has everything that a command needs, takes one name, and works in an empty folder without this checkout."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.lab.installed import Installed
from watershed.lab.errors import LabError
from watershed.lab.wheel import build_wheel
from watershed.product_version import describe_product_version, find_commit

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(each.name for each in (ROOT / "watershed").iterdir() if each.is_symlink())
EXAMPLE = (ROOT / "topology" / "examples" / "active_standby.yaml").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("base"), wheel, "base.txt")


def list_product_files() -> set[str]:
    """What the rooms have, measurements left out."""
    paths = (path for room in ROOMS if room != "bench" for path in (ROOT / room).rglob("*"))
    kept = (path for path in paths if path.is_file() and "__pycache__" not in path.parts)
    return {f"watershed/{path.relative_to(ROOT)}" for path in kept}


def test_it_has_every_file_of_the_rooms_and_takes_one_name(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = ["__init__.py", "product_version.py", *(["build.json"] if find_commit(ROOT) else [])]
    assert inside == list_product_files() | {f"watershed/{name}" for name in package}


def test_airflow_finds_the_plugins(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [path] = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        said = archive.read(path).decode()
    assert "[airflow.plugins]" in said
    for line in filter(lambda line: "=" in line, said.splitlines()):
        module = line.partition("= ")[2].partition(":")[0]
        assert f"{module.replace('.', '/')}.py" in {*list_product_files()}, line


def test_a_file_is_linted_and_compiled_in_an_empty_folder(installed: Installed) -> None:
    (installed.folder / "orders.yaml").write_text(EXAMPLE)
    linted = installed.run("topology", "lint", "orders.yaml", "--format", "json")
    assert linted.returncode == 0, linted.stderr
    assert json.loads(linted.stdout)
    compiled = installed.run("topology", "compile", "orders.yaml")
    assert compiled.returncode == 0, compiled.stderr
    assert json.loads(compiled.stdout)["flows"]
    manual = installed.run("topology", "explain", "GRF201")
    assert (manual.returncode, "GRF201" in manual.stdout) == (0, True), manual.stderr


def test_it_names_the_commit_it_was_made_of(installed: Installed) -> None:
    told = installed.run("topology", "--version")
    assert (told.returncode, told.stdout) == (0, f"topology {describe_product_version()}\n"), told.stderr


def test_a_command_without_its_packages_says_which_extra_has_them(installed: Installed) -> None:
    refused = installed.run("topology", "lab", "up")
    assert refused.returncode == 2
    assert "watershed[kafka]" in refused.stderr


def test_no_name_of_a_room_is_taken(installed: Installed) -> None:
    asked = f"from importlib.util import find_spec; print([name for name in {ROOMS} if find_spec(name)])"
    assert installed.run("python", "-c", asked).stdout.strip() == "[]"


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="is no checkout of Watershed"):
        build_wheel(tmp_path, tmp_path)
