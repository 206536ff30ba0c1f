"""`make pictures`: the pictures of the page in docs/replication-page.md, from a running Airflow in a browser.

What they show is made up, as in the tests (`page_site`): no worker runs, and the hours of the charts are drawn here.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.airflow import conftest as airflow_home  # before Airflow: sets where it lives
from tests.airflow import page_world, ui
from tests.airflow.page_site import STATES, Site, open_site
from watershed.topology.plan import Plan

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_WAIT_MS = 120_000
_BODY = """**ops** is asked to decide: let the applications of orders be moved?

#### soak

| what | seen |
|---|---|
| consumer lag: billing | 8 |

#### tail proof

| what | seen |
|---|---|
| verdict | proven |
| unproven | 0 |
"""


def main(folder: Path) -> None:
    """Writes every picture into the folder."""
    from airflow.utils.db import initdb

    assert airflow_home.HOME.is_dir()
    initdb()
    page_world.EVIL = "lake"  # what the tests use as a cluster's text is no name that anybody has
    with TemporaryDirectory(prefix="watershed-pictures-") as home, open_site(Path(home)) as site, ui.browser() as shown:
        site.report(STATES)
        for name, draw in PICTURES.items():
            with _opened(site, shown) as page:
                draw(page, site)
                _save(page, folder / f"{name}.png")
                print(f"{folder / name}.png", flush=True)


def _draw_flows(page: Page, site: Site) -> None:
    _look(page, site, "topology=sites", 1120)
    _fill_charts(site.plans["sites"])
    page.reload()
    page.wait_for_selector(".chart .dashed")
    page.wait_for_selector(".cluster.silent")
    page.wait_for_selector(".arrow.state-running")


def _draw_flow(page: Page, site: Site) -> None:
    _look(page, site, "topology=sites&flow=hub-to-lake", 900)
    page.wait_for_selector("#detail .chart .dashed")


def _draw_decision(page: Page, site: Site) -> None:
    _look(page, site, "topology=sites", 820)
    page.click("[data-key^='alert target_foreign_write'] button.danger")
    page.wait_for_selector("#form[open]")


def _draw_form(page: Page, site: Site) -> None:
    _look(page, site, "topology=shop", 900)
    page.click("[data-dag=migrate__shop]")
    page.wait_for_selector("#form[open]")
    page.uncheck("#form input[value=invoices]")
    page.wait_for_selector(".preview:only-child")
    page.click(".preview summary")
    page.locator(".preview h3").evaluate("(element) => element.scrollIntoView({ block: 'start' })")


def _draw_hundred(page: Page, site: Site) -> None:
    _look(page, site, "topology=chain", 900)
    page.wait_for_selector(".arrow.state-source_expired")
    page.wait_for_selector(".arrow.state-reading", state="detached")


def _draw_migration(page: Page, site: Site) -> None:
    instance = {"id": "1", "dag_id": "migrate__shop", "dag_run_id": page_world.RUNS[1], "task_id": "orders.approval"}
    instance |= {"map_index": -1, "try_number": 1, "state": "awaiting_input"}  # type: ignore[dict-item]
    question = {"subject": "Fence the producers of orders?", "body": _BODY, "options": ["Approve", "Reject"]}
    asked: list[Any] = [question | {"task_instance": instance}]
    page.route("**/hitlDetails**", lambda route: route.fulfill(json={"hitl_details": asked, "total_entries": 1}))
    _look(page, site, "topology=shop&view=migrations", 1180)
    page.wait_for_selector(".question")


PICTURES = {
    "replication-flows": _draw_flows,
    "replication-flow": _draw_flow,
    "replication-decision": _draw_decision,
    "replication-form": _draw_form,
    "replication-hundred": _draw_hundred,
    "replication-migration": _draw_migration,
}


@contextmanager
def _opened(site: Site, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(color_scheme="light")
    context.set_default_timeout(_WAIT_MS)
    context.add_cookies([{"name": "_token", "value": site.token("ops"), "url": site.url}])
    yield context.new_page()
    context.close()


def _look(page: Page, site: Site, place: str, height: int) -> None:
    page.set_viewport_size({"width": 1360, "height": height})
    page.goto(f"{site.url}/replication/#{place}")
    page.wait_for_selector("main section")


def _fill_charts(plan: Plan) -> None:
    """Three hours, with a gap in which nobody read."""
    from watershed.plugins.page.lag_history import CHART_SLOT_S, LagSample
    from watershed.plugins.page.routes import build_page_app

    now = time.time()
    readers = build_page_app().state.page.readers._readers
    newest = [page_world.status_of(flow, at, 0, STATES.get(flow.id, "running")) for at, flow in enumerate(plan.flows)]
    for slot in [slot for slot in range(340) if not 215 < slot < 240]:
        wave = 1 + math.sin(slot / 23) / 3
        samples = {
            (plan.topology, status.flow): LagSample(
                int(2 * (status.lag_records or 0) * wave),
                int((status.lag_ms or 0) * wave),
                2 * status.rate_bytes * wave,
                round(2.3 * wave, 1),
                round(14 + 6 * math.sin(slot / 7), 1),
            )
            for status in newest
        }
        for cluster in plan.clusters:  # all are one broker here, whose control topics have all flows
            readers[cluster]._history.add(now - (340 - slot) * CHART_SLOT_S, samples)


def _save(page: Page, path: Path) -> None:
    """In 256 colours: a third of the bytes."""
    from io import BytesIO

    from PIL import Image

    page.wait_for_timeout(600)  # a round of reading, and no half drawn transition
    Image.open(BytesIO(page.screenshot())).convert("RGB").quantize(
        256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    ).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
