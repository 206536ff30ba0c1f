"""The pages that the code writes: the reference of the language, the metrics, and one page for each family of rules.

`python -m watershed.topology.generated_docs docs` writes them. A test says when the committed reference is out of
date; the pages of rules are not committed (decision 0071).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from watershed.topology.language import TOPOLOGY_SHAPE
from watershed.topology.language.flow import FLOW_SETTINGS
from watershed.topology.metric_catalogue import METRICS, MetricDefinition
from watershed.topology.quantities import DURATION_UNITS_MS, SIZE_UNITS_BYTES
from watershed.topology.rule import Rule
from watershed.topology.rule_manual import RuleManual, parse_rule_manual
from watershed.topology.rules import RULES
from watershed.topology.scalar_shape import ScalarShape, YamlShape
from watershed.topology.unsupported_settings import UNSUPPORTED_SETTINGS
from watershed.topology.yaml_shapes import (
    ConvertedShape,
    ListShape,
    MapShape,
    NamedShape,
    RecordShape,
    ScalarOrShape,
    ShapeKey,
)

_FAMILIES = {
    "CLU": "Clusters",
    "GRF": "The graph: loops, duplicates, collisions, starvation",
    "MIG": "Migration and cutover",
    "NAM": "Names and selectors",
    "OPS": "Operation",
    "SEC": "Security",
    "SLO": "Lag, capacity, cost",
    "SYC": "What is synchronised",
    "SYN": "The file and its schema",
    "TPC": "Topic configuration",
}
_NEEDS = {"static": "the file", "inventory": "an inventory", "live": "live clusters (`topology plan`)"}
_GENERATED = "<!-- Written by `make docs`; change the code, not this page. -->\n"
_HEAD = """`apiVersion: topology/v1alpha1`. Keys in **bold** must be said. Amounts carry their unit. Unknown keys,
duplicate keys and ambiguous values are findings with line and column. `topology schema` prints the same as JSON
Schema for editors: begin a file with `# yaml-language-server: $schema=PATH` of that file. Several files of one
folder with the same `metadata.name` form one topology: clusters, flows and external flows are put together, every
other section is said once. Examples: `topology/examples/`.
"""
_LAYERS = """Under `defaults:`, in a pattern, and in each of `flows:`. A flow's settings lie over its pattern's,
and those over the defaults, key by key; lists and `naming` are replaced as a whole. `topology explain FLOW.FIELD
PATH` says where a value came from.
"""
_EXTERNAL = """Copies that other tools make ([While MirrorMaker still runs](external-flows.md)). `defaults:` does not
lie under them.
"""
_UNITS = """| amount | written as | units |
|---|---|---|
"""
_REFERENCES = """A selector is a topic's exact name, `{glob: …}` or `{regex: …}`; exclude wins. A secret is `{env:
NAME}`, `{file: path}` or `{airflow_connection: id}`; there is no way to write the secret itself.
"""
_RULES_HEAD = """`topology explain CODE` prints one, `topology rules` all. With the profile `regular` a rule marked
*strict* only informs; `--profile strict`, or `topology.lint.yaml`, gives it its severity. `# lint: ignore[CODE]
reason` on a line, or on the line above, silences a rule there.
"""
_METRICS_HEAD = """What a worker (`--metrics HOST:PORT`) and `topology exporter` tell Prometheus; how to run both:
[Seen from outside](operations.md#seen-from-outside). A histogram has the series `_bucket`, `_sum` and `_count`. Where
there is no unit, the value is a number of what the name says, or 0 and 1.
"""
_SERVED = {"worker": "a worker", "exporter": "the exporter", "both": "both"}
# Described once, and named where they are used.
_APART = {"cluster", "flow", "settings", "pattern", "migration", "wave", "gate", "topic_fact", "selector", "secret"}


def render_doc_pages() -> dict[str, str]:
    """Path below docs/ → text, of every generated page."""
    families = {f"rules/{family.lower()}.md": _render_rule_family(family) for family in _FAMILIES}
    return {
        "topology-reference.md": render_language_reference(),
        "metrics.md": render_metrics_page(),
        "rules/README.md": render_rule_index(),
        **families,
    }


def render_metrics_page() -> str:
    """Every metric of the catalogue: a table of what each means, then what to be woken for."""
    rows = [
        f"| `{each.name}` | {each.kind} | {each.unit} | {_render_labels(each)} | {_SERVED[each.served_by]} "
        f"| {each.meaning} |\n"
        for each in METRICS
    ]
    alerts = [f"| `{each.name}` | {each.alert} |\n" for each in METRICS if each.alert]
    head = "| name | kind | unit | labels | served by | meaning |\n|---|---|---|---|---|---|\n"
    alarms = "## What to be woken for\n\n| name | when |\n|---|---|\n"
    return f"# Metrics\n\n{_GENERATED}\n{_METRICS_HEAD}\n{head}{''.join(rows)}\n{alarms}{''.join(alerts)}"


def _render_labels(metric: MetricDefinition) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels)


def render_language_reference() -> str:
    """The language, section by section."""
    parts = [f"# Reference of the topology file\n\n{_GENERATED}\n{_HEAD}"]
    parts.append("## The file\n\n" + _table(TOPOLOGY_SHAPE))
    defaults = _record(TOPOLOGY_SHAPE.fields["defaults"].shape)
    assert defaults is not None, "a section of settings"
    parts.append("## `clusters.<alias>`\n\n" + _table(_known("clusters")))
    fact = _known("clusters").fields["topics"].shape
    assert isinstance(fact, ListShape), "a list of facts"
    parts.append("## `clusters.<alias>.topics[]`: facts about topics\n\n" + _table(_must(fact.item)))
    parts.append(f"## Settings of flows\n\n{_LAYERS}\n{_table(defaults)}")
    flow = _known("flows")
    own = RecordShape({name: key for name, key in flow.fields.items() if name not in FLOW_SETTINGS}, flow.required)
    parts.append("## `flows[]`\n\n" + _table(own) + "\nand every setting.\n")
    parts.append(f"## `external_flows[]`\n\n{_EXTERNAL}\n{_table(_known('external_flows'))}")
    pattern = _must(TOPOLOGY_SHAPE.fields["pattern"].shape)
    for name, key in pattern.fields.items():
        body = _must(key.shape)
        only = {each: found for each, found in body.fields.items() if each not in FLOW_SETTINGS}
        more = "\nand every setting.\n" if len(only) < len(body.fields) else ""
        parts.append(f"## `pattern.{name}`\n\n{key.doc}\n\n" + _table(RecordShape(only, body.required)) + more)
    migration = _known("migration")
    parts.append("## `migration`\n\n" + _table(migration))
    waves = migration.fields["waves"].shape
    assert isinstance(waves, ListShape), "a list of waves"
    wave = _must(waves.item)
    parts.append("## `migration.waves[]`\n\n" + _table(wave))
    before = _must(wave.fields["gates"].shape).fields["before"].shape
    assert isinstance(before, ListShape), "a list of gates"
    parts.append("## Gates\n\nEach entry is one of these.\n\n" + _table(_must(before.item)))
    parts.append(f"## Amounts\n\n{_UNITS}{_units()}")
    parts.append(f"## Selectors and secrets\n\n{_REFERENCES}")
    return "\n".join(parts)


def render_rule_index() -> str:
    """All rules in one table."""
    rows = [
        f"| [{rule.code}]({rule.code[:3].lower()}.md#{rule.code.lower()}-{rule.name}) | {rule.name} | {rule.severity} "
        f"| {_NEEDS[rule.needs]} | {_cell(parse_rule_manual(rule).title)} |"
        for rule in RULES
    ]
    table = "| code | name | severity | needs | what is wrong |\n|---|---|---|---|---|\n" + "\n".join(rows)
    return f"# Rules\n\n{_GENERATED}\n{len(RULES)} rules. {_RULES_HEAD}\n{table}\n"


def _render_rule_family(family: str) -> str:
    """The manuals of one family."""
    rules = [rule for rule in RULES if rule.code.startswith(family)]
    return f"# {family}: {_FAMILIES[family]}\n\n{_GENERATED}\n" + "\n".join(
        _rule(rule, parse_rule_manual(rule)) for rule in rules
    )


def _rule(rule: Rule, manual: RuleManual) -> str:
    marks = [rule.severity, f"needs {_NEEDS[rule.needs]}"]
    marks += [] if rule.profile == "regular" else [f"profile *{rule.profile}*"]
    marks += [] if rule.ignorable else ["cannot be silenced"]
    options = "".join(f"\nOption `{each.name}`: {each.doc} Default: {each.default}.\n" for each in rule.options)
    return (
        f"## {rule.code} {rule.name}\n\n*{', '.join(marks)}*\n\n{_sentence(manual.title)}\n\n{manual.why}\n{options}\n"
        f"Bad:\n\n```yaml\n{manual.bad}```\n\nGood:\n\n```yaml\n{manual.good}```\n\nSource: {manual.source}\n"
    )


def _table(record: RecordShape) -> str:
    rows = [
        f"| {name} | {_cell(kind)} | {_cell(default)} | {_cell(doc)} |"
        for name, kind, default, doc in _rows(record, "")
    ]
    return "| key | value | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _rows(record: RecordShape, above: str) -> Iterator[tuple[str, str, str, str]]:
    for name, key in record.fields.items():
        path = f"{above}{name}"
        shown = f"**`{path}`**" if name in record.required else f"`{path}`"
        yield shown, _kind(key), key.default, key.doc + _not_done(path, key)
        below = key.shape.value if isinstance(key.shape, MapShape) else key.shape
        inner = _record(below)
        if inner is not None and not _is_described_apart(below):
            yield from _rows(inner, f"{path}." if below is key.shape else f"{path}.NAME.")


def _not_done(path: str, key: ShapeKey) -> str:
    """Names the values that nothing executes, where others of the key are, and says what happens instead."""
    found = next((row for row in UNSUPPORTED_SETTINGS if path in (row.path, f"{row.section}.{row.path}")), None)
    if found is None:
        return ""
    scalar = key.shape.scalar if isinstance(key.shape, ScalarOrShape) else key.shape
    words = scalar.json.get("enum", ()) if isinstance(scalar, ScalarShape) else ()
    named = found.values or ", ".join(f"`{word}`" for word in words if found.asked(word))
    return f" *({named}{': ' if named else ''}not executed: {found.instead})*"


def _units() -> str:
    """What amounts are written in; a bare number is refused."""
    rows = [
        ("duration", "`30s`, `1.5h`", DURATION_UNITS_MS),
        ("size", "`1MiB`", SIZE_UNITS_BYTES),
        ("rate", "`60MiB/s`", [f"{unit}/s" for unit in SIZE_UNITS_BYTES]),
        ("share", "`5%`", ["%"]),
    ]
    return "".join(
        f"| {name} | {shown} | {', '.join(f'`{unit}`' for unit in units)} |\n" for name, shown, units in rows
    )


def _kind(key: ShapeKey) -> str:
    return _said(key.shape)


def _said(shape: YamlShape) -> str:
    if isinstance(shape, ListShape):
        return f"list of {_said(shape.item)}"
    if isinstance(shape, MapShape):
        return f"name → {_said(shape.value)}"
    if isinstance(shape, NamedShape) and shape.name in _APART:
        return shape.name.replace("_", " ")
    if isinstance(shape, (NamedShape, ConvertedShape)):
        return _said(shape.inner)
    if isinstance(shape, ScalarOrShape):
        return f"{_said(shape.scalar)}, or mapping"
    if isinstance(shape, RecordShape):
        return "one of" if shape.one_of else "mapping"
    assert isinstance(shape, ScalarShape), shape
    words = shape.json.get("enum")
    return ", ".join(f"`{word}`" for word in words) if words else shape.expected


def _record(shape: YamlShape) -> RecordShape | None:
    """The record behind a shape, if it is one."""
    while isinstance(shape, (NamedShape, ConvertedShape, ScalarOrShape)):
        shape = shape.other if isinstance(shape, ScalarOrShape) else shape.inner
    return shape if isinstance(shape, RecordShape) else None


def _must(shape: YamlShape) -> RecordShape:
    record = _record(shape)
    assert record is not None, shape
    return record


def _known(section: str) -> RecordShape:
    """The record of a top-level section, of its items or of its values."""
    shape = TOPOLOGY_SHAPE.fields[section].shape
    if isinstance(shape, ListShape):
        shape = shape.item
    return _must(shape.value if isinstance(shape, MapShape) else shape)


def _is_described_apart(shape: YamlShape) -> bool:
    return isinstance(shape, NamedShape) and shape.name in _APART


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name, page in render_doc_pages().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(page, encoding="utf-8")
