"""Every fragment of the changelog is rendered, and a release takes them all."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "changelog.d"
BESIDE = {"README.md", "template.md.jinja"}
OLD = "## 0.1.0 (2026-11-28)"


def towncrier(root: Path, *words: str) -> str:
    command = [sys.executable, "-m", "towncrier", "build", "--version", "9.9.9", *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def find_words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def copy_changelog(to: Path) -> Path:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, to / name)
    shutil.copytree(FOLDER, to / "changelog.d")
    subprocess.run(["git", "-C", str(to), "init", "-q"], check=True)
    return to


def test_every_fragment_is_rendered(tmp_path: Path) -> None:
    """One whose name says no kind of change would be left out without a word."""
    rendered = " ".join(find_words(towncrier(copy_changelog(tmp_path), "--draft").replace("](", "](../")))
    for path in FOLDER.iterdir():
        if path.name not in BESIDE:
            assert " ".join(find_words(path.read_text())) in rendered, f"{path.name}: see changelog.d/README.md"
            assert path.name.split(".")[0].isdigit(), f"{path.name} does not begin with the number of an issue"


def test_a_release_takes_the_fragments(tmp_path: Path) -> None:
    root = copy_changelog(tmp_path)
    (root / "changelog.d" / "22.first.added.md").write_text("First ([there](../docs/a.md)).\nMore of\nit.\n")
    (root / "changelog.d" / "22.fixed.md").write_text("Mended.\n")
    towncrier(root, "--yes", "--date", "2026-12-24")
    assert {path.name for path in (root / "changelog.d").iterdir()} == BESIDE
    changes = (root / "CHANGELOG.md").read_text()
    begin, end = changes.index("## 9.9.9 (2026-12-24)"), changes.index(OLD)
    assert "\n- First ([there](docs/a.md)).\n\n  More of\n  it. (#22)\n" in changes[begin:end]
    assert "\n### Fixed\n\n" in changes[begin:end]
    assert "\n- Mended. (#22)\n" in changes[begin:end]
    assert changes.startswith("# Changes\n")


def test_links_of_the_changelog_lead_somewhere() -> None:
    for place in re.findall(r"\]\(([^)#:]+)[)#]", (ROOT / "CHANGELOG.md").read_text()):
        assert (ROOT / place).exists(), place
