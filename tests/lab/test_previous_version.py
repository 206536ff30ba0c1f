"""Where the version before this one comes from: by its tag or by its commit, and what is said when neither is there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from watershed.lab.errors import LabError
from watershed.lab.previous_version import (
    PREVIOUS_RELEASE,
    InstalledRelease,
    Release,
    find_release_commit,
    has_packages_of,
    install_previous_release,
)


def git(checkout: Path, *words: str) -> str:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    told = os.environ | who | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", "-C", str(checkout), *words], env=told, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def history(tmp_path: Path) -> tuple[Path, Release]:
    """A repository with two commits, and the first as a release without a tag."""
    checkout = tmp_path / "checkout"
    (checkout / "requirements").mkdir(parents=True)
    git(checkout, "init", "--quiet")
    commits = []
    for content in ("one", "two"):
        for name in ("install", "dev"):
            (checkout / "requirements" / f"{name}.txt").write_text("pinned==1.0\n")
        (checkout / "what").write_text(content)
        git(checkout, "add", ".")
        git(checkout, "commit", "--quiet", "--message", content)
        commits.append(git(checkout, "rev-parse", "HEAD"))
    return checkout, Release("v0.0.9", commits[0])


def test_a_release_is_found_by_its_commit_and_by_its_tag(history: tuple[Path, Release]) -> None:
    checkout, release = history
    assert find_release_commit(release, checkout) == release.commit
    git(checkout, "tag", "--annotate", release.tag, release.commit, "--message", "a release")
    assert find_release_commit(release, checkout) == release.commit


def test_a_tag_that_names_something_else_is_refused(history: tuple[Path, Release]) -> None:
    checkout, release = history
    git(checkout, "tag", release.tag, "HEAD")
    with pytest.raises(LabError, match=r"names commit .* was released under it: fetch the tag anew"):
        find_release_commit(release, checkout)


def test_a_shallow_checkout_says_what_to_fetch(history: tuple[Path, Release], tmp_path: Path) -> None:
    checkout, release = history
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{checkout}", str(shallow))
    with pytest.raises(LabError, match="git fetch --tags --unshallow"):
        find_release_commit(release, shallow)
    git(shallow, "fetch", "--quiet", "--tags", "--unshallow")
    assert find_release_commit(release, shallow) == release.commit


def test_what_is_no_checkout_says_so(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="is no git checkout"):
        find_release_commit(PREVIOUS_RELEASE, tmp_path)


def test_it_is_unpacked_once_and_python_finds_nothing_else(
    history: tuple[Path, Release], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, release = history
    monkeypatch.setattr("watershed.lab.previous_version.PREVIOUS_RELEASE", release)
    environ = dict(os.environ) | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = install_previous_release(environ, checkout)
    assert (found.root / "what").read_text() == "one", "what is there now is another version"
    (found.root / "mark").touch()
    assert install_previous_release(environ, checkout) == found
    assert (found.root / "mark").exists()
    assert found.build_environ({"A": "b", "PYTHONPATH": "elsewhere", "PYTHONPYCACHEPREFIX": "here"}) == {
        "A": "b",
        "PYTHONPATH": str(found.root),
    }
    assert found.build_command("plan", "a.yaml")[-4:] == ["-m", "watershed.cli.main", "plan", "a.yaml"]
    assert isinstance(found, InstalledRelease)


def test_packages_are_shared_where_this_version_has_all_of_them(tmp_path: Path) -> None:
    older, newer = tmp_path / "older" / "requirements", tmp_path / "newer" / "requirements"
    pins = "one==1.0 \\\n    --hash=sha256:0\n", "one==1.0 \\\n    --hash=sha256:1\ntwo==2.0\n"
    for folder, text in zip((older, newer), pins, strict=True):
        folder.mkdir(parents=True)
        for name in ("install", "dev"):
            (folder / f"{name}.txt").write_text(text)
    assert has_packages_of(older.parent, newer.parent)
    assert not has_packages_of(newer.parent, older.parent)
    (newer / "dev.txt").write_text("one==1.1\n")
    assert not has_packages_of(older.parent, newer.parent)
