"""Requests of the page "Replication": paths, parameters and ids, through the application that Airflow mounts.

An input is a path with its query, as it stands in a request's first line. A line behind it, where there is one, is an
id that `plugins.locate_state_folder` makes a folder of. Oracle: no answer of 500 and more, none that is not
closed to caches, no file from outside the page's folder, no folder outside the state's.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from tests.fuzz.target import OracleViolated, Target

_IDS = (
    "shop", "sites", "onprem-to-cloud", "manual__2026-11-22T00:00:00+00:00", "verify__shop", ".verify__hidden", "..",
    "../..", "a/b", "a%2fb", "", ".", "con", "a" * 300, "\x00", "\u202eshop", "ſhop", "shop\n", "*", "'", "\\..\\",
)  # fmt: skip
_PATHS = (
    "/", "/static/index.html", "/static/icon.svg", "/static/..%2froutes.py", "/static/%2e%2e/x", "/api/",
    "/api/topologies", "/api/flows?topology=shop", "/api/flows?topology=shop&only=orders", "/docs", "//", "/api/../",
    "/api/flow?topology=shop&flow=onprem-to-cloud&first=0", "/api/flow?topology=shop&flow=x&first=-1",
    "/api/flow?topology=shop&flow=onprem-to-cloud&first=99999999999999999999", "/api/migrations?topology=shop&run=r1",
    "/api/topics?topology=shop&only=orders&first=-3", "/api/groups?topology=shop&first=99999999999999999999",
    "/api/fleets?topology=shop", "/api/preview?topology=shop&what=migrate&waves=orders,x&strategy=fenced",
    "/api/flows?topology=shop&pair=onprem%20%E2%86%92%20cloud&first=7", "/api/preview?topology=shop&what=drill",
    "/api/proofs?topology=shop&run=manual__1", "/api/proofs?topology=shop&topology=sites", "/api/flows?topology[]=shop",
)  # fmt: skip
_WORDS = (
    *(
        "topology=",
        "flow=",
        "run=",
        "first=",
        "only=",
        "&",
        "?",
        "=",
        ";",
        "%2f",
        "%2e%2e",
        "%00",
        "%ff",
        "%",
        "+",
        "/",
    ),
    *("shop", "sites", "onprem-to-cloud", "/static/", "/api/flows", "/api/flow", "/api/proofs", "/api/migrations"),
)


class Refused(Exception):
    """An answer of 400 to 499 (the message says which)."""


def target() -> Target:
    home = Path(tempfile.mkdtemp(prefix="watershed-fuzz-airflow-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "WATERSHED_STATE": str(home / "state"),
        "WATERSHED_TOPOLOGIES": str(home / "topologies"),
    }
    (home / "topologies").mkdir()
    page = _Page(home)
    seeds = [f"{path}\n{word}".encode() for path in _PATHS for word in _IDS]
    seeds += [f"/api/flows?topology={quote(word)}&only={quote(word)}\nx".encode() for word in _IDS]
    return Target("queries", seeds, page.attempt, (Refused,), [word.encode() for word in _WORDS], longest=1 << 14)


class _Page:
    """The page for somebody who may look at everything, over clusters that nobody asks."""

    def __init__(self, home: Path) -> None:
        from airflow.api_fastapi.core_api import security
        from airflow.utils.db import initdb
        from fastapi.testclient import TestClient

        from tests.airflow import page_world
        from watershed.plugins.page import routes, user_rights

        initdb()
        plans = [page_world.plan_in(home / "topologies", page_world.one(page_world.ADDRESS))]
        plans.append(page_world.plan_in(home / "topologies", page_world.ten(page_world.ADDRESS)))
        page_world.proof_in(home / "state", "verify__shop", verdict="proven", unproven=0)
        app = routes.build_page_app()
        readers = page_world.StillReaders()
        for plan in plans:
            readers.seen |= page_world.everywhere(plan, page_world.seen(plan, {}))
        app.state.page.readers = readers
        app.dependency_overrides[security.get_user] = lambda: SimpleNamespace(get_id=lambda: "1", get_name=lambda: "a")
        manager: Any = page_world.Manager()
        security.get_auth_manager = lambda: manager
        user_rights._known = page_world.all_known  # type: ignore[assignment]
        self._client = TestClient(app)
        self._client.__enter__()
        self._state = home / "state"
        self._files = {path.read_bytes() for path in routes.PAGE_FILES.iterdir()}

    def attempt(self, data: bytes) -> str:
        line, _, word = data.decode("utf-8", "replace").partition("\n")
        folder = self._folder(word)
        answer = self._asked(line)
        told = f"{answer.status_code} {line.partition('?')[0][:12]} {folder}"
        if answer.status_code >= 500:
            raise OracleViolated(f"{line!r} is answered with {answer.status_code}: {answer.text[:200]}")
        if answer.status_code == 200 and "Content-Security-Policy" not in answer.headers:
            raise OracleViolated(f"{line!r} is answered without a policy")
        kind = answer.headers.get("content-type", "")
        if answer.status_code == 200 and not kind.startswith("application/json") and answer.content not in self._files:
            raise OracleViolated(f"{line!r} is answered with a file that is none of the page's")
        if answer.status_code >= 400:
            raise Refused(told)
        return told

    def _asked(self, line: str) -> Any:
        """As a server hands it on: the path decoded, the query as it is."""
        from starlette.testclient import httpx  # whichever of the two its client takes

        path = "/" + line.lstrip("/")[:16_000]
        try:
            url = httpx.URL("http://testserver" + path)
        except (httpx.InvalidURL, UnicodeError):
            url = httpx.URL("http://testserver" + quote(path, safe="/?&=%", errors="replace")[:16_000])
        return self._client.get(url, follow_redirects=False)

    def _folder(self, word: str) -> str:
        from watershed.plugins.state_folder import locate_run_folder

        try:
            found = locate_run_folder(word, word)
        except ValueError as error:  # its docstring says so
            return type(error).__name__
        if not Path(os.path.normpath(found)).is_relative_to(self._state) or "\0" in str(found):
            raise OracleViolated(f"the folder of {word!r} is {found}")
        return found.parent.name[:1]
