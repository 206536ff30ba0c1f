"""Every key of the language is executed, refused or listed: `schema_keys.tsv` says by whom, and each row is checked.

how      who                what is checked
plan     module:word        another value changes the plan, and the module that executes it has the word
rule     codes of rules     in an example of each of them, the rule says something else without the key, or with
                            another value of it
command  module:word        a command prints something else; checked by `test_an_arn_is_written_into_policies`
alerts   name of an alert   `topology alerts` writes another rule for another value
refused  code, or error     there is one value only; another one is refused
listed   row of the table   `topology plan` lists the value under "not executed"

Files in `schema_keys/` hold each key once, in a value that compiles.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from click.testing import CliRunner

from tests.topology.rule_cases import stretch, syc, tpc_copied, tpc_kept
from tests.topology.rule_cases.example import clusters
from watershed.cli.acls import acls
from watershed.cutover.operations.plan_review import PlanReview
from watershed.replicator.alerting.alert_rules import build_rule_groups
from watershed.replicator.alerting.rule_group import AlertRule
from watershed.topology.errors import UnreadableTopology
from watershed.topology.inventory import Inventory
from watershed.topology.language import build_language_schema
from watershed.topology.language.flow import FLOW_SETTINGS
from watershed.topology.lint import LintResult
from watershed.topology.loader import LoadedTopology, parse_topology
from watershed.topology.model import Topology
from watershed.topology.plan import Plan
from watershed.topology.plan_builder import build_plan
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rule_manual import build_example_inventory, complete_example
from watershed.topology.rules import RULES
from watershed.topology.unsupported_settings import UNSUPPORTED_SETTINGS, find_unsupported_settings

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCHEMA = build_language_schema()
LEAVES = ("secret", "selector")  # a value, however it is written
PATTERNS = ("hub_and_spoke.up", "hub_and_spoke.down", *SCHEMA["$defs"]["pattern"]["properties"])
# Rules whose examples do not have the key.
MORE_EXAMPLES = {
    "OPS906": [
        clusters(a="topics: [{match: orders, tiered_storage: true}]")
        + "flows:\n  - {source: a, target: b, topics: {include: [orders]}}\n"
        "--- # topology scan\na: {topics: {orders: {configs: {remote.storage.enable: 'false'}}}}\n"
    ],
    "GRF205": [
        "flows:\n"
        "  - {source: a, target: b, topics: {include: [x]}, merge: {allowed: true, duplicates: allowed}}\n"
        "  - {source: b, target: c, topics: {include: [x]}, merge: {allowed: true, duplicates: allowed}}\n"
        "  - {source: a, target: c, topics: {include: [x]}, merge: {allowed: true, duplicates: allowed}}\n"
    ],
}


class Row(NamedTuple):
    """A key, e.g. `flows[].workers.count`: how it is executed, by whom, and another value of it as JSON."""

    key: str
    how: str
    who: str
    other: str


def read_rows() -> list[Row]:
    lines = (HERE / "schema_keys.tsv").read_text().splitlines()
    assert lines[0] == "\t".join(Row._fields)
    return [Row(*line.split("\t")) for line in lines[1:]]


ROWS = read_rows()


def rows_of(how: str) -> list[Any]:
    return [pytest.param(row, id=row.key) for row in ROWS if row.how == how]


# -- the walk ----------------------------------------------------------------------------------------------------------


def walk_schema(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Paths of all values: `.NAME` for a key, `[]` for an item, `.*` for a name of the user's."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from [path] if name in LEAVES else walk_schema(SCHEMA["$defs"][name], path)
    elif "oneOf" in schema:
        for each in schema["oneOf"]:
            yield from walk_schema(each, path)
    elif "properties" in schema:
        for name, each in schema["properties"].items():
            yield from walk_schema(each, f"{path}.{name}" if path else name)
    elif schema.get("type") == "object":
        yield from walk_schema(schema["additionalProperties"], f"{path}.*")
    elif schema.get("type") == "array":
        yield from walk_schema(schema["items"], f"{path}[]")
    else:
        yield path


def is_setting_elsewhere(path: str) -> bool:
    """Whether it is a flow's setting under `defaults` or in a pattern, where it means the same."""
    for place in ("defaults", *(f"pattern.{each}" for each in PATTERNS)):
        if path.startswith(f"{place}."):
            first = re.split(r"[.\[]", path.removeprefix(f"{place}."))[0]
            if first in FLOW_SETTINGS:
                return True
    return False


def test_every_key_of_the_language_has_a_row_and_every_row_a_key() -> None:
    keys = dict.fromkeys(path for path in walk_schema(SCHEMA, "") if not is_setting_elsewhere(path))
    assert [row.key for row in ROWS] == list(keys)


def test_every_way_is_checked() -> None:
    assert {row.how for row in ROWS} == {"plan", "rule", "command", "alerts", "refused", "listed"}
    assert [row.key for row in ROWS if row.how == "command"] == ["clusters.*.arn"]


def test_a_setting_means_the_same_under_defaults_and_in_a_pattern() -> None:
    full = FULL[0]
    settings = {name: each for name, each in full["flows"][0].items() if name in FLOW_SETTINGS}
    head = {name: full[name] for name in ("apiVersion", "kind", "metadata", "clusters")}
    ends = {"source": "scram", "target": "metro"}
    said = compile_document({**head, "flows": [{**ends, **settings}]})
    below = {"topics": settings.pop("topics")}
    assert compile_document({**head, "defaults": settings, "flows": [{**ends, **below}]}) == said
    patterns: list[dict[str, Any]] = [
        {"chain": {"path": ["scram", "metro"], **below, **settings}},
        {"aggregation": {"sources": ["scram"], "target": "metro", **below, **settings}},
        {"active_standby": {"active": "scram", "standby": "metro", **below, **settings}},
        {"hub_and_spoke": {"hub": "metro", "spokes": ["scram"], "up": {**below, **settings}}},
        {"hub_and_spoke": {"hub": "scram", "spokes": ["metro"], "down": {**below, **settings}}},
        {"active_active": {"via": "aggregate", "regionals": ["scram"], "aggregates": ["metro"], **below, **settings}},
    ]
    for pattern in patterns:
        assert compile_document({**head, "pattern": pattern}) == said, pattern


# -- documents, and their values ---------------------------------------------------------------------------------------


def read_documents() -> list[dict[str, Any]]:
    full = yaml.safe_load((HERE / "schema_keys" / "full.yaml").read_text())
    head, *patterns = yaml.safe_load_all((HERE / "schema_keys" / "patterns.yaml").read_text())
    named = {"apiVersion": full["apiVersion"], "kind": full["kind"], "metadata": {"name": "patterns"}, **head}
    return [full, *({**named, **pattern} for pattern in patterns)]


FULL = read_documents()


def parse_document(document: Any) -> LoadedTopology:
    return parse_topology(json.dumps(document))  # JSON is YAML, without anchors and ambiguous words


def compile_loaded(loaded: LoadedTopology) -> Plan | None:
    """The plan without its hash; None where the loader refuses something."""
    if loaded.problems or loaded.topology is None:
        return None
    return replace(build_plan(loaded.topology, {}), hash="")


def compile_document(document: Any) -> Plan:
    loaded = parse_document(document)
    assert [problem.message for problem in loaded.problems] == []
    plan = compile_loaded(loaded)
    assert plan is not None
    return plan


@cache
def compile_full(index: int) -> Plan:
    return compile_document(FULL[index])


def split_key(key: str) -> list[str]:
    return key.replace("[]", ".[]").split(".")


def find_places(node: Any, parts: list[str], above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a key stands in a document."""
    if not parts:
        yield above
    elif parts[0] == "*":
        for name in node if isinstance(node, dict) else ():
            yield from find_places(node[name], parts[1:], (*above, name))
    elif parts[0] == "[]":
        for index in range(len(node) if isinstance(node, list) else 0):
            yield from find_places(node[index], parts[1:], (*above, index))
    elif isinstance(node, dict) and parts[0] in node:
        yield from find_places(node[parts[0]], parts[1:], (*above, parts[0]))


def get_at(document: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        document = document[step]
    return document


def change_document(document: Any, place: tuple[Any, ...], value: Any = None) -> Any:
    """A copy with another value there; without the value for None."""
    changed = copy.deepcopy(document)
    *above, last = place
    if value is None:
        del get_at(changed, tuple(above))[last]
    else:
        get_at(changed, tuple(above))[last] = value
    return changed


def find_changes(row: Row) -> Iterator[tuple[int, Any]]:
    """Each document that has the key, with its number, with the other value in place of one of its own."""
    other = json.loads(row.other)
    for index, document in enumerate(FULL):
        for place in find_places(document, split_key(row.key)):
            if not isinstance(get_at(document, place), list) and get_at(document, place) != other:
                yield index, change_document(document, place, other)


# -- each way ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows_of("plan"))
def test_another_value_changes_the_plan(row: Row) -> None:
    plans = ((index, compile_loaded(parse_document(document))) for index, document in find_changes(row))
    assert any(plan is not None and plan != compile_full(index) for index, plan in plans)
    module, _, word = row.who.partition(":")
    executor = (ROOT / module.replace(".", "/")).with_suffix(".py")
    assert re.search(rf"\b{word}\b", executor.read_text()), row


def find_refusals(document: Any) -> list[str]:
    """Codes of rules, or the error for what is no topology at all."""
    try:
        return [problem.code for problem in parse_document(document).problems]
    except UnreadableTopology as error:
        return [type(error).__name__]


@pytest.mark.parametrize("row", rows_of("refused"))
def test_another_value_is_refused(row: Row) -> None:
    assert row.who in {code for _, document in find_changes(row) for code in find_refusals(document)}


@pytest.mark.parametrize("row", rows_of("listed"))
def test_another_value_is_listed(row: Row) -> None:
    [listed] = [each for each in UNSUPPORTED_SETTINGS if each.path == row.who]
    settings = [list(find_unsupported_settings(parse_readable(document))) for _, document in find_changes(row)]
    found, told = next(
        (found, each) for found in settings for each in found if each.path.removeprefix(f"{listed.section}.") == row.who
    )
    review = PlanReview(compile_full(0), Inventory({}), [], LintResult("full.yaml", {}, (), (), {}), found, [])
    lines = [line for line in review.render() if line.startswith("! ") and "is not executed" in line]
    assert any(f"`{told.path}" in line and listed.instead in line for line in lines)
    assert asdict(told) in json.loads(review.encode())["not_executed"]


def parse_readable(document: Any) -> Topology:
    topology = parse_document(document).topology
    assert topology is not None
    return topology


def test_each_row_of_what_is_not_executed_is_reached() -> None:
    listed = {row.who for row in ROWS if row.how == "listed"}
    elsewhere = {
        "workers.near": "only without a rack",
        "slo.lag.p99": "only above what is measured",
        "slo.on_breach": "only without `slo.lag.max`",
    }
    assert {each.path for each in UNSUPPORTED_SETTINGS} == listed | elsewhere.keys()


def test_an_arn_is_written_into_policies(tmp_path: Path) -> None:
    [row] = [each for each in ROWS if each.how == "command"]

    def print_policy(name: str, document: Any) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(document))
        ran = CliRunner().invoke(acls, [str(path), "--role", "verify", "--format", "iam"], catch_exceptions=False)
        return ran.output

    head = {name: FULL[0][name] for name in ("apiVersion", "kind", "metadata")}
    near = {alias: dict(FULL[0]["clusters"][alias]) for alias in ("scram", "msk")}
    near["msk"]["arn"] = near["scram"]["arn"]
    flow = {"source": "scram", "target": "msk", "topics": {"include": ["orders"]}}
    document = {**head, "clusters": near, "flows": [flow]}
    one, two = (
        print_policy(
            name, document if other is None else change_document(document, ("clusters", "scram", "arn"), other)
        )
        for name, other in (("one", None), ("two", json.loads(row.other)))
    )
    assert json.loads(row.other).split(":")[3] in two
    assert one != two


@pytest.mark.parametrize("row", rows_of("alerts"))
def test_another_value_is_another_alert(row: Row) -> None:
    def list_alerts(document: Any) -> list[Any]:
        groups = build_rule_groups(parse_readable(document), Path("full.yaml"))
        return [rule for group in groups for rule in group.rules if isinstance(rule, AlertRule)]

    for index, document in find_changes(row):
        before, after = (
            {rule for rule in list_alerts(each) if rule.name == row.who} for each in (FULL[index], document)
        )
        assert before
        assert before != after


# -- rules -------------------------------------------------------------------------------------------------------------


BY_CODE: dict[str, Rule] = {rule.code: rule for rule in RULES}


def list_places(key: str) -> list[list[str]]:
    """As itself; a flow's setting also under `defaults` and in patterns."""
    parts = split_key(key)
    if parts[:2] != ["flows", "[]"]:
        return [parts]
    return [parts, ["defaults", *parts[2:]], *(["pattern", *each.split("."), *parts[2:]] for each in PATTERNS)]


@cache
def read_examples(code: str) -> list[tuple[dict[str, Any], Inventory | None]]:
    """The documents of a rule's manual and of its tests, with their scans."""
    folder = files("watershed.topology.rules") / "examples" / code
    texts = [(folder / f"{name}.yaml").read_text() for name in ("bad", "good")]
    texts += [case[2] for room in (stretch, syc, tpc_kept, tpc_copied) for case in room.CASES if case[1] == code]
    texts += MORE_EXAMPLES.get(code, [])
    return [
        (
            json.loads(json.dumps(yaml.safe_load(complete_example(text)), default=str)),
            build_example_inventory(text, live=True),
        )
        for text in texts
    ]


def find_messages(rule: Rule, document: Any, inventory: Inventory | None) -> list[tuple[str, str]]:
    problems = rule.check(RuleContext(parse_document(document), inventory))
    return sorted((problem.message, problem.severity or "") for problem in problems)


def pick_other(value: Any, key: str) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    words = find_words(key)
    if words:
        return next(word for word in words if word != value)
    amounts = {r"\d+(ms|s|m|h|d|w)": "3h", r"\d+.*/s": "1MiB/s", r"\d+.*[kKMGT]i?B": "2MiB", r"\d+%": "20%"}
    return next((other for shape, other in amounts.items() if re.fullmatch(shape, str(value))), "other")


def find_words(key: str) -> list[str]:
    """The words of an enumeration."""
    here: Mapping[str, Any] = SCHEMA
    for part in split_key(key):
        while "$ref" in here:
            here = SCHEMA["$defs"][here["$ref"].rpartition("/")[2]]
        below = {"*": here.get("additionalProperties"), "[]": here.get("items")}
        here = below.get(part) or here.get("properties", {}).get(part, {})
    found: list[str] = here.get("enum", [])
    return found


@pytest.mark.parametrize(
    ("key", "code"), [(row.key, code) for row in ROWS if row.how == "rule" for code in row.who.split()]
)
def test_a_rule_says_something_else(key: str, code: str) -> None:
    rule = BY_CODE[code]
    for document, inventory in read_examples(code):
        places = [place for parts in list_places(key) for place in find_places(document, parts)]
        said = find_messages(rule, document, inventory) if places else []
        for place in places:
            others = (None, pick_other(get_at(document, place), key))
            if any(find_messages(rule, change_document(document, place, each), inventory) != said for each in others):
                return
    pytest.fail(f"no example of {code} says something else without {key}, or with another value of it")
