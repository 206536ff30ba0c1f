"""Damaged link files, Terraform and connectors: a report or UnreadableTopology, never another exception, and every
place lies in the file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from watershed.topology.errors import UnreadableTopology
from watershed.topology.interop import linking_import, replicator_import, terraform_import
from watershed.topology.interop.import_formats import ForeignDocument
from watershed.topology.interop.import_report import build_import_report

LINK = """resource "confluent_cluster_link" "x" {
  link_name = local.a
  source_kafka_cluster { id = "lkc-1" }
  destination_kafka_cluster { id = "lkc-2" }
  config = { "cluster.link.prefix" = local.a, "acl.filters" = jsonencode(local.a) }
}
"""
CASES = Path(__file__).parents[1] / "cases" / "linking"
TEXTS = sorted(
    (path.name, path.read_text(encoding="utf-8"))
    for path in CASES.rglob("*")
    if path.suffix in (".properties", ".config", ".tf", ".json")
)
PIECES = ("", "{", "}", '"', "\\", "\n", "[", "]", "=", "${", "<<E\n", "#", "*", "null", "a\\u12", "true", "-", "\t")


def readers(name: str) -> tuple[object, ...]:
    if name.endswith(".tf"):
        return (terraform_import,)
    return (linking_import, replicator_import) if name.endswith(".json") else (linking_import,)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(TEXTS),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(PIECES)), min_size=1, max_size=4),
)
def test_damage_is_reported_and_nothing_else(case: tuple[str, str], cuts: list[tuple[float, int, str]]) -> None:
    name, text = case
    for where, length, piece in cuts:
        begin = int(where * len(text))
        text = text[:begin] + piece + text[begin + length :]
    for module in readers(name):
        try:
            imported = module.read((ForeignDocument(name, text),))  # type: ignore[attr-defined]
        except UnreadableTopology:
            continue
        build_import_report(imported)
        last = len(text.splitlines()) + 1
        spans = [each.span for each in imported.not_carried]
        spans += [label.span for problem in imported.problems for label in problem.labels]
        assert all(1 <= span.line <= last for span in spans)


def test_locals_that_multiply_each_other_are_unknown_and_cost_little() -> None:
    names = "abcdefghijklmnop"
    lines = [f'  {name} = "{f"${{local.{after}}}" * 10}"' for name, after in pairwise(names)]
    text = LINK + "locals {\n" + "\n".join([*lines, '  p = "boom"']) + "\n}\n"
    imported = terraform_import.read((ForeignDocument("main.tf", text),))
    assert [flow.id for flow in imported.flows] == ["lkc-1-to-lkc-2"]
    assert "`confluent_cluster_link.x.config`: cluster.link.prefix" in [each.what for each in imported.not_carried]


def test_locals_in_a_circle_are_unknown() -> None:
    text = LINK + 'locals {\n  a = local.b\n  b = "${local.a}"\n}\n'
    imported = terraform_import.read((ForeignDocument("main.tf", text),))
    assert [flow.id for flow in imported.flows] == ["lkc-1-to-lkc-2"]
