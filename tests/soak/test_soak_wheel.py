"""The demonstration from the wheel: no checkout, no PYTHONPATH, nothing but the pinned packages."""

from __future__ import annotations

from pathlib import Path

from tests.lab.installed import Installed
from watershed.lab.wheel import build_wheel


def test_a_migration_in_an_empty_folder(tmp_path: Path) -> None:
    """Two lab clusters, Airflow with its DAGs and page, the proof by Spark, consumers and producers moved."""
    installed = Installed(tmp_path, build_wheel(tmp_path), "airflow.txt")
    done = installed.run("python", "-m", "watershed.lab.demo", "run", "--records", 200_000)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "proven: nothing lost, nothing repeated" in done.stdout
    assert [each.name for each in installed.folder.iterdir()] == [".watershed"]
