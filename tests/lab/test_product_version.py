"""`topology --version` names release and commit: in a checkout, of a build, and where nobody knows it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from watershed import product_version
from watershed.cli.main import topology
from watershed.lab.wheel import write_build_record
from watershed.product_version import build_version_text, describe_product_version, find_commit, find_release

ROOT = Path(__file__).resolve().parents[2]
GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "watershed").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "watershed"\nversion = "7.8.9"\n')
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["tag", "v1"]):
        subprocess.run([*GIT, "-C", str(root), *command], check=True)
    return root


def test_a_checkout_asks_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))  # as in a hook of another repository
    assert find_commit(checkout) == head.stdout[:12]
    (checkout / "pyproject.toml").write_text('[project]\nname = "watershed"\nversion = "7.9.0"\n')
    assert find_commit(checkout) == f"{head.stdout[:12]}-dirty"
    assert find_release(checkout) == "7.9.0"


def test_a_build_tells_what_it_was_made_of(checkout: Path) -> None:
    write_build_record(checkout, "0123456789ab-dirty")
    assert find_commit(checkout) == "0123456789ab-dirty"
    assert build_version_text("7.8.9", find_commit(checkout)) == "7.8.9+0123456789ab.dirty"


def test_where_nobody_knows_the_commit_only_the_release_is_told(tmp_path: Path, checkout: Path) -> None:
    write_build_record(checkout, "")
    assert not (checkout / product_version.BUILD_FILE).exists()
    subprocess.run(["rm", "-rf", str(checkout / ".git")], check=True)
    assert build_version_text("7.8.9", find_commit(checkout)) == "7.8.9"


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"commit": '])
def test_a_damaged_record_is_no_error(checkout: Path, text: str) -> None:
    subprocess.run(["rm", "-rf", str(checkout / ".git")], check=True)
    (checkout / product_version.BUILD_FILE).write_text(text)
    assert find_commit(checkout) == ""


def test_git_that_is_not_there_or_does_not_answer_is_no_error(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert find_commit(checkout) == ""


def test_the_command_tells_it() -> None:
    told = CliRunner().invoke(topology, ["--version"])
    assert (told.exit_code, told.output) == (0, f"topology {describe_product_version()}\n")
    assert re.fullmatch(r"topology \d+\.\d+\.\d+(\.dev0)?(\+[0-9a-f]{12}(\.dirty)?)?\n", told.output)


def test_an_image_is_told_by_whoever_builds_it(tmp_path: Path) -> None:
    """The command of the Dockerfile, in a folder without git."""
    command = re.search(r"&& (if \[ -n \"\$COMMIT\" \].*?fi) ", (ROOT / "docker" / "Dockerfile").read_text())
    assert command is not None
    (tmp_path / "watershed").mkdir()
    for commit in ("", "0123456789ab"):
        subprocess.run(["sh", "-euc", command[1]], cwd=tmp_path, env={"COMMIT": commit}, check=True)
        assert find_commit(tmp_path) == commit
    assert json.loads((tmp_path / "watershed" / "build.json").read_text()) == {"commit": "0123456789ab"}
