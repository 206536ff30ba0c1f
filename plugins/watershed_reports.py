"""Reports of proofs in Airflow's interface: the tab "Proof" of every DAG run, and what its links lead to.

Airflow protects no route of a plugin by itself: this one asks for a user who may read runs of the DAG, which has to be
one that Airflow knows by exactly this id. It serves one kind of file, `report.html`, from the folder of one run,
whatever a link says.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from clusters.private_files import read_file
from plugins.watershed_process import Detached
from plugins.watershed_spark import attempts
from plugins.watershed_standby import is_ordered
from plugins.watershed_state import file_name, run_folder, state_folder

REPORT = "report.html"
_PROVES = "spark.verify"
_LINES = 12  # of a running proof's log
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; "
    "base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_STYLE = """:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem;max-width:62rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid;border-radius:.3rem;padding:.8rem}"""


def proof(dag_id: str, run_id: str, task_id: str = "") -> Any:
    """The report of a run's proof: the newest attempt's. Several tasks with proofs are listed."""
    from fastapi.responses import HTMLResponse

    return HTMLResponse(_shown(dag_id, run_id, task_id), headers=_HEADERS)


def _shown(dag_id: str, run_id: str, task_id: str) -> str:
    from plugins.watershed_proof import report_path
    from spark.evidence.page.element import e

    tasks = _tasks(dag_id, run_id, task_id)
    if not tasks:
        return _page("No proof", e("p", "This run holds no proof, or none yet."))
    if len(tasks) > 1:
        named = [(task.name, report_path(dag_id, run_id, task.name).rpartition("/")[2]) for task in tasks]
        return _page("Proofs of this run", e("ul", [e("li", e("a", name, href=link)) for name, link in named]))
    newest = tries(tasks[0])[-1]
    report = newest.folder / REPORT
    if report.is_file() and _is_inside(report):
        return read_file(report).decode(errors="replace")
    if newest.alive():
        return _page("The proof runs", e("pre", newest.tail(_LINES)), again=True)
    return _page("No report", e("p", "The proof ended without one. Its last words:"), e("pre", newest.tail(_LINES)))


def _tasks(dag_id: str, run_id: str, task_id: str) -> list[Path]:
    """Folders of the tasks of one run that proved something, the oldest first."""
    run = run_folder(dag_id, run_id)
    found = [run / file_name(task_id)] if task_id else list(run.glob("*"))
    tried = [(task.stat().st_mtime_ns, task) for task in found if any(map(proves, tries(task)))]
    return [task for _, task in sorted(tried)]


def tries(task: Path) -> list[Detached]:
    """The attempts in folders of their own: neither they nor their logs are links."""
    return [each for each in attempts(task) if _is_inside(each.folder) and _is_inside(each.log)]


def _is_inside(path: Path) -> bool:
    """A link leads nowhere, not even to another run: its readers may be others."""
    return path.is_relative_to(state_folder() / "runs") and path.resolve() == path


def proves(program: Detached) -> bool:
    """Whether this program is a proof, or one was ordered of another that is."""
    if is_ordered(program):
        return True
    try:
        return bool(json.loads(read_file(program.folder / "process.json"))["module"] == _PROVES)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _page(title: str, *content: Any, again: bool = False) -> str:
    from spark.evidence.page.element import e, written

    style = e("style")
    style.text = _STYLE
    refresh = e("meta", http_equiv="refresh", content="5") if again else None
    head = e("head", e("meta", charset="utf-8"), refresh, e("title", title), style)
    return written(e("html", head, e("body", e("h1", title), content), lang="en"))


@cache
def _routes() -> Any:
    """Made for the first request: every process of Airflow loads this file, one of them serves pages."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag
    from fastapi import Depends, FastAPI

    from plugins.watershed_page_rights import one_known_dag

    routes = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    allowed = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
    dependencies = [allowed, Depends(one_known_dag)]
    routes.add_api_route("/proof", proof, methods=["GET"], dependencies=dependencies, response_model=None)
    return routes


async def app(scope: Any, receive: Any, send: Any) -> None:
    """What Airflow mounts at `/watershed`."""
    await _routes()(scope, receive, send)


class WatershedReports(AirflowPlugin):
    """The route, and the tab that shows it."""

    name = "watershed_reports"
    fastapi_apps = [{"app": app, "url_prefix": "/watershed", "name": "Watershed"}]  # noqa: RUF012 (Airflow's form)
    external_views = [  # noqa: RUF012
        {
            "name": "Proof",
            "href": "watershed/proof?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "proof",
        }
    ]
