"""An Airflow of its own for these tests: a temporary AIRFLOW_HOME, a fresh database, our DAG folder.

Airflow reads its environment when it is imported, so that it is set here, before any test module of the folder.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(tempfile.mkdtemp(prefix="watershed-airflow-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}?timeout=60",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    "WATERSHED_STATE": str(HOME / "state"),
    "PYTHONPATH": str(ROOT),
}
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="session")
def airflow_database() -> None:
    """A metadata database, for what cannot do without one."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh WATERSHED_STATE; programs that a test left running in it are ended."""
    from plugins.watershed_process import Detached

    folder = tmp_path / "state"
    monkeypatch.setenv("WATERSHED_STATE", str(folder))
    yield folder
    for record in folder.rglob("process.json"):
        Detached(record.parent).end(grace=1)
