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
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

    from tests.airflow.page_world import Manager
    from watershed.topology.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(tempfile.mkdtemp(prefix="watershed-airflow-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
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
    from watershed.plugins.detached_process import DetachedProcess

    folder = tmp_path / "state"
    monkeypatch.setenv("WATERSHED_STATE", str(folder))
    yield folder
    for record in folder.rglob("process.json"):
        DetachedProcess(record.parent).end(grace=1)


@pytest.fixture
def topologies(tmp_path: Path, state: Path, airflow_database: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Plan]:
    """Of the page: two topologies, whose clusters nobody asks."""
    from tests.airflow import page_world

    folder = tmp_path / "topologies"
    folder.mkdir()
    plans = [page_world.plan_in(folder, text(page_world.ADDRESS)) for text in (page_world.one, page_world.ten)]
    monkeypatch.setenv("WATERSHED_TOPOLOGIES", str(folder))
    return {plan.topology: plan for plan in plans}


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    """Who may what on the page."""
    from airflow.api_fastapi.core_api import security

    from tests.airflow.page_world import Manager

    found = Manager()
    monkeypatch.setattr(security, "get_auth_manager", lambda: found)
    return found


@pytest.fixture
def page(topologies: dict[str, Plan], manager: Manager, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The page for somebody who may look at everything."""
    from airflow.api_fastapi.core_api import security
    from fastapi.testclient import TestClient

    from tests.airflow.page_world import StillReaders, all_known
    from watershed.plugins.page import routes

    routes.build_page_app.cache_clear()
    app = routes.build_page_app()
    app.state.page.readers = StillReaders()
    app.dependency_overrides[security.get_user] = lambda: SimpleNamespace(get_id=lambda: "1", get_name=lambda: "a")
    monkeypatch.setattr("watershed.plugins.page.user_rights._known", all_known)
    yield TestClient(app)
    routes.build_page_app.cache_clear()
