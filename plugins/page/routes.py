"""The page "Replication" of Airflow's interface, and the same page filtered on the tabs of a DAG and of a run.

Airflow protects no route of a plugin by itself: each of these asks for its user, and every answer about a topology for
the right to read the DAGs it is about (`plugins.page.user_rights`). Nothing here changes anything, and
nothing here reads from Kafka: threads follow the clusters while somebody looks
(`plugins.page.cluster_snapshots`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from fastapi import FastAPI

    from watershed.plugins.page.cluster_snapshots import ClusterSnapshot
    from watershed.plugins.page.user_rights import UserRights
    from watershed.plugins.topology_dags import TopologyFile
    from watershed.topology.flow_budgets import FlowBudgets
    from watershed.topology.plan import Plan

PAGE_URL_PREFIX = "/replication"
PAGE_FILES = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MAX_SAFE_INTEGER = 2**53 - 1  # what a browser's numbers hold
_MAX_NESTING = 20
_LONGEST_FILTER = 200  # letters
_RELIST_TOPOLOGIES_S = 5.0  # between two readings of the folder of topologies
_REREAD_RUNS_S = 1.5  # between two questions to Airflow's tables for the same DAGs
_KEPT_LISTS = 64  # of runs, by the DAGs that they are of
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_PRIVATE = _HEADERS | {"Cache-Control": "no-store"}


class ReplicationPage:
    """The routes; one object a process, made for the first request."""

    def __init__(self) -> None:
        from watershed.plugins.page.cluster_snapshots import ClusterReaders
        from watershed.plugins.page.file_budgets import FileBudgets

        self.readers = ClusterReaders()
        self._airflow: dict[tuple[tuple[str, ...], ...], tuple[float, dict[str, Any]]] = {}
        self._files: tuple[float, dict[str, TopologyFile]] = (float("-inf"), {})
        self._budgets = FileBudgets()

    def topologies(self, user: Any) -> dict[str, Any]:
        """The topologies that the user may see; `problem`: why one does not compile."""
        from watershed.plugins.page.user_rights import find_user_rights

        files = self.files()
        seen = sorted(name for name, found in find_user_rights(user, list(files)).items() if found.can_see_topology())
        return {"topologies": [{"name": name, "problem": files[name].problem} for name in seen]}

    def flows(
        self, user: Any, topology: str, only: str = "", *, pair: str = "", cluster: str = "", first: int = 0
    ) -> dict[str, Any]:
        """The flows of a topology from number `first` on, or those that hold `only`, with clusters and graph. cluster:
        its panel is open. Raises 404, 422."""
        from watershed.plugins.page.flow_rows import build_cluster_panel, build_flows_overview
        from watershed.topology.flow_budgets import add_budget_standings

        may, plan, seen = self.look_at_clusters(user, topology)
        now = time.time()
        told = build_flows_overview(plan, seen, now, only[:_LONGEST_FILTER], pair=pair, first=max(0, first))
        add_budget_standings(told["flows"], self.read_budgets(topology))
        told["cluster"] = build_cluster_panel(plan, seen, now, cluster) if cluster in seen else None
        return told | self.tell_user(may)

    def topics(self, user: Any, topology: str, only: str = "", first: int = 0) -> dict[str, Any]:
        """Topics of all flows from number `first` on, or those that hold `only`. Raises 404, 422."""
        from watershed.plugins.page.topic_rows import build_topics_page

        may, plan, seen = self.look_at_clusters(user, topology)
        told = build_topics_page(plan, seen, time.time(), only[:_LONGEST_FILTER], max(0, first))
        return {"topology": topology} | told | self.tell_user(may)

    def groups(self, user: Any, topology: str, only: str = "", first: int = 0) -> dict[str, Any]:
        """Consumer groups that flows carry, from number `first` on, or those that hold `only`. Raises 404, 422."""
        from watershed.plugins.page.topic_rows import build_groups_page

        may, plan, seen = self.look_at_clusters(user, topology)
        told = build_groups_page(plan, seen, only[:_LONGEST_FILTER], max(0, first))
        return {"topology": topology} | told | self.tell_user(may)

    def fleets(self, user: Any, topology: str) -> dict[str, Any]:
        """The workers of each target cluster. Raises 404, 422."""
        from watershed.plugins.page.fleet_rows import build_fleets_view

        may, plan, seen = self.look_at_clusters(user, topology)
        return build_fleets_view(plan, seen, time.time()) | self.tell_user(may)

    def preview(self, user: Any, topology: str, what: str, waves: str = "", strategy: str = "") -> dict[str, Any]:
        """What a run of `<what>__<topology>` would do; waves: their names, separated by commas. Raises 404, 422."""
        from watershed.plugins.page.run_preview import build_run_preview

        may, plan = self.seen(user, topology)
        if not may.can_see_runs(what):
            raise _missing(f"no {what} of {topology}")
        return build_run_preview(plan, what, [name for name in waves.split(",") if name], strategy)

    def look_at_clusters(self, user: Any, topology: str) -> tuple[UserRights, Plan, dict[str, ClusterSnapshot]]:
        """The same as `seen`, with the newest snapshot of every cluster, by alias."""
        may, plan = self.seen(user, topology)
        return may, plan, {cluster.alias: self.readers.look(cluster) for cluster in plan.clusters}

    def flow(self, user: Any, topology: str, flow: str, first: int = 0, only: str = "") -> dict[str, Any]:
        """One flow with its partitions from number `first` on, or those that hold `only`. Raises 404, 422."""
        from watershed.plugins.page.flow_rows import build_flow_detail
        from watershed.topology.errors import NotInPlan
        from watershed.topology.flow_budgets import add_budget_standings

        _, plan = self.seen(user, topology)
        try:
            found = plan.flow(flow)
        except NotInPlan:
            raise _missing(f"no flow {flow}") from None
        seen = {alias: self.readers.look(plan.cluster(alias)) for alias in (found.source, found.target)}
        told = build_flow_detail(found, plan, seen, time.time(), max(0, first), only[:_LONGEST_FILTER])
        return add_budget_standings([told], self.read_budgets(topology))[0]

    def migrations(self, user: Any, topology: str, run: str = "") -> dict[str, Any]:
        """The runs in the journal, and one of them (`run`, else the newest) step by step. Raises 404, 422."""
        from watershed.plugins.page.cluster_snapshots import JournalView
        from watershed.plugins.page.flow_rows import build_cluster_row
        from watershed.plugins.page.migration_rows import build_migrations_view

        may, plan = self.seen(user, topology)
        if plan.migration is None:
            return {"topology": topology, "declared": False} | self.tell_user(may)
        if not may.can_see_runs("migrate"):
            raise _missing(f"no migrations of {topology}")
        target = plan.cluster(plan.flow(plan.migration.flow).target)
        snapshot: ClusterSnapshot = self.readers.look(target)
        signed = plan.migration.journal is not None
        heard_ms = int((snapshot.answered_at or 0.0) * 1000)
        journal = snapshot.journals.get((topology, signed), JournalView())
        told = build_migrations_view(plan, journal, _plan_of, run, heard_ms)
        now = time.time()
        cluster = build_cluster_row(target.alias, snapshot, now)
        if told["run"] is not None:
            told["run"] |= _read_run_files(told["run"], told["runs"], may)
        return told | {"declared": True, "at": int(now * 1000), "cluster": cluster} | self.tell_user(may)

    def proofs(self, user: Any, topology: str, run: str = "") -> dict[str, Any]:
        """The newest proofs of the DAGs whose runs the user may read. Raises 404, 422."""
        from watershed.plugins.page.proof_rows import list_newest_proofs
        from watershed.plugins.page.user_rights import DAGS_WITH_PROOFS, read_run_ids

        may, _ = self.seen(user, topology)
        dags = may.readable(DAGS_WITH_PROOFS)
        found, known = list_newest_proofs(dags, run), read_run_ids(dags)
        for each in found:
            each["run_id"] = known.get((each["dag"], each["run"]))
        return {"topology": topology, "proofs": found} | self.tell_user(may)

    def seen(self, user: Any, topology: str) -> tuple[UserRights, Plan]:
        """Raises 404 alike for what is not there and for what this user may not see."""
        from watershed.plugins.page.user_rights import find_user_rights

        file = self.files().get(topology)
        may = find_user_rights(user, [topology])[topology]
        if not may.can_see_topology() or file is None:
            raise _missing(f"no topology {topology}")
        if file.plan is None:
            from fastapi import HTTPException

            raise HTTPException(422, file.problem, headers=_PRIVATE)
        return may, file.plan

    def tell_user(self, may: UserRights) -> dict[str, Any]:
        """Beside every view: what the user may start, which runs there are, who is waited for, and why the file does
        not compile any more (its report; what is shown is then of the last plan that did). Rights are asked
        every time; what Airflow's tables have is kept for a moment, for all who may see the same DAGs."""
        from watershed.plugins.page.airflow_runs import list_open_questions, list_recent_runs

        dags, asking = tuple(may.dags_with_runs()), tuple(may.dags_with_questions())
        read_at, found = self._airflow.get((dags, asking), (float("-inf"), {}))
        if time.monotonic() - read_at > _REREAD_RUNS_S:
            found = {"airflow": list_recent_runs(dags), "awaiting": list_open_questions(asking)}
            if len(self._airflow) >= _KEPT_LISTS:
                self._airflow = {}
            self._airflow[dags, asking] = (time.monotonic(), found)
        file = self.files().get(may.topology)
        return {"actions": may.actions(), "problem": (file.problem or None) if file else None, **found}

    def read_budgets(self, topology: str) -> Mapping[str, FlowBudgets]:
        """What the file promises, by flow; nothing where the file is gone."""
        file = self.files().get(topology)
        return {} if file is None else self._budgets.read(file)

    def files(self) -> dict[str, TopologyFile]:
        """The files by name, each with its plan, or why there is none."""
        from watershed.plugins.topology_dags import list_dag_topologies

        read_at, found = self._files
        if time.monotonic() - read_at > _RELIST_TOPOLOGIES_S:
            found = {file.name: file for file in list_dag_topologies()}
            self._files = (time.monotonic(), found)
        return found


def serve_page_file(name: str = "index.html") -> Any:
    """A file of the page. Only those that there are, whatever a link says."""
    from fastapi.responses import FileResponse

    if name not in {path.name for path in PAGE_FILES.iterdir()}:
        raise _missing("no such file")
    path = PAGE_FILES / name
    return FileResponse(path, media_type=_TYPES[path.suffix], headers=_HEADERS)


def _read_run_files(run: dict[str, Any], runs: list[dict[str, Any]], may: UserRights) -> dict[str, Any]:
    """What the DAG run of a timeline left in the state folder: evidence, proofs, and what its step sees now. The DAG's
    name stands in the journal, where others may write: it has to be one whose runs this user may read."""
    from watershed.plugins.page.proof_rows import list_newest_proofs
    from watershed.plugins.page.run_files import list_run_evidence, read_step_progress

    dag, dag_run = run["dag"], run["dag_run"]
    if not dag_run or dag not in may.dags_with_runs():
        return {"evidence": [], "proofs": [], "progress": None}
    # A step that has to wait before it begins says so, too: it is the next one then.
    now = next((step["name"] for step in run["steps"] if step["state"] == "under_way"), run["next"])
    progress = None
    if now is not None and may.can_see_logs(dag.partition("__")[0]):
        progress = read_step_progress(dag, dag_run, run["kind"], run["wave"], now)
    return {
        "evidence": list_run_evidence(dag, dag_run, [run, *runs]),
        "proofs": list_newest_proofs([dag], dag_run),
        "progress": progress,
    }


def _missing(what: str) -> Exception:
    from fastapi import HTTPException

    return HTTPException(404, what, headers=_PRIVATE)


def _plan_of(plan_hash: str) -> Plan | None:
    from watershed.plugins.state_folder import find_frozen_plan
    from watershed.topology.errors import UnreadablePlan

    try:
        return find_frozen_plan(plan_hash).read()
    except (OSError, UnreadablePlan):
        return None


def _visible(value: Any, depth: int = 0) -> Any:
    """A value that a browser shows as it is. Names and values come from clusters: invisible characters and those that
    change the reading direction become escapes, a number that JSON or a browser cannot hold becomes unknown, and what
    is nested too deeply is left out."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else _escaped(value)
    if isinstance(value, int | float):
        return value if abs(value) <= MAX_SAFE_INTEGER else None  # not a number is not below either
    if isinstance(value, dict | list | tuple) and depth >= _MAX_NESTING:
        return "…"
    if isinstance(value, dict):
        return {_escaped(str(key)): _visible(each, depth + 1) for key, each in value.items()}
    return [_visible(each, depth + 1) for each in value] if isinstance(value, list | tuple) else value


def _escaped(text: str) -> str:
    from watershed.topology.text_escaping import escape_control_lines

    return escape_control_lines(text)


@cache
def build_page_app() -> Any:
    """Made for the first request: every process of Airflow loads this file, one of them serves pages."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends, FastAPI
    from fastapi.responses import JSONResponse

    page = ReplicationPage()
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(get_user)])
    app.state.page = page

    # fmt: off
    app.get("/")(lambda: serve_page_file())
    app.get("/static/{name}")(lambda name: serve_page_file(name))
    # fmt: on

    def told(answer: dict[str, Any]) -> JSONResponse:
        return JSONResponse(_visible(answer), headers=_PRIVATE)

    _add_list_routes(app, page, told)
    _add_run_routes(app, page, told)
    return app


_Told = Callable[[dict[str, Any]], Any]


def _add_list_routes(app: FastAPI, page: ReplicationPage, told: _Told) -> None:
    """Topologies, flows, topics, groups and fleets."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends

    @app.get("/api/topologies")
    def topologies(user: Any = Depends(get_user)) -> Any:  # noqa: B008 (FastAPI's form)
        return told(page.topologies(user))

    @app.get("/api/flows")
    def flows(
        topology: str,
        only: str = "",
        pair: str = "",
        cluster: str = "",
        first: int = 0,
        user: Any = Depends(get_user),  # noqa: B008
    ) -> Any:
        return told(page.flows(user, topology, only, pair=pair, cluster=cluster, first=first))

    @app.get("/api/flow")
    def flow(
        topology: str,
        flow: str,
        first: int = 0,
        only: str = "",
        user: Any = Depends(get_user),  # noqa: B008
    ) -> Any:
        return told(page.flow(user, topology, flow, first, only))

    @app.get("/api/topics")
    def topics(topology: str, only: str = "", first: int = 0, user: Any = Depends(get_user)) -> Any:  # noqa: B008
        return told(page.topics(user, topology, only, first))

    @app.get("/api/groups")
    def groups(topology: str, only: str = "", first: int = 0, user: Any = Depends(get_user)) -> Any:  # noqa: B008
        return told(page.groups(user, topology, only, first))

    @app.get("/api/fleets")
    def fleets(topology: str, user: Any = Depends(get_user)) -> Any:  # noqa: B008
        return told(page.fleets(user, topology))


def _add_run_routes(app: FastAPI, page: ReplicationPage, told: _Told) -> None:
    """What runs would do and did."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends

    @app.get("/api/preview")
    def preview(
        topology: str,
        what: str,
        waves: str = "",
        strategy: str = "",
        user: Any = Depends(get_user),  # noqa: B008
    ) -> Any:
        return told(page.preview(user, topology, what, waves, strategy))

    @app.get("/api/migrations")
    def migrations(topology: str, run: str = "", user: Any = Depends(get_user)) -> Any:  # noqa: B008
        return told(page.migrations(user, topology, run))

    @app.get("/api/proofs")
    def proofs(topology: str, run: str = "", user: Any = Depends(get_user)) -> Any:  # noqa: B008
        return told(page.proofs(user, topology, run))


async def handle_page_request(scope: Any, receive: Any, send: Any) -> None:
    """What Airflow mounts at `/replication`."""
    await build_page_app()(scope, receive, send)


class WatershedPage(AirflowPlugin):
    """The routes, the entry of the navigation, and the two tabs."""

    name = "watershed_page"
    fastapi_apps = [{"app": handle_page_request, "url_prefix": PAGE_URL_PREFIX, "name": "Watershed Replication"}]  # noqa: RUF012 (Airflow's form)
    external_views = [  # noqa: RUF012
        {
            "name": "Replication",
            "href": "replication/",
            "destination": "nav",
            "nav_top_level": True,
            "url_route": "replication",
            "icon": "replication/static/icon.svg",
            "icon_dark_mode": "replication/static/icon-dark.svg",
        },
        {
            "name": "Replication",
            "href": "replication/?dag={DAG_ID}",
            "destination": "dag",
            "url_route": "replication-dag",
        },
        {
            "name": "Replication",
            "href": "replication/?dag={DAG_ID}&run={RUN_ID}",
            "destination": "dag_run",
            "url_route": "replication-run",
        },
    ]
