"""The page with Airflow's own tables of DAGs, bundles and teams: what it does not know belongs to nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow.api.common.delete_dag import delete_dag
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.team import Team
from airflow.utils.session import create_session
from fastapi.testclient import TestClient
from sqlalchemy import delete, select, update

from tests.airflow.page_world import Manager, asked
from watershed.plugins.page import user_rights

pytestmark = pytest.mark.airflow
KNOWN = user_rights._known  # before the page's fixture replaces it
BUNDLE, TEAM = "blue-bundle", "blue"
PATHS = ("flows", "flow", "migrations", "proofs")


@pytest.fixture
def blue(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The DAGs of `sites` are nobody's, and known; those of `shop` are the blue team's, or will be."""
    monkeypatch.setattr("watershed.plugins.page.user_rights._known", KNOWN)
    _forget_all()  # tests with a browser leave theirs in the database of this process
    with create_session() as session:
        team, bundle = Team(name=TEAM), DagBundleModel(name=BUNDLE)
        bundle.teams.append(team)
        session.add_all([team, bundle, DagBundleModel(name="bundle-of-all")])
    yield
    _forget_all()
    with create_session() as session:
        bundle = session.get(DagBundleModel, BUNDLE)
        assert bundle is not None
        bundle.teams.clear()
        session.flush()
        session.execute(delete(DagBundleModel).where(DagBundleModel.name.in_([BUNDLE, "bundle-of-all"])))
        session.execute(delete(Team).where(Team.name == TEAM))


def _forget_all() -> None:
    with create_session() as session:
        found = session.scalars(select(DagModel.dag_id)).all()
    for dag_id in found:
        delete_dag(dag_id)


class OfTeams(Manager):
    """As Airflow's own with several teams: a DAG of no team is for everybody."""

    def __init__(self, team: str) -> None:
        super().__init__()
        self.team = team

    def is_authorized_dag(self, *, method: str, details: Any, **about: Any) -> bool:
        mine = details.team_name in (None, self.team)
        return mine and super().is_authorized_dag(method=method, details=details, **about)


def known(dag_id: str, bundle: str) -> None:
    with create_session() as session:
        session.add(
            DagModel(dag_id=dag_id, bundle_name=bundle, fileloc="a.py", relative_fileloc="a.py", is_stale=False)
        )


def names(page: TestClient) -> list[str]:
    return [each["name"] for each in asked(page, "topologies")["topologies"]]


def user_of(team: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.api_fastapi.core_api import security

    monkeypatch.setattr(security, "get_auth_manager", lambda: OfTeams(team))


def test_what_airflow_does_not_know_is_seen_by_nobody(
    page: TestClient, blue: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known("replicate__sites", "bundle-of-all")
    for team in ("red", TEAM):
        user_of(team, monkeypatch)
        assert names(page) == ["sites"]
        for path in PATHS:
            assert page.get(f"/api/{path}", params={"topology": "shop", "flow": "onprem-to-cloud"}).status_code == 404


def test_a_stale_dag_is_its_teams_still_and_does_nothing(
    page: TestClient, blue: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    known("replicate__shop", BUNDLE)
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == "replicate__shop").values(is_stale=True))
    user_of("red", monkeypatch)
    assert names(page) == []
    for path in PATHS:
        assert page.get(f"/api/{path}", params={"topology": "shop", "flow": "onprem-to-cloud"}).status_code == 404
    user_of(TEAM, monkeypatch)
    assert names(page) == ["shop"]
    assert asked(page, "flows", topology="shop")["actions"] == []
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == "replicate__shop").values(is_stale=False))
    assert [each["what"] for each in asked(page, "flows", topology="shop")["actions"]] == ["replicate"]
    assert user_rights.is_known_dag("replicate__shop")
    assert not user_rights.is_known_dag(".replicate__shop")
