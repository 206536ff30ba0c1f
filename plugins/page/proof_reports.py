"""Reports of proofs and evidence of runs in Airflow's interface: the tab "Proof" of every DAG run, and what links lead
to.

Airflow protects no route of a plugin by itself: these ask for a user who may read runs of the DAG, which has to be
one that Airflow knows by exactly this id. They serve a few files by name (`report.html`, `summary.json`,
EVIDENCE_FILES) from the folder of one run, whatever a link says.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from watershed.clusters.private_files import read_private_file
from watershed.plugins.detached_process import DetachedProcess, read_log_end
from watershed.plugins.operators.spark_application import list_attempts
from watershed.plugins.state_folder import locate_run_folder, locate_state_folder, make_file_name
from watershed.plugins.steps.standby_proof import is_proving, is_standby_attempt, locate_proof_log

PROOF_REPORT_FILE = "report.html"
PROOF_SUMMARY_FILE = "summary.json"
EVIDENCE_FILES = ("evidence.html", "evidence.json")
LONGEST_FOLDER_NAME = 255  # bytes of a file's name on the file systems of Linux and macOS
_PROOF_MODULE = "watershed.spark.verify"
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


def serve_proof_report(dag_id: str, run_id: str, task_id: str = "", download: str = "") -> Any:
    """The report of a run's proof: the newest attempt's. Several tasks with proofs are listed. download: the name of
    the file to send as a download, `report.html` or `summary.json`. Raises 404 for another file, or a missing one.
    """
    from fastapi.responses import HTMLResponse

    if not download:
        return HTMLResponse(_shown(dag_id, run_id, task_id), headers=_HEADERS)
    tasks = _tasks(dag_id, run_id, task_id)
    if download not in (PROOF_REPORT_FILE, PROOF_SUMMARY_FILE) or len(tasks) != 1:
        raise _missing()
    path = list_unlinked_attempts(tasks[0])[-1].folder / download
    return _send(path, f"proof.{make_file_name(run_id)}.{tasks[0].name}.{path.name}", as_download=True)


def serve_run_evidence(dag_id: str, run_id: str, wave: str, file: str, download: bool = False) -> Any:
    """A file of the evidence that a wave's run left. Raises 404 for what is not there."""
    if file not in EVIDENCE_FILES:
        raise _missing()
    if not can_be_folder(run_id) or not can_be_folder(wave):
        raise _missing()
    path = locate_run_folder(dag_id, run_id) / "evidence" / make_file_name(wave) / file
    return _send(path, f"{make_file_name(run_id)}.{make_file_name(wave)}.{file}", as_download=download)


def _send(path: Path, name: str, *, as_download: bool) -> Any:
    from fastapi.responses import Response

    if not path.is_file() or not is_inside_state(path):
        raise _missing()
    kind = "text/html; charset=utf-8" if path.suffix == ".html" else "application/json"
    how = "attachment" if as_download else "inline"
    ascii_name = name.encode("ascii", "replace").decode().replace("?", "_")
    headers = _HEADERS | {"Content-Disposition": f'{how}; filename="{ascii_name}"'}
    return Response(read_private_file(path), media_type=kind, headers=headers)


def _missing() -> Exception:
    from fastapi import HTTPException

    return HTTPException(404, "no such file", headers={"Cache-Control": "no-store"})


def _shown(dag_id: str, run_id: str, task_id: str) -> str:
    from watershed.plugins.operators.proof import build_report_path
    from watershed.spark.evidence.page.html_element import e

    tasks = _tasks(dag_id, run_id, task_id)
    if not tasks:
        return _page("No proof", e("p", "This run holds no proof, or none yet."))
    if len(tasks) > 1:
        named = [(task.name, build_report_path(dag_id, run_id, task.name).rpartition("/")[2]) for task in tasks]
        return _page("Proofs of this run", e("ul", [e("li", e("a", name, href=link)) for name, link in named]))
    newest = list_unlinked_attempts(tasks[0])[-1]
    report = newest.folder / PROOF_REPORT_FILE
    if report.is_file() and is_inside_state(report):
        return read_private_file(report).decode(errors="replace")
    log = locate_proof_log(newest)
    said = e("pre", read_log_end(log, _LINES) if is_inside_state(log) else "(no log)")
    if is_proving(newest):
        return _page("The proof runs", said, again=True)
    return _page("No report", e("p", "The proof ended without one. Its last words:"), said)


def _tasks(dag_id: str, run_id: str, task_id: str) -> list[Path]:
    """Folders of the tasks of one run that proved something, the oldest first."""
    if not can_be_folder(run_id) or not can_be_folder(task_id):
        return []
    run = locate_run_folder(dag_id, run_id)
    found = [run / make_file_name(task_id)] if task_id else list(run.glob("*"))
    tried = [
        (task.stat().st_mtime_ns, task) for task in found if any(map(is_proof_attempt, list_unlinked_attempts(task)))
    ]
    return [task for _, task in sorted(tried)]


def can_be_folder(name: str) -> bool:
    """Whether a file system takes the folder that is called after this run, wave or task."""
    return len(make_file_name(name).encode()) <= LONGEST_FOLDER_NAME


def list_unlinked_attempts(task: Path) -> list[DetachedProcess]:
    """The attempts in folders of their own: neither they nor their logs are links."""
    return [each for each in list_attempts(task) if is_inside_state(each.folder) and is_inside_state(each.log)]


def is_inside_state(path: Path) -> bool:
    """Whether the path is one of a run, and no link. A link leads nowhere, not even to another run: its readers may be
    others."""
    return path.is_relative_to(locate_state_folder() / "runs") and path.resolve() == path


def is_proof_attempt(program: DetachedProcess) -> bool:
    """Whether this program is a proof, or asked a waiting application for one."""
    if is_standby_attempt(program):
        return True
    try:
        return bool(json.loads(read_private_file(program.folder / "process.json"))["module"] == _PROOF_MODULE)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _page(title: str, *content: Any, again: bool = False) -> str:
    from watershed.spark.evidence.page.html_element import e, render_html

    style = e("style")
    style.text = _STYLE
    refresh = e("meta", http_equiv="refresh", content="5") if again else None
    head = e("head", e("meta", charset="utf-8"), refresh, e("title", title), style)
    return render_html(e("html", head, e("body", e("h1", title), content), lang="en"))


@cache
def _routes() -> Any:
    """Made for the first request: every process of Airflow loads this file, one of them serves pages."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag
    from fastapi import Depends, FastAPI

    from watershed.plugins.page.user_rights import require_one_known_dag

    routes = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    allowed = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
    dependencies = [allowed, Depends(require_one_known_dag)]
    for path, serve in (("/proof", serve_proof_report), ("/evidence", serve_run_evidence)):
        routes.add_api_route(path, serve, methods=["GET"], dependencies=dependencies, response_model=None)
    return routes


async def handle_report_request(scope: Any, receive: Any, send: Any) -> None:
    """What Airflow mounts at `/watershed`."""
    await _routes()(scope, receive, send)


class WatershedReports(AirflowPlugin):
    """The route, and the tab that shows it."""

    name = "watershed_reports"
    fastapi_apps = [{"app": handle_report_request, "url_prefix": "/watershed", "name": "Watershed"}]  # noqa: RUF012 (Airflow's form)
    external_views = [  # noqa: RUF012
        {
            "name": "Proof",
            "href": "watershed/proof?dag_id={DAG_ID}&run_id={RUN_ID}",
            "destination": "dag_run",
            "url_route": "proof",
        }
    ]
