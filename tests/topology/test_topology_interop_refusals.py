"""What `topology import` does with files that it should not, or not wholly, read; and the two commands' contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from watershed.cli.main import main
from watershed.topology.errors import UnreadableTopology
from watershed.topology.interop.export_formats import EXPORT_FORMATS, export_topology
from watershed.topology.interop.import_formats import IMPORT_FORMATS, import_path, import_text
from watershed.topology.interop.import_report import build_import_report
from watershed.topology.interop.topology_writer import quote_yaml_text

CASES = Path(__file__).parents[1] / "cases" / "interop"
EXAMPLE = Path(__file__).parents[2] / "topology" / "examples" / "active_standby.yaml"
PAIR = """clusters = a, b
security.protocol = SSL
a.bootstrap.servers = a.example:9093
b.bootstrap.servers = b.example:9093
"""

UNREADABLE = {
    "empty": (b"", "the file is empty"),
    "blank": (b"\n\n# only a comment\n", "none of the formats"),
    "binary": (bytes(range(256)) * 8, "not a text file"),
    "utf-16": ("clusters = a, b".encode("utf-16"), "not a text file"),
    "other properties": (b"key = value\n", "none of the formats"),
    "another kind": (b"apiVersion: kafka.strimzi.io/v1\nkind: Kafka\nmetadata: {name: x}\n", "this is a Kafka"),
    "a topology": (EXAMPLE.read_bytes(), "this is a Topology"),
    "half a JSON": (b'{"name": "x", "config": {"connector.class": "org.', "not complete JSON"),
    "tabs in YAML": (b"kind: KafkaMirrorMaker2\nspec:\n\tclusters: x\n", ":3:1: "),
    "no clusters in it": (b"clusters =\na.bootstrap.servers = x:1\na->b.enabled = true\n", "names no cluster"),
    "pairs without clusters": (b"a->b.enabled = true\n", "no `clusters = "),
    "too large": (b"# x\n" * 400_000, "at most"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_none_of_the_formats_is_one_message(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = UNREADABLE[name]
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UnreadableTopology, match=r"\S") as caught:
        import_path(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert main(["import", str(path)]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert "Traceback" not in out.err
    assert message in out.err


def test_a_missing_file_and_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTopology, match="No such file"):
        import_path(tmp_path / "nothing")
    with pytest.raises(UnreadableTopology, match="a directory without files to import"):
        import_path(tmp_path)


def test_a_directory_of_connectors_is_one_topology(tmp_path: Path) -> None:
    for kind, more in (("Source", {"topics": "orders"}), ("Checkpoint", {"sync.group.offsets.enabled": "true"})):
        config = {
            "connector.class": f"org.apache.kafka.connect.mirror.Mirror{kind}Connector",
            "source.cluster.alias": "a",
            "target.cluster.alias": "b",
            **more,
        }
        (tmp_path / f"{kind}.json").write_text(json.dumps({"name": kind, "config": config}))
    [flow] = import_path(tmp_path).flows
    assert flow.id == "a-to-b"
    assert flow.settings["sync"]["groups"]["mode"] == "continuous"
    (tmp_path / "mm2.properties").write_text(PAIR + "a->b.enabled = true\n")
    with pytest.raises(UnreadableTopology, match="several formats"):
        import_path(tmp_path)


def read_or_refused(text: str, file: str) -> str:
    try:
        return build_import_report(import_text(text, file)).text
    except UnreadableTopology as error:
        return str(error)


@pytest.mark.parametrize("file", ["strimzi_v1beta2.yaml", "connectors.json", "active_active.properties"])
def test_a_truncated_file_ends_in_a_report_or_in_one_message(file: str) -> None:
    whole = (CASES / file).read_text(encoding="utf-8")
    for length in range(0, len(whole), 97):
        assert read_or_refused(whole[:length], file).startswith(("# Imported from", file))


@pytest.mark.parametrize(
    "spec",
    [
        "3",
        "[1, 2]",
        "{clusters: {a: b}, mirrors: 3}",
        "{mirrors: [{sourceCluster: [x], targetCluster: {}}]}",
        "{target: x, mirrors: [{source: y}]}",
        "{target: {alias: {}}, mirrors: [{source: {alias: []}}]}",
        "{clusters: [{alias: a}, {alias: b}], mirrors: [{sourceCluster: a, targetCluster: b, sourceConnector: 5}]}",
        "{clusters: [{alias: a, tls: 1, authentication: {type: tls}, config: 7}], mirrors: []}",
        "{clusters: [*x, {alias: a}], mirrors: [null]}",
    ],
)
def test_a_resource_of_wrong_shapes_ends_in_findings(spec: str) -> None:
    report = build_import_report(import_text(f"kind: KafkaMirrorMaker2\nx: &x {{}}\nspec: {spec}\n", "f"))
    assert report.errors


@pytest.mark.parametrize(
    "value", ["", "null", "[]", "{}", "7", '"org.apache.kafka.connect.mirror.MirrorSourceConnector"']
)
def test_connector_json_of_wrong_shapes(value: str) -> None:
    text = f'[{{"connector.class": "MirrorSourceConnector", "topics": {value or 0}, "config": 3, "tasks.max": []}}]'
    report = build_import_report(import_text(text, "f"))
    assert "source-to-target" not in report.text  # its id is made when it is read
    assert "source: source" in report.text


def test_json_may_be_indented_with_tabs() -> None:
    text = '{\n\t"connector.class": "MirrorSourceConnector",\n\t"topics": "a\\\\.b",\n\t"source.cluster.alias": "x"\n}'
    [flow] = import_text(text, "f").flows
    assert [each.text for each in flow.include] == ["a.b"]


def test_an_address_with_a_password_is_not_echoed() -> None:
    report = build_import_report(
        import_text(PAIR.replace("a.example", "user:hunter2@a.example") + "a->b.enabled = true\n", "f")
    )
    assert report.errors
    assert "hunter2" not in report.to_json()


def test_a_connector_that_is_not_enabled_is_no_flow() -> None:
    text = '{"connector.class": "MirrorSourceConnector", "topics": "a", "enabled": false}'
    imported = import_text(text, "f")
    assert imported.flows == ()
    assert any("not enabled" in each.why for each in imported.not_carried)


@pytest.mark.parametrize(
    ("more", "flows"),
    [
        ("", {"a": "running"}),
        ("b->a.emit.heartbeats.enabled = false\n", {"a": "running"}),
        ("b->a.topics = c\n", {"a": "running"}),
    ],
)
def test_a_pair_that_is_only_switched_off_is_no_flow(more: str, flows: dict[str, str]) -> None:
    """A paused flow back would make both directions copy in transactions, and anybody could resume it."""
    imported = import_text(PAIR + f"a->b.enabled = true\na->b.topics = orders\nb->a.enabled = false\n{more}", "f")
    assert {flow.source: flow.settings.get("state", "running") for flow in imported.flows} == flows
    listed = [str(each) for each in build_import_report(imported).not_carried]
    assert any("switched off: b->a" in each for each in listed) == ("b" not in flows)


def test_a_pair_that_is_switched_off_is_listed_once() -> None:
    report = build_import_report(
        import_text(PAIR + "a->b.enabled = true\na->b.topics = c\nb->a.enabled = false\n", "f")
    )
    assert len([each for each in report.not_carried if "b->a" in str(each)]) == 1


@pytest.mark.parametrize("more", ["", "a->b.enabled = false\nb->a.enabled = false\n"])
def test_a_file_that_copies_nothing_is_warned_of(more: str) -> None:
    report = build_import_report(import_text(PAIR + more, "f"))
    assert [(each.rule, each.severity) for each in report.source] == [("GRF216", "warning")]


def test_a_flow_whose_topics_cannot_be_said_asks_for_them() -> None:
    report = build_import_report(import_text(PAIR + "a->b.enabled = true\na->b.topics = (?=x)y\n", "f"))
    assert "# fill in: topics" in report.text
    assert any("look-around" in str(each) for each in report.not_carried)
    assert {finding.rule for finding in report.result} >= {"SYN012"}


def test_exit_codes_and_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean = tmp_path / "clean.properties"
    clean.write_text(
        PAIR + "a->b.enabled = true\na->b.topics = orders\nreplication.factor = 3\nsync.topic.acls.enabled = false\n"
    )
    assert main(["import", str(clean)]) == 0
    out = capsys.readouterr()
    assert out.out.startswith("# Imported from")
    assert "Not carried over" not in out.out
    assert main(["import", str(CASES / "typing_errors.properties")]) == 1
    assert "clean.properties" not in capsys.readouterr().err
    assert main(["-q", "import", str(clean)]) == 0
    assert capsys.readouterr().err == ""
    assert main(["import", str(clean), "-o", str(tmp_path / "out.yaml")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "out.yaml").read_text().startswith("# Imported from")
    assert main(["import", "--from", "nothing", str(clean)]) == 2
    assert "none of" in capsys.readouterr().err


def test_the_json_of_an_import(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--json", str(CASES / "identity.properties")]) == 1
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"schema", "topology", "not_carried", "findings"}
    assert document["schema"] == 1
    assert {each["in"] for each in document["findings"]} <= {"source", "topology"}
    found = {each["rule"] for each in document["findings"] if each["in"] == "source"}
    assert found >= {"GRF201", "SYC502", "SEC601", "SEC602", "SEC604", "CLU102", "CLU103", "NAM307", "TPC401"}
    assert all(set(each) == {"what", "why", "file", "line"} for each in document["not_carried"])


@pytest.mark.parametrize("name", ["mm2", "strimzi"])
def test_the_contract_of_an_export(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(EXAMPLE), "--as", name]) == 0
    out = capsys.readouterr()
    assert "Not carried over" in out.err
    assert main(["export", str(EXAMPLE), "--as", name, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["text"] == out.out
    assert document["format"] == name
    assert main(["export", str(EXAMPLE), "--as", name, "-o", str(tmp_path / "file")]) == 0
    assert (tmp_path / "file").read_text() == out.out
    broken = EXAMPLE.parent / "broken" / "loop.yaml"
    assert main(["export", str(broken), "--as", name]) == 1
    assert main(["export", str(EXAMPLE), "--as", "mirror"]) == 2


def test_what_a_report_quotes_from_a_foreign_file_is_harmless_to_a_terminal() -> None:
    hostile = PAIR + "a->b.enabled = true\na->b.topics = or\\u001bders[\na->b.\\u202esetting = 1\n"
    report = build_import_report(import_text(hostile, "mm2.properties"))
    texts = [each.message + each.help + "".join(each.notes) for each in (*report.source, *report.result)]
    texts += [str(each) for each in report.not_carried]
    assert any("x1b" in text for text in texts)
    assert any("u202e" in text for text in texts)
    assert not any(letter in text for text in texts for letter in "\x1b\u202e")


def test_every_format_can_be_asked_for() -> None:
    assert len({each.name for each in IMPORT_FORMATS}) == len(IMPORT_FORMATS)
    assert len({each.name for each in EXPORT_FORMATS}) == len(EXPORT_FORMATS)
    for each in (*IMPORT_FORMATS, *EXPORT_FORMATS):
        assert each.what
    for form in IMPORT_FORMATS:
        assert callable(form.recognises)
        assert callable(form.read)
    with pytest.raises(KeyError, match="no format x"):
        export_topology(None, "x")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["😀", 'a "b" \\ c', "\u202e\t\x07", "ä\u2028ü", ""])
def test_text_in_double_quotes_is_the_same_text_in_yaml(text: str) -> None:
    assert yaml.safe_load(quote_yaml_text(text)) == text
