"""The mistakes that people make in a topology file: one edit of a clean file, and what is said of it, and where."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from watershed.topology.errors import UnreadableTopology
from watershed.topology.lint import lint_topology
from watershed.topology.loader import STDIN_PATH, load_topology, parse_topology

CLEAN = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {name: orders-move, owner: team-orders}
clusters:
  onprem:
    bootstrap: ["k1.onprem.example:9093", "k2.onprem.example:9093"]
    security: {protocol: SASL_SSL, mechanism: SCRAM-SHA-512, credentials: {env: KAFKA_ONPREM}}
    facts: {brokers: 3, kafka: "4.1"}
  cloud:
    bootstrap: ["k1.cloud.example:9093", "k2.cloud.example:9093"]
    facts: {brokers: 3, kafka: "4.1"}
defaults:
  workers: {quota: 40MiB/s}
  slo: {lag: {p99: 10s, max: 5m}}
pattern:
  active_standby:
    active: onprem
    standby: cloud
    topics: {include: [{glob: "orders.*"}]}
    failback: {reverse: declared_paused}
migration:
  flow: onprem-to-cloud
  waves:
    - name: canary
      topics: [orders.test]
      gates: {before: [{lag: {max_records: 0, hold: 5m}}]}
      rollback: {until: 24h, reverse: cloud-to-onprem}
    - name: main
      after: [canary]
      topics: [orders.paid]
      window: {opens: "2030-03-09T02:00:00Z", length: 2h}
"""
FACTS = '    facts: {brokers: 3, kafka: "4.1"}\n  cloud'
# name: (what is replaced once, by what, line, rule, fragment of the message, fragment of the help)
MISTAKES: dict[str, tuple[str, str, int, str, str, str]] = {
    "a blank too few": (FACTS, FACTS[1:], 8, "SYN001", "indentation of 3 blanks", "4 blanks (as in line 7)"),
    "too deep": ("    security", "      security", 7, "SYN001", "indentation of 6", "4 blanks (as in line 6)"),
    "a tab": ("    security", "\tsecurity", 7, "SYN001", "a tab", "spaces"),
    "a quote left open": ('k2.onprem.example:9093"', "k2.onprem.example:9093", 6, "SYN001", "quote", "close it"),
    "a bracket left open": ('k2.onprem.example:9093"]', 'k2.onprem.example:9093"', 6, "SYN001", "`[`", "`]`"),
    "no blank after the colon": ("standby: cloud", "standby:cloud", 18, "SYN001", "after the `:`", "`standby: …`"),
    "no colon": ("migration:", "migration", 21, "SYN001", "without `:`", "key: value"),
    "no blank after the dash": ("- name: main", "-name: main", 28, "SYN001", "after the `-`", "`- `"),
    "a template": ("  cloud:\n", "  cloud:\n    {{ .Values.x }}\n", 10, "SYN001", "template", "helm template"),
    "an unseen blank": ("    active", "   \xa0active", 17, "SYN001", "U+00A0", "blanks"),
    "a second colon": ("standby: cloud", "standby: a: b", 18, "SYN001", "mapping values", "quote the text"),
    "two groups made one": (
        "slo: {lag: {p99: 10s, max: 5m}}",
        "sync: {groups: {mode: continuous, rename: {web: shop, app: shop}}}",
        14,
        "SYN011",
        "two groups are renamed to `shop`",
        "",
    ),
    "at sign": ("active: onprem", "active: @onprem", 17, "SYN001", "cannot begin with `@`", "quotes"),
    "an escape": ('glob: "orders.*"', 'regex: "orders\\.x"', 19, "SYN001", "backslash", "single quotes"),
    "a conflict": ("defaults:\n", "<<<<<<< ours\ndefaults:\n", 12, "SYN001", "merge conflict", "marks"),
    "a section misspelt": ("clusters:", "cluster:", 4, "SYN003", "`cluster`", "`clusters`"),
    "a key misspelt": ("bootstrap:", "bootstrp:", 6, "SYN003", "`bootstrp`", "`bootstrap`"),
    "a pattern misspelt": ("active_standby:", "active-standby:", 16, "SYN003", "in `pattern`", "`active_standby`"),
    "a client's password": (
        "credentials: {env: KAFKA_ONPREM}",
        "username: {env: KAFKA_ONPREM}",
        7,
        "SYN003",
        "`username`",
        "did you mean `credentials`? it names where `user:password` stand",
    ),
    "a client's addresses": ("bootstrap:", "bootstrap.servers:", 6, "SYN003", "`bootstrap.servers`", "`bootstrap`"),
    "a text for a list": ("[canary]", "canary", 29, "SYN011", "expected a list", "`[canary]`"),
    "a number for a mapping": ("{max_records: 0, hold: 5m}", "0", 26, "SYN011", "a mapping", "{max_records: 0, hold: "),
    "a list for topics": (
        '{include: [{glob: "orders.*"}]}',
        "[orders.a]",
        19,
        "SYN011",
        "a list",
        "{include: [orders.a]}",
    ),
    "a port missing": ("k1.onprem.example:9093", "k1.onprem.example", 6, "SYN011", "port is missing", ""),
    "a port too large": ("k1.onprem.example:9093", "k1.onprem.example:90930", 6, "SYN011", "1 to 65535", ""),
    "a scheme": ("k1.onprem", "https://k1.onprem", 6, "SYN011", "without `https://`", ""),
    "a duration of ISO": ("24h", "P1D", 27, "SYN011", "units: ms, s, m", ""),
    "a number for a text": ('"4.1"', "4.1", 8, "SYN004", "is a number to YAML", '"4.1"'),
    "yes": ('kafka: "4.1"', "tiered_storage: yes", 8, "SYN004", "truth value", "`true`"),
    "an instant": ('"2030-03-09T02:00:00Z"', "2030-03-09 02:00", 31, "SYN004", "a date", '"2030-03-09T02:00Z"'),
    "a number in quotes": ("brokers: 3", 'brokers: "3"', 8, "SYN011", "in quotes", "`3`"),
    "a glob as an alias": ('{glob: "orders.*"}', "*orders", 19, "SYN014", "alias", '`{glob: "*orders"}`'),
    "a tag": ("{env: KAFKA_ONPREM}", "!env KAFKA_ONPREM", 7, "SYN014", "tag", "`{env: KAFKA_ONPREM}`"),
    "a protocol": ("SASL_SSL", "SASL-SSL", 7, "SYN011", "`SASL-SSL`", ""),
    "a mechanism": ("SCRAM-SHA-512", "SCRAM-SHA512", 7, "SYN011", "did you mean `SCRAM-SHA-512`", ""),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_where_it_is(name: str) -> None:
    old, new, line, rule, message, help_ = MISTAKES[name]
    text = CLEAN.replace(old, new, 1)
    assert text != CLEAN
    found = [each for each in lint_topology(parse_topology(text)).findings if each.rule.startswith("SYN")]
    assert [(each.rule, each.span.line) for each in found] == [(rule, line)]
    assert message in found[0].message
    assert help_ in found[0].help


def test_the_file_is_clean_without_a_mistake() -> None:
    assert [each for each in lint_topology(parse_topology(CLEAN)).findings if each.rule.startswith("SYN")] == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: Topology", "kind: topology", "line 2: `kind: topology` must be written `kind: Topology`"),
        ("v1alpha1", "v1", "apiVersion topology/v1 in line 1; this Watershed reads `topology/v1alpha1`"),
        (CLEAN, "# Read me\n\nJust text\n\n```yaml\napiVersion: x\n```\n", "none of a topology's sections"),
    ],
)
def test_a_file_that_is_no_topology_is_one_sentence(old: str, new: str, message: str) -> None:
    with pytest.raises(UnreadableTopology) as caught:
        parse_topology(CLEAN.replace(old, new, 1))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (CLEAN.encode("utf-16"), "this is UTF-16; save it as UTF-8"),
        (CLEAN.encode("utf-16-le"), "this is UTF-16"),
        (CLEAN.encode("utf-32"), "this is UTF-32"),
        (CLEAN.replace("team-orders", "Jürgen").encode("latin-1"), "line 3 holds a byte that is not UTF-8 (0xfc)"),
    ],
)
def test_an_encoding_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_bytes(data)
    with pytest.raises(UnreadableTopology) as caught:
        load_topology(path)
    assert message in str(caught.value)


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(CLEAN.encode())))
    loaded = load_topology(STDIN_PATH)
    assert loaded.sources == {"-": CLEAN}
    assert loaded.problems == ()
