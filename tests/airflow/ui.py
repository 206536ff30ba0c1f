"""Airflow's api-server in this process, with its whole interface, and a browser before it: what the page is tested in.

The database is the one of these tests (conftest.py). No scheduler runs: what a page starts stays queued.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from watershed.lab.free_ports import find_free_ports

if TYPE_CHECKING:
    from playwright.sync_api import Browser

USERS = {"admin": "admin", "ops": "op", "view": "viewer"}  # the password is the user's name
WITHOUT = "no browser: the page is tested without one (rights and answers only); Debian: apt-get install chromium"
# Debian's Chromium in a closed network, as root: without these it looks for Google's hosts and its own sandbox.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@cache
def chromium() -> str | None:
    """Where a browser is that runs: some distributions have a program of that name that only says how to get one."""
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name)) and _runs(found)), None)


def _runs(program: str) -> bool:
    try:
        return subprocess.run([program, "--version"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def browser() -> Iterator[Browser]:
    """Headless Chromium. Playwright drives it and brings none of its own (docs/decisions/0042)."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield running
        finally:
            running.close()


@contextmanager
def served(home: Path) -> Iterator[str]:
    """Airflow's address. The database must be there; DAGs are those that `parsed` has put into it."""
    import uvicorn
    from airflow.api_fastapi.app import create_app, purge_cached_app

    from watershed.plugins.page.routes import build_page_app

    passwords = home / "passwords.json"
    passwords.write_text(json.dumps({name: name for name in USERS}))
    before = dict(os.environ)
    os.environ |= {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of these tests, which is long enough for the algorithm " * 2,
    }
    purge_cached_app()
    [port] = find_free_ports(1)  # none that another process may get for a connection while the server is made
    server = uvicorn.Server(uvicorn.Config(create_app(apps="core"), "127.0.0.1", port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            thread.join(0.05)
            if not thread.is_alive():
                raise RuntimeError("Airflow's api-server did not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        build_page_app().state.page.readers.stop()  # they would ask the clusters of these tests to the end of the run
        build_page_app.cache_clear()
        purge_cached_app()
        os.environ.clear()
        os.environ.update(before)


def parsed(dags: Path) -> None:
    """What the dag-processor would do: the DAGs of the folder into the database."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(DagBag(dag_folder=str(dags)), "dags-folder", None)
