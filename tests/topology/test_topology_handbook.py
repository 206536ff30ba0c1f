"""What the code writes about itself is up to date, and editors can use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from watershed.topology.generated_docs import render_doc_pages, render_language_reference, render_metrics_page
from watershed.topology.language import TOPOLOGY_SHAPE, build_language_schema
from watershed.topology.metric_catalogue import METRICS
from watershed.topology.rule_manual import parse_rule_manual
from watershed.topology.rules import RULES
from watershed.topology.scalar_shape import YamlShape
from watershed.topology.yaml_shapes import ConvertedShape, ListShape, MapShape, NamedShape, RecordShape

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "topology" / "examples"
BROKEN_SHAPE = ["unknown_key", "missing_unit"]


def test_the_reference_is_what_the_code_says() -> None:
    page = (ROOT / "docs" / "topology-reference.md").read_text(encoding="utf-8")
    assert page == render_language_reference(), "run `make docs`"


def test_the_page_of_metrics_is_what_the_catalogue_says() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == render_metrics_page(), "run `make docs`"


def test_a_metric_stands_once_in_the_catalogue_and_is_named_by_prometheus_conventions() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("watershed_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.unit != "seconds" or "_seconds" in metric.name
        assert metric.unit != "bytes" or "_bytes" in metric.name


def test_the_pages_of_rules_show_every_rule_once_with_its_examples() -> None:
    pages = render_doc_pages()
    index, families = pages.pop("rules/README.md"), "".join(pages.values())
    for rule in RULES:
        manual = parse_rule_manual(rule)
        assert families.count(f"## {rule.code} {rule.name}\n") == 1
        assert f"```yaml\n{manual.bad}```" in families
        assert f"```yaml\n{manual.good}```" in families
        assert f"{rule.code.lower()[:3]}.md#{rule.code.lower()}-{rule.name})" in index


def test_the_schema_in_the_repository_is_the_language() -> None:
    text = (ROOT / "topology" / "schema" / "v1alpha1.json").read_text(encoding="utf-8")
    assert json.loads(text) == build_language_schema(), "run `make docs`"


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(build_language_schema())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_editors_find_nothing_in_an_example(path: Path) -> None:
    jsonschema.Draft202012Validator(build_language_schema()).validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", BROKEN_SHAPE)
def test_editors_find_what_the_shapes_refuse(name: str) -> None:
    text = (EXAMPLES / "broken" / f"{name}.yaml").read_text(encoding="utf-8")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(build_language_schema()).validate(yaml.safe_load(text))


def test_every_key_says_what_it_means() -> None:
    keys = dict(_keys(TOPOLOGY_SHAPE, ""))
    assert len(keys) > 300
    assert [path for path, doc in keys.items() if not doc.endswith((".", "“", "”"))] == []


def _keys(shape: YamlShape, path: str) -> Any:
    if isinstance(shape, (NamedShape, ConvertedShape)):
        yield from _keys(shape.inner, path)
    elif isinstance(shape, ListShape):
        yield from _keys(shape.item, f"{path}[]")
    elif isinstance(shape, MapShape):
        yield from _keys(shape.value, f"{path}.*")
    elif isinstance(shape, RecordShape):
        for name, key in shape.fields.items():
            yield f"{path}.{name}", key.doc
            yield from _keys(key.shape, f"{path}.{name}")
