"""Hooks against real local servers and a really registered entry point (C28): they hang, fail, answer twice, redirect.

The test's own receiver checks signatures by the recipe of docs/hooks.md, not by our code.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from watershed.clusters.bounded_http import MAX_HTTP_ANSWER_BYTES
from watershed.cutover.hooks.hook_caller import HookCaller
from watershed.cutover.live.allowed_hosts import find_host_refusal
from watershed.cutover.observations import HookAnswer
from watershed.topology import compile_path
from watershed.topology.migration_waves import PlanHook
from watershed.topology.secret_ref import SecretRef

KEY = "s3cret of the hook"
BODY = {"source": "onprem", "target": "cloud"}


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: bytes


Reply = Callable[[BaseHTTPRequestHandler, int], None]


@dataclass
class Receiver:
    """`replies` answer one request each, the last one all that follow."""

    replies: list[Reply] = field(default_factory=list)
    seen: list[Request] = field(default_factory=list)
    port: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/told"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def keys(self) -> list[str]:
        return [each.headers["idempotency-key"] for each in self.seen]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    there = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            there.seen.append(Request(self.path, {n.lower(): v for n, v in self.headers.items()}, body))
            number = len(there.seen)
            there.replies[min(number, len(there.replies)) - 1](self, number)

        do_GET = do_POST

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    there.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield there
    there.ended.set()
    server.shutdown()
    server.server_close()
    thread.join(5)


def says(status: int, body: bytes = b"", **headers: str) -> Reply:
    def reply(handler: BaseHTTPRequestHandler, _number: int) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return reply


def hangs(receiver: Receiver) -> Reply:
    def reply(_handler: BaseHTTPRequestHandler, _number: int) -> None:
        receiver.ended.wait(30)

    return reply


def hooks(hook: PlanHook, **environ: str) -> HookCaller:
    return HookCaller({"tell": hook}, "shop", "all", lambda: "run-1", environ={"HOOK_KEY": KEY, **environ})


def http(receiver: Receiver, timeout_ms: int = 5_000, **more: Any) -> HookCaller:
    secret = SecretRef("env", "HOOK_KEY")
    hook = PlanHook(http=receiver.url, **{"secret": secret, "timeout_ms": timeout_ms} | more)
    return hooks(hook, WATERSHED_HOOK_HOSTS=receiver.host)


def call(told: HookCaller, point: str = "fenced") -> HookAnswer:
    return told.call("tell", point, f"all/{point}/tell", BODY)


DOCS = Path(__file__).parents[2] / "docs" / "hooks.md"


def signed(request: Request) -> bool:
    """By the recipe of docs/hooks.md."""
    (recipe,) = re.findall(r"```python\n(import hashlib.*?)```", DOCS.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(recipe, names)
    headers = {name.title(): value for name, value in request.headers.items()}
    found: bool = names["genuine"](headers, request.body, KEY)
    return found


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    (fragment,) = re.findall(r"```yaml\n(migration:.*?)```", DOCS.read_text(), re.DOTALL)
    document = yaml.safe_load((DOCS.parents[1] / "topology" / "examples" / "migration.yaml").read_text())
    told = yaml.safe_load(fragment)["migration"]
    (wave,) = told["waves"]
    document["migration"]["hooks"] = told["hooks"]
    document["migration"]["waves"][1]["hooks"] = wave["hooks"]
    document["migration"]["waves"][1]["gates"]["before"] += wave["gates"]["before"]
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(document))
    migration = compile_path(tmp_path / "t.yaml").migration
    assert migration is not None
    assert set(migration.hooks) == {"pager", "calendar", "caches"}
    assert migration.hooks["caches"].timeout_ms == 600_000
    assert migration.wave("orders").hooks.rolled_back == ("pager",)


def test_a_hook_is_told_what_happens_and_can_check_who_tells_it(receiver: Receiver) -> None:
    receiver.replies = [says(200, b'{"ok": true, "message": "pagers are quiet"}')]
    told = http(receiver)
    seen = call(told)
    assert (seen.agreed, seen.text) == (True, "pagers are quiet")
    (request,) = receiver.seen
    assert signed(request)
    assert not signed(Request(request.path, request.headers, request.body + b" "))
    document = json.loads(request.body)
    assert document["at"] > 1_600_000_000_000
    del document["at"]
    assert document == {
        "topology": "shop", "run": "run-1", "wave": "all", "name": "tell", "point": "fenced",
        "key": "shop/run-1/all/fenced/tell", "body": BODY,
    }  # fmt: skip
    assert request.headers["idempotency-key"] == document["key"]
    assert KEY not in f"{request.headers}{request.body!r}{seen}{told.declared}"


@pytest.mark.parametrize(
    ("reply", "agreed", "words"),
    [
        (says(204), True, "answered 204"),
        (says(200, b"thanks"), True, "thanks"),
        (says(200, b'{"ok": false, "message": "a deployment is under way"}'), False, "a deployment is under way"),
        (says(409, b"had that"), True, "done before"),
        (says(403, b"unknown signature"), False, "answered 403: unknown signature"),
        (says(200, b"x" * (4 * MAX_HTTP_ANSWER_BYTES)), True, "xxx"),
        (says(200, b'{"ok": false, "message": "' + b"x" * MAX_HTTP_ANSWER_BYTES + b'"}'), False, "cannot be read"),
    ],
)
def test_what_an_answer_means(receiver: Receiver, reply: Reply, agreed: bool, words: str) -> None:
    receiver.replies = [reply]
    seen = call(http(receiver))
    assert (seen.agreed, len(receiver.seen)) == (agreed, 1)
    assert words in seen.text
    assert len(seen.text) < 600


def test_one_that_fails_is_asked_again_under_the_same_key(receiver: Receiver) -> None:
    receiver.replies = [says(503), says(429), lambda handler, _: handler.connection.close(), says(200)]
    seen = call(http(receiver))
    assert (seen.agreed, seen.seen["tries"]) == (True, 4)
    assert set(receiver.keys()) == {"shop/run-1/all/fenced/tell"}
    assert all(map(signed, receiver.seen))
    assert len({request.body for request in receiver.seen}) == 1


def test_one_that_hangs_is_asked_again_and_then_given_up(receiver: Receiver) -> None:
    receiver.replies = [hangs(receiver)]
    seen = call(http(receiver, timeout_ms=1_500))
    assert (seen.agreed, seen.seen["answer"]) == (False, "silence")
    assert "no answer" in seen.text
    assert len(receiver.seen) >= 2
    assert len(set(receiver.keys())) == 1


def test_one_that_drips_does_not_hold_us(receiver: Receiver) -> None:
    def drips(handler: BaseHTTPRequestHandler, _number: int) -> None:
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not receiver.ended.wait(0.05):  # a byte often enough for every timeout of a socket
                handler.wfile.write(b"x-more: y\r\n")
        except OSError:
            pass

    receiver.replies = [drips]
    assert not call(http(receiver, timeout_ms=1_000)).agreed


def test_one_that_answers_twice_is_heard_once(receiver: Receiver) -> None:
    def twice(handler: BaseHTTPRequestHandler, number: int) -> None:
        says(200, b'{"ok": true, "message": "first"}')(handler, number)
        handler.wfile.write(b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"ok": false}')

    receiver.replies = [twice]
    told = http(receiver)
    assert [call(told).text, call(told).text] == ["first", "first"]
    assert len(receiver.seen) == 2


def test_redirects_and_proxies_are_not_followed(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    receiver.replies = [says(307, location=f"{receiver.url}/elsewhere")]
    seen = call(http(receiver))
    assert not seen.agreed
    assert "redirects are not followed" in seen.text
    assert [request.path for request in receiver.seen] == ["/told"]


def test_on_failure_continue_goes_on_and_keeps_the_words(receiver: Receiver) -> None:
    receiver.replies = [says(200, b'{"ok": false, "message": "not today"}')]
    seen = call(http(receiver, on_failure="continue"))
    assert seen.agreed
    assert "not today" in seen.text
    assert (seen.seen["answer"], seen.seen["continued"]) == ("no", True)
    receiver.replies = [says(200, b'{"ok": false, "message": "not today"}')]
    seen = call(http(receiver, on_failure="continue"), point="raise")
    assert not seen.agreed, "a fence that nobody confirms is none"


@pytest.mark.parametrize(
    ("url", "hosts", "fine"),
    [
        ("https://hooks.example.internal/a", "hooks.example.internal", True),
        ("https://hooks.example.internal/a", "HOOKS.example.internal:443", True),
        ("https://hooks.example.internal:8443/a", "other, hooks.example.internal:8443", True),
        ("https://hooks.example.internal:8443/a", "hooks.example.internal", False),
        ("https://hooks.example.internal/a", "", False),
        ("https://hooks.example.internal/a", "example.internal", False),
        ("https://hooks.example.internal/a", "*", False),
        ("https://hooks.example.internal/a", "*.example.internal", False),
        ("http://[::1]:8080/a", "[::1]:8080", True),
    ],
)
def test_only_hosts_that_the_operator_names_are_called(url: str, hosts: str, fine: bool) -> None:
    told = hooks(PlanHook(http=url, secret=SecretRef("env", "HOOK_KEY")), WATERSHED_HOOK_HOSTS=hosts)
    problems = told.problems(["tell"])
    assert (problems == ()) == fine, problems
    if not fine:
        assert "WATERSHED_HOOK_HOSTS" in problems[0]
        seen = call(told)
        assert (seen.agreed, seen.seen["tries"]) == (False, 1)
        assert "WATERSHED_HOOK_HOSTS" in seen.text


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://evil@hooks.example.internal/", "nothing but host or host:port"),
        ("http://[::1]evil/", "nothing but host or host:port"),
        ("http://hooks.example.internal:0/", "WATERSHED_HOOK_HOSTS"),
    ],
)
def test_an_address_that_connects_elsewhere_than_its_host_says_is_not_called(url: str, why: str) -> None:
    assert why in (find_host_refusal(url, {"WATERSHED_HOOK_HOSTS": "hooks.example.internal,loopback"}) or "")


def test_what_cannot_be_called_is_found_before_anything_is_moved(receiver: Receiver) -> None:
    unsigned = hooks(PlanHook(http="http://10.1.2.3:80/"), WATERSHED_HOOK_HOSTS="10.1.2.3")
    (problem,) = unsigned.problems(["tell"])
    assert "give it a `secret`" in problem
    nowhere = hooks(PlanHook(http=receiver.url, secret=SecretRef("env", "NOT_SET")), WATERSHED_HOOK_HOSTS=receiver.host)
    (problem,) = nowhere.problems(["tell"])
    assert problem.startswith("migration.hooks.tell.secret: secret {env: NOT_SET} is not set")
    assert not call(nowhere).agreed
    (problem,) = unsigned.problems(["nobody"])
    assert "declares no hook nobody (there is tell)" in problem
    assert receiver.seen == []


# -- functions ----------------------------------------------------------------------------------------------------

PACKAGE = """
import threading
seen = []
def note(call):
    seen.append(call)
    return f"noted {call.point} of {call.wave}"
def refuse(call): return False
def fail(call): raise RuntimeError("the calendar says no")
def leave(call): raise SystemExit("bye")
def hang(call): threading.Event().wait(60)
not_a_function = 7
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A distribution as pip leaves one: a module, and metadata that registers its functions."""
    (tmp_path / "watershed_hook_sample.py").write_text(textwrap.dedent(PACKAGE))
    info = tmp_path / "watershed_hook_sample-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: watershed-hook-sample\nVersion: 1.0\n")
    names = ("note", "refuse", "fail", "leave", "hang", "not_a_function")
    lines = [f"{name} = watershed_hook_sample:{name}" for name in names]
    lines += ["gone = watershed_hook_sample_gone:note", "twice = watershed_hook_sample:note"]
    (info / "entry_points.txt").write_text("\n".join(["[watershed.hooks]", *lines]))
    other = tmp_path / "watershed_hook_other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: watershed-hook-other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[watershed.hooks]\ntwice = watershed_hook_sample:refuse\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("watershed_hook_sample", None)


def python(name: str, **more: Any) -> HookCaller:
    return hooks(PlanHook(python=name, **more))


def test_a_registered_function_is_called(package: Path) -> None:
    assert python("note").problems(["tell"]) == ()
    seen = call(python("note"))
    assert (seen.agreed, seen.text) == (True, "noted fenced of all")
    (asked,) = sys.modules["watershed_hook_sample"].seen
    assert (asked.key, asked.body) == ("shop/run-1/all/fenced/tell", BODY)
    with pytest.raises(AttributeError):
        asked.key = "another"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("refuse", "returned False"),
        ("fail", "RuntimeError: the calendar says no"),
        ("leave", "SystemExit: bye"),
        ("absent", "no installed package registers absent"),
        ("twice", "registered twice"),
    ],
)
def test_a_function_says_no(package: Path, name: str, words: str) -> None:
    seen = call(python(name))
    assert not seen.agreed
    assert words in seen.text


@pytest.mark.parametrize("name", ["absent", "twice", "gone", "not_a_function"])
def test_a_function_that_cannot_be_called_is_found_before(package: Path, name: str) -> None:
    (problem,) = python(name).problems(["tell"])
    assert problem.startswith("hook tell: ")


def test_a_function_that_hangs_is_left_behind(package: Path) -> None:
    seen = call(python("hang", timeout_ms=200))
    assert (seen.agreed, seen.seen["answer"]) == (False, "silence")
    assert "did not return in 0.2 s" in seen.text
