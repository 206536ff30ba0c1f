"""The page Replication as a person sees it: headless Chromium, Airflow's own interface around it, a real cluster.

What workers and migrations write to the cluster is written here (`page_world`), so that every state can be seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow import page_world, ui
from tests.airflow.axe import find_barriers
from tests.airflow.page_site import STATES, Site, open_site
from watershed.clusters.control_topics import ControlWriter
from watershed.clusters.partition_status_records import PartitionStatus, write_partition_status

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Frame, Page

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the first one waits for a broker, Airflow and Chromium
    pytest.mark.skipif(ui.chromium() is None, reason=ui.WITHOUT),
]
WAIT_MS = 120_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, airflow_database: None) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("WATERSHED_TOPOLOGIES", "WATERSHED_STATE"):
            patch.setenv(name, "")  # so that it is afterwards what it was
        with open_site(tmp_path_factory.mktemp("page")) as opened:
            yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with ui.browser() as running:
        yield running


Open = Callable[..., "Page"]


@pytest.fixture
def look(site: Site, browser: Browser) -> Iterator[Open]:
    """Opens a page for a user; afterwards: no script failed, nothing was blocked, nothing came from elsewhere."""
    wrong: list[str] = []
    contexts = []
    site.report(STATES)

    def look(path: str, user: str = "view", scheme: str = "light", **options: Any) -> Page:
        context = browser.new_context(viewport={"width": 1360, "height": 860}, color_scheme=scheme, **options)  # type: ignore[arg-type]
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        if user:
            context.add_cookies([{"name": "_token", "value": site.token(user), "url": site.url}])
        page = context.new_page()
        page.on("dialog", lambda dialog: wrong.append(f"a dialog: {dialog.message}"))
        page.on("console", lambda told: wrong.append(told.text) if _is_ours(told) else None)
        here = (site.url, f"blob:{site.url}")  # Airflow's own editor makes its worker of a blob
        page.on("request", lambda asked: None if asked.url.startswith(here) else wrong.append(asked.url))
        if path.startswith("/replication"):
            page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(site.url + path)
        return page

    yield look
    for context in contexts:
        context.unroute_all(behavior="ignoreErrors")  # an answer that is under way fails no later test
        for page in context.pages:
            page.unroute_all(behavior="ignoreErrors")
        context.close()
    assert wrong == []


def until(page: Page | Frame, expression: str) -> None:
    """Wait for it to be true. Playwright's own way of it evaluates a text in the page, which the policy forbids."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(50)


def _is_ours(told: ConsoleMessage) -> bool:
    """An error (what the policy blocked is one) of this page, not of Airflow's own around it."""
    return told.type == "error" and "/replication/" in str(told.location.get("url"))


def test_flows_with_their_states_and_what_to_do(look: Open) -> None:
    page = look("/replication/#topology=sites")
    page.wait_for_selector(".arrow.state-target_foreign_write")
    label = page.locator("[data-key='arrow hub-to-lake']").get_attribute("aria-label") or ""
    assert "target foreign write" in label
    assert "lag" in label
    page.wait_for_selector(".cluster.silent")  # archive: nobody listens there
    page.wait_for_selector(".arrow.state-running")
    assert page.locator(".arrow").count() == 10
    assert "Connection refused" in page.locator("[data-key='silent archive']").inner_text()
    page.click("[data-key='open hub-to-lake']")
    page.wait_for_selector("#detail .problems")
    detail = page.locator("#detail").inner_text()
    assert page_world.EVIL in detail
    assert "topology flow reseed hub-to-lake" in detail
    assert "slo.lag.max 10 s: exceeded by 11 s" in detail
    assert "slo.rpo 60 min: 99% left" in detail
    assert "exceeded by 11 s" in page.locator("[data-key='row hub-to-lake']").inner_text()
    assert "% left" in page.locator("[data-key='row berlin-to-hub-orders']").inner_text()
    assert page.locator("img").count() == 0
    assert find_barriers(page) == []
    page.keyboard.press("Escape")
    page.click("#tab-topics")
    page.wait_for_selector("[data-key^='topic ']")
    assert "berlin.orders" in page.locator("main").inner_text()
    page.fill("#only", "target_foreign_write")
    until(page, "document.querySelectorAll(\"[data-key^='topic ']\").length === 1")
    assert find_barriers(page) == []
    place = page.url
    page.reload()  # where one is stands in the address
    page.wait_for_selector("[data-key^='topic ']")
    assert (page.url, page.input_value("#only")) == (place, "target_foreign_write")
    page.click("#tab-fleets")
    page.wait_for_selector("[data-key='fleet hub']")
    assert find_barriers(page) == []
    page.go_back()
    page.wait_for_selector("#tab-topics[aria-selected=true]")


def test_what_changes_is_seen_without_a_hand(look: Open, site: Site) -> None:
    page = look("/replication/#topology=shop")
    page.wait_for_selector(".arrow.state-running")
    [flow] = site.plans["shop"].flows
    told = PartitionStatus(
        flow.id,
        "clicks",
        "dc.clicks",
        0,
        "catching_up",
        1,
        424_243,
        1,
        424_242,
        at_ms=int(time.time() * 1000) + page_world.LATER_MS,
    )
    with ControlWriter(site.settings) as writer:
        write_partition_status(writer, told)
    page.wait_for_selector(".arrow.state-catching_up")
    until(page, "document.querySelector('svg .numbers').textContent.includes('424')")


def test_the_keyboard_is_enough(look: Open) -> None:
    page = look("/replication/#topology=sites")
    page.wait_for_selector(".arrow.state-running")
    focused = "document.activeElement.dataset.key || document.activeElement.id"
    page.focus("svg g[tabindex='0']")
    seen = [page.evaluate(focused)]
    for _ in range(16):
        page.keyboard.press("ArrowRight")
        seen.append(page.evaluate(focused))
    assert len(set(seen)) == 17  # ten flows, seven clusters
    page.keyboard.press("Home")
    assert page.evaluate("getComputedStyle(document.activeElement.querySelector('.way')).strokeWidth") == "5px"
    before = seen[0]
    page.wait_for_timeout(4_500)  # two rounds of reading: the focus stays
    assert page.evaluate(focused) == before
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail:not([hidden])")
    until(page, f"({focused}) === 'detail-title'")
    inside = "document.activeElement.closest('#detail') !== null"
    for key in ("Tab", "Tab", "Tab", "Shift+Tab", "Shift+Tab"):  # never behind the panel
        page.keyboard.press(key)
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    page.wait_for_selector("#detail", state="hidden")
    assert page.evaluate(focused) == before
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")
    assert "barrier" in page.locator("#help").inner_text()
    assert find_barriers(page) == []
    page.keyboard.press("Escape")
    page.wait_for_selector("#help", state="hidden")
    page.focus("#tab-flows")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tab-migrations[aria-selected=true]")


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_hundred_flows_are_legible(look: Open, scheme: str) -> None:
    """No label lies on another, and text stands out from its ground (WCAG 1.4.3: 4.5 to 1)."""
    page = look("/replication/#topology=chain", scheme=scheme)
    page.wait_for_selector(".arrow.state-source_expired")
    assert page.locator(".arrow").count() == 100
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # only the graph's own frame scrolls
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(FAINT) == []
    assert find_barriers(page) == []
    assert page.locator("tr[data-key^='row ']").count() == 50
    page.click("[data-act=more]:not([disabled])")
    until(page, "document.querySelector('.pager').textContent.includes('51 to 100 of 100')")
    page.set_viewport_size({"width": 680, "height": 430})  # as at 200 % on a small screen
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1360, "height": 860})
    page.click("[data-act=attention]")
    until(page, "document.querySelectorAll('.arrow').length < 60")
    assert page.locator("[data-key='row shop-07-to-hub']").count() == 1


OVERLAPS = """() => {
  const texts = [...document.querySelectorAll('svg.graph text')].map((e) => [e.textContent, e.getBoundingClientRect()]);
  const found = [];
  texts.forEach(([one, a], at) => texts.slice(at + 1).forEach(([other, b]) => {
    const beside = a.left >= b.right - 1 || b.left >= a.right - 1;
    if (!beside && a.top < b.bottom - 2.5 && b.top < a.bottom - 2.5) found.push([one, other]);
  }));
  return found;
}"""
FAINT = """() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/rgba\\(0, 0, 0, 0\\)|transparent/.test(colour)) return colour;
    }
    return getComputedStyle(document.body).backgroundColor;
  };
  const found = [];
  for (const element of document.querySelectorAll('main *')) {
    const own = [...element.childNodes].some((each) => each.nodeType === 3 && each.nodeValue.trim());
    if (!own || element.closest('title,[disabled],[aria-disabled=true]')) continue;
    const style = getComputedStyle(element);
    const [one, other] = [light(element.closest('svg') ? style.fill : style.color), light(ground(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) found.push([element.textContent, ratio]);
  }
  return found.slice(0, 5);
}"""


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.soak)])
def test_a_migration_step_by_step(look: Open, scheme: str) -> None:
    page = look(f"/replication/?dag=migrate__shop&run={page_world.RUNS[1].replace('+', '%2B')}", scheme=scheme)
    page.wait_for_selector("ol.timeline .is-next")
    assert "point of no return" in page.locator(".is-next").inner_text()
    edge = page.locator("li.edge").bounding_box()
    done, following = page.locator(".is-done").last.bounding_box(), page.locator(".is-next").bounding_box()
    assert edge is not None
    assert done is not None
    assert following is not None
    assert done["y"] < edge["y"] < following["y"]
    assert "ops approved" in page.locator("main").inner_text()
    page.locator("[data-key='step tail_proof'] summary").click()
    assert "proven" in page.locator("[data-key='step tail_proof'] table").inner_text()
    assert page.evaluate(FAINT) == []
    assert find_barriers(page) == []
    assert "without writes until now" in page.locator("[data-key=writes]").inner_text()
    progress, waves = page.locator("[data-key=stands]").bounding_box(), page.locator("ol.waves").bounding_box()
    assert progress is not None
    assert waves is not None
    assert progress["y"] < waves["y"]
    page.set_viewport_size({"width": 680, "height": 430})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1360, "height": 860})
    page.click(f"[data-run*='{page_world.RUNS[0]}'] >> nth=0")
    page.wait_for_selector(".is-refused")
    assert "Taken back" in page.locator("main").inner_text()


def test_rehearsals_and_losses_cannot_be_overlooked(look: Open) -> None:
    page = look("/replication/#topology=harbour&view=migrations")
    page.wait_for_selector("[data-key=loss]")
    assert "Declared as missing: at most" in page.locator("[data-key=loss] h4").inner_text()
    assert page.locator("[data-key='run drill-1']").inner_text().strip().endswith("Rehearsal of orders: done")
    assert page.evaluate(FAINT) == []
    page.click("[data-key='run drill-1'] button")
    until(page, "document.querySelector('main').innerText.includes('No application moves')")
    assert page.locator("h2", has_text="Rehearsal of orders").count() == 1
    assert page.locator("[data-key=loss]").count() == 0


def test_a_report_opens_in_the_page(look: Open) -> None:
    page = look("/replication/#topology=shop&view=proofs")
    page.click("[data-act=report]")
    assert "says the report" in page.frame_locator("iframe.report").locator("h1").inner_text()


def test_whoever_may_only_look_cannot_act(look: Open, site: Site) -> None:
    page = look("/replication/#topology=shop", user="view")
    page.wait_for_selector("#actions summary")
    assert page.locator("#actions button").count() == 0
    page.click("#actions summary")
    assert "not start runs of migrate__shop" in page.locator("#actions").inner_text()
    assert find_barriers(page) == []
    body = {"logical_date": None, "conf": {}}
    refused = page.request.post(f"{site.url}/api/v2/dags/verify__shop/dagRuns", data=body)
    assert refused.status == 403


def test_a_run_is_started_with_the_dags_own_params(look: Open) -> None:
    page = look("/replication/#topology=shop", user="ops")
    page.click("[data-dag=verify__shop]")
    page.wait_for_selector("#form[open]")
    assert "L0 compares metadata only" in page.locator("#form").inner_text()
    assert "What will happen: Both sides of every flow are read again" in page.locator("#form").inner_text()
    assert find_barriers(page) == []
    page.select_option("#param-level", "L2")
    page.keyboard.press("Escape")
    page.wait_for_selector("#form", state="hidden")
    page.click("[data-dag=verify__shop]")
    page.select_option("#param-level", "L2")
    page.click("#form button.primary")
    page.wait_for_selector("#told a")
    [found] = _runs("verify__shop")
    assert found.conf["level"] == "L2"
    page.wait_for_selector("#notices .notice")  # no scheduler takes it, and its DAG was unpaused with it
    assert "started by ops" in page.locator("#notices").inner_text()
    told, button = page.locator("#told").bounding_box(), page.locator("#actions").bounding_box()
    assert told is not None
    assert button is not None
    assert button["y"] + button["height"] <= told["y"], "a message lies on no button"


def test_a_halted_partition_is_decided_where_it_is_told_of(look: Open) -> None:
    """From its alert, from the head of the page, and from its flow's panel, which covers that head."""
    page = look("/replication/#topology=sites", user="ops")
    here = {"operation": "reseed", "flow": "hub-to-lake", "topic": "berlin.orders", "partition": "1"}
    page.click("[data-key^='alert target_foreign_write'] button.danger")
    page.wait_for_selector("#form[open]")
    assert dict(page.evaluate(FIELDS)) == here
    assert page.locator("#form select").count() == 1, "what and which flow are fixed; copied_by is another operation's"
    assert find_barriers(page) == []
    page.keyboard.press("Escape")
    page.click("#actions [data-dag=decide__sites]")
    page.wait_for_selector("#form[open]")
    assert dict(page.evaluate(FIELDS)) == here
    assert "Filled in for hub-to-lake, berlin.orders-1: target foreign write" in page.locator("#form").inner_text()
    page.select_option("#param-operation", "accept-gap")
    assert [name for name, _ in page.evaluate(FIELDS)] == ["operation", "flow", "topic", "partition", "through"]
    page.keyboard.press("Escape")
    page.click("#actions [data-dag=operate__sites]")
    page.click("#form-start")
    page.wait_for_selector("#form-problem:not([hidden])")
    assert "Choose the operation" in page.locator("#form-problem").inner_text(), "nothing is chosen by a default"
    page.keyboard.press("Escape")
    for width, height in ((360, 640), (680, 430), (1360, 860)):  # a telephone; as at 200 % on a small screen
        page.set_viewport_size({"width": width, "height": height})
        page.click("[data-key='open hub-to-lake']")
        until(page, "document.activeElement.id === 'detail-title'")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for _ in range(5):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Decide …":
                break
        assert page.evaluate(ON_TOP), "the button that has the focus is seen, and nothing lies on it"
        page.keyboard.press("Enter")
        page.wait_for_selector("#form[open]")
        assert page.input_value("input[name='param flow']") == "hub-to-lake"
        page.keyboard.press("Escape")
        page.wait_for_selector("#form", state="hidden")
        page.keyboard.press("Escape")
        page.wait_for_selector("#detail", state="hidden")
    page.click("[data-key='open hub-to-lake']")
    page.click("[data-key='partition berlin.orders-0'] button")
    page.wait_for_selector("#form[open]")
    asked = dict(page.evaluate(FIELDS))
    assert {name: asked[name] for name in here} == here | {"operation": "pause", "partition": "0"}
    page.keyboard.press("Escape")
    page.wait_for_selector("#form", state="hidden")
    page.click("#detail .problems button.danger")
    page.check("#understood")
    page.click("#form-start")
    page.wait_for_selector("#detail .told a")
    assert "of decide__sites has begun" in page.locator("#detail .told").inner_text()
    assert "latency" in page.locator("#detail .facts").inner_text()
    assert find_barriers(page) == []
    [found] = _runs("decide__sites")
    assert {name: found.conf[name] for name in here} == here | {"partition": 1}
    assert not {"through", "group", "copied_by", "accept"} & found.conf.keys()


FIELDS = """() => [...document.querySelectorAll('#form [data-param]')].filter((each) => !each.hidden)
  .map((each) => [each.dataset.param, each.querySelector('[name]').value])"""
ON_TOP = """() => {
  const { left, top, width, height } = document.activeElement.getBoundingClientRect();
  return document.elementFromPoint(left + width / 2, top + height / 2) === document.activeElement;
}"""


def test_a_move_says_first_what_it_will_do_and_wants_a_wave(look: Open, site: Site) -> None:
    page = look("/replication/#topology=harbour", user="ops")
    page.click("[data-dag=rollback__harbour]")
    page.wait_for_selector("#form[open]")
    page.click("#form-start")
    page.wait_for_selector("#form-problem:not([hidden])")
    assert "Choose at least one wave" in page.locator("#form-problem").inner_text()
    page.check("input[value=orders]")
    page.wait_for_selector(".preview")
    assert "Point of no return" in page.locator(".preview").text_content()
    assert find_barriers(page) == []
    page.click("#form-start")
    assert "tick the box" in page.locator("#form-problem").inner_text()
    page.check("input[name='param dry_run']")
    until(page, "document.querySelector('#form-start').textContent === 'Start the dry run'")
    late: list[Any] = []
    page.route(
        "**/api/preview**", lambda route: route.continue_() if "waves=" in route.request.url else late.append(route)
    )
    page.uncheck("input[value=orders]")
    until(page, "document.querySelector('#form-start').disabled")
    page.check("input[value=orders]")
    page.wait_for_selector(".preview")
    [first] = late  # its answer comes last, and is of what is not chosen any more
    with page.expect_response("**/api/preview**"):
        first.continue_()
    page.wait_for_timeout(300)
    assert page.locator(".preview").count() == 1
    page.unroute("**/api/preview**")
    page.click("#form-start:not([disabled])")
    page.wait_for_selector("#told a")
    assert "Dry run" in page.locator("#told").inner_text()
    [found] = _runs("rollback__harbour")
    assert (found.conf["dry_run"], found.conf["waves"], found.triggering_user_name) == (True, ["orders"], "ops")
    assert found.conf["plan_hash"] == site.harbour.hash, "what was read is what is done"


def test_a_button_of_workers_does_what_it_says_and_for_that_cluster_only(look: Open) -> None:
    """The DAG's list may have other clusters than the page: then it is not "all" that is stopped."""
    page = look("/replication/#topology=sites", user="ops")
    action = {"what": "fleet", "words": "Workers", "does": "x", "danger": False, "dag": "fleet__sites", "allowed": True}
    targets = ["all", "lake"]

    def with_fleets(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"actions": [action]})

    def details(route: Any) -> None:
        params = {"action": ["heal", "status", "start", "scale", "restart", "stop"], "target": targets}
        told = {name: {"value": known[0], "schema": {"enum": known}} for name, known in params.items()}
        route.fulfill(json={"dag_id": "fleet__sites", "is_paused": False, "params": told})

    page.route("**/api/fleets**", with_fleets)
    page.route("**/dags/fleet__sites/details", details)
    page.click("#tab-fleets")
    page.click("[data-key='fleet hub'] button.danger")
    page.wait_for_selector("#told p")
    assert "its target can be all, lake, and not hub" in page.locator("#told").inner_text()
    assert page.locator("#form[open]").count() == 0
    targets.append("hub")
    page.click("[data-key='fleet hub'] button.danger")
    page.wait_for_selector("#form[open]")
    told = page.locator("#form").inner_text()
    assert "Stop: workers for hub" in told
    assert "Nothing is copied until the fleet is started again" in told
    assert page.locator("#form select").count() == 0, "what the button says cannot become something else"
    assert [each.get_attribute("value") for each in page.locator("#form input[type=hidden]").all()] == ["stop", "hub"]
    page.click("#form-start")
    page.wait_for_selector("#form-problem:not([hidden])")
    assert "tick the box" in page.locator("#form-problem").inner_text()


def _runs(dag: str) -> list[Any]:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        found = list(session.scalars(select(DagRun).where(DagRun.dag_id == dag)))
        session.expunge_all()
    return found


BODY = """**ops** is asked: <script>alert(1)</script> [x](javascript:alert(1))

#### gate

| what | seen |
|---|---|
| lag | \\<img src=x\\>\\|4 |
"""


def test_a_person_decides_in_the_page(look: Open) -> None:
    """No scheduler asks here: what Airflow would answer is given, and what is sent is looked at."""
    instance: dict[str, Any] = {
        "id": "first-try",
        "dag_id": "migrate__shop",
        "dag_run_id": page_world.RUNS[1],
        "task_id": "orders.soak",
        "map_index": -1,
    }
    question = {"subject": "Fence <b>checkout</b>?", "body": BODY, "options": ["Approve", "Reject"]}
    question["task_instance"] = instance | {"state": "awaiting_input"}  # type: ignore[assignment]
    sent: list[Any] = []

    def answered(route: Any) -> None:
        if route.request.method == "GET":
            route.fulfill(json={"hitl_details": [] if sent else [question], "total_entries": 1})
        else:
            sent.append((route.request.method, route.request.url, route.request.post_data_json))
            route.fulfill(json={})

    page = look("/replication/", user="ops")
    page.route("**/hitlDetails**", answered)
    page.goto(page.url + "#topology=shop&view=migrations")
    page.wait_for_selector(".question")
    assert "Fence <b>checkout</b>?" in page.locator(".question h3").inner_text()
    assert page.locator(".question td").all_inner_texts() == ["lag", "<img src=x>|4"]
    assert page.locator(".question img, .question script, .question a").count() == 0
    assert page.locator(".question b").first.inner_text() == "ops"
    page.click(".question button.primary")
    page.wait_for_selector("#form[open]")
    question["body"] = "other evidence"  # the task was cleared while the dialog was open
    question["task_instance"] = instance | {"id": "second-try", "state": "awaiting_input"}  # type: ignore[assignment]
    until(page, "document.querySelector('.question').innerText.includes('other evidence')")
    page.click("#form-start")
    page.wait_for_selector("#form", state="hidden")
    assert "Nothing was answered" in page.locator("#told").inner_text()
    assert sent == []
    page.click(".question button.primary")
    assert "What will happen: the run goes on. Its next step: point of no return" in page.locator("#form").inner_text()
    assert sent == []
    page.click("#form-start")
    page.wait_for_selector(".question", state="detached")
    [(method, url, body)] = sent
    assert (method, body) == ("PATCH", {"chosen_options": ["Approve"], "params_input": {}})
    assert url.endswith("/taskInstances/orders.soak/-1/hitlDetails")


def test_what_an_operation_asks_is_answered_in_the_page_too(look: Open) -> None:
    """In the view where the person is: an operation has no view of its own."""
    dag, run = "decide__sites", "manual 1"  # Airflow lets people name runs
    instance = {"id": "1", "dag_id": dag, "dag_run_id": run, "task_id": "approve", "map_index": -1}
    question = {
        "subject": "Accept the gap of orders-1?",
        "body": BODY,
        "options": ["Approve", "Reject"],
        "task_instance": instance | {"state": "awaiting_input"},
    }
    waits = {"subject": question["subject"], "since_ms": 1, "dag": dag, "run": run, "task": "approve", "index": -1}
    sent: list[Any] = []

    def with_question(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"awaiting": [] if sent else [waits]})

    def answered(route: Any) -> None:
        if route.request.method == "PATCH":
            sent.append((route.request.url, route.request.post_data_json))
            return route.fulfill(json={})
        return route.fulfill(json={"hitl_details": [] if sent else [question], "total_entries": 1})

    page = look("/replication/", user="ops")
    page.route("**/api/flows**", with_question)
    page.route("**/hitlDetails**", answered)
    page.goto(page.url + "#topology=sites")
    page.click("#notices [data-act=ask]")
    page.wait_for_selector("#notices .question")
    assert page.locator("#notices .question td").all_inner_texts() == ["lag", "<img src=x>|4"]
    assert page.locator("#notices [data-act=ask]").get_attribute("aria-expanded") == "true"
    assert find_barriers(page) == []
    page.reload()
    page.wait_for_selector("#notices .question")
    page.click("#notices [data-act=ask]")
    page.wait_for_selector("#notices .question", state="detached")
    page.click("#notices [data-act=ask]")
    page.click("#notices .question button:text('Reject')")
    assert "nothing is done" in page.locator("#form").inner_text()
    page.keyboard.press("Escape")
    page.click("#notices .question button.primary")
    page.wait_for_selector("#form[open]")
    assert "does what the question says" in page.locator("#form").inner_text()
    page.click("#form-start")
    page.wait_for_selector("#notices .question", state="detached")
    page.wait_for_selector("#notices [data-act=ask]", state="detached")
    [(url, body)] = sent
    assert body == {"chosen_options": ["Approve"], "params_input": {}}
    assert url.endswith("/dags/decide__sites/dagRuns/manual%201/taskInstances/approve/-1/hitlDetails")
    assert page.locator("#tab-flows").get_attribute("aria-selected") == "true"


def test_the_page_inside_airflow_has_its_theme_and_leads_to_its_pages(look: Open, site: Site) -> None:
    page = look("/plugin/replication", user="admin", scheme="light")
    frame = page.frame_locator("iframe")
    frame.locator("#topology").select_option("shop")
    frame.locator(".arrow.state-running").first.wait_for()
    page.evaluate("document.documentElement.classList.replace('light', 'dark')")
    until(page.frames[1], "document.documentElement.dataset.theme === 'dark'")
    assert page.frames[1].evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 23, 29)"
    frame.locator("#tab-migrations").click()
    frame.locator("main a[data-act=airflow]").first.wait_for()
    page.reload()  # F5 in Airflow's own page stays in the view
    frame.locator("#tab-migrations[aria-selected=true]").wait_for()
    assert frame.locator("#topology").input_value() == "shop"
    frame.locator("main a[data-act=airflow]").first.click()
    page.wait_for_url(f"{site.url}/dags/migrate__shop/runs/**")


@pytest.mark.soak
def test_a_dags_tab_shows_its_topology_only(look: Open) -> None:
    page = look("/dags/replicate__sites/plugin/replication-dag", user="view")
    frame = page.frame_locator("iframe")
    frame.locator(".arrow.state-running").first.wait_for()
    assert frame.locator("#choice").is_hidden()


def test_without_a_user_there_is_nothing(look: Open, browser: Browser, site: Site) -> None:
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(f"{site.url}/replication/")
    assert answer is not None
    assert answer.status == 401
    assert page.locator("script").count() == 0
    context.close()


def test_a_broker_that_aborts_the_kafka_client_stops_neither_airflow_nor_the_other_cluster(site: Site) -> None:
    """Airflow's api-server is this process: it would have ended with the first look."""
    told = "process that asks cluster reef, and nothing else, ended"
    seen = _until_told(site, lambda each: told in str(each["reef"]["problem"]))
    assert "signal 6, SIGABRT" in str(seen["reef"]["problem"])
    _until_told(site, lambda each: each["hub"]["state"] == "answers" and told in str(each["reef"]["problem"]))


def _until_told(site: Site, wanted: Callable[[dict[str, dict[str, Any]]], bool]) -> dict[str, dict[str, Any]]:
    deadline = time.monotonic() + WAIT_MS / 1000
    while not wanted(found := site.clusters("strait")):
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def test_a_cluster_that_dies_is_shown_with_its_age(look: Open, site: Site, tmp_path: Path) -> None:
    """The last test of the module: it ends the broker."""
    from watershed.lab import clusters

    page = look("/replication/#topology=shop")
    page.wait_for_selector(".arrow.state-running, .arrow.state-catching_up")
    clusters.stop_lab_broker(next(iter(tmp_path.parent.glob("page*/broker"))), "hub")
    page.wait_for_selector(".cluster.silent")
    page.wait_for_selector(".arrow.state-silent")
    assert "has not answered for" in page.locator(".problems").first.inner_text()
    assert page.locator("[data-key='row onprem-to-cloud']").count() == 1
