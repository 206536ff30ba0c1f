"""What `make soak-kafka` refuses before it starts a cluster."""

from __future__ import annotations

import re

import pytest

from tests.soak import kafka_matrix
from watershed.clusters.errors import ClusterError, RequestRefused, RequestUnsupported, Unauthorised, Unreachable
from watershed.replicator.apply_refusals import CannotApply
from watershed.topology.delivery_guarantee import GuaranteeDecision, MissingCapability


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--cases", "plian"], "there is no case 'plian'"),
        (["--cases", f"{kafka_matrix.CASES[0].name},"], "there is no case ''"),
        (["--pairs", "2.4.1"], "'2.4.1' is not SOURCE/TARGET"),
        (["--pairs", "2.4.1/9.9.9"], "'2.4.1/9.9.9' is not SOURCE/TARGET"),
    ],
)
def test_a_mistyped_choice_is_refused(
    arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kafka_matrix", *arguments])
    with pytest.raises(SystemExit) as ended:
        kafka_matrix.main()
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_a_right_choice_runs_these_cases_of_these_pairs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, str, list[str]]] = []

    def run(source: str, target: str, cases: list[kafka_matrix.MatrixCase]) -> bool:
        ran.append((source, target, [case.name for case in cases]))
        return True

    name = kafka_matrix.CASES[0].name
    monkeypatch.setattr(kafka_matrix, "run_pair", run)
    monkeypatch.setattr("sys.argv", ["kafka_matrix", "--cases", name, "--pairs", "2.4.1/4.3.1"])
    assert kafka_matrix.main() == 0
    assert ran == [("2.4.1", "4.3.1", [name])]


def test_every_other_server_is_tried_in_both_directions() -> None:
    assert kafka_matrix._choose_pairs("others") == [
        ("kfake-apache", "4.3.1"),
        ("4.3.1", "kfake-apache"),
        ("kfake-event-hubs", "4.3.1"),
        ("4.3.1", "kfake-event-hubs"),
        ("kfake-redpanda", "4.3.1"),
        ("4.3.1", "kfake-redpanda"),
        ("tansu", "4.3.1"),
        ("4.3.1", "tansu"),
    ]
    assert len(kafka_matrix._choose_pairs("")) == 28 + 8


def test_the_page_has_releases_and_other_servers_apart() -> None:
    found = {"plain": {"outcome": "held", "told": "", "day": "2026-01-02"}}
    refused = {"plain": {"outcome": "refused", "told": "no ids", "day": "2026-01-03"}}
    probes = {"tansu": {"tried": {"log_ends": {"works": False, "told": "4"}, "markers": {"works": None, "told": ""}}}}
    page = kafka_matrix.render_table({"2.4.1/4.3.1": found, "4.3.1/tansu": refused}, probes)
    releases, others = page.split("## Servers that are not Apache's")
    assert re.search(r"\| 2\.4\.1 \| 4\.3\.1 \| yes \|.* 2026-01-02 \|", releases)
    assert "1 of 28 pairs were run." in releases
    assert re.search(r"\| 4\.3\.1 \| tansu \| refused \|.* 2026-01-03 \|", others)
    assert "| `log_ends` | does not |\n| `markers` | not tried |\n" in others


METADATA = MissingCapability(
    "cloud", "target", "metadata at cloud", "the target needs metadata in versions 10 to 13", ""
)
LOG_ENDS = MissingCapability("cloud", "target", "the right end of a log", "it does not have the right end of a log", "")


@pytest.mark.parametrize(
    ("error", "is_meant"),
    [
        (CannotApply("flow f cannot have `exactly_once`: it does not have the right end of a log"), True),
        (RequestUnsupported("b:1 is too old to be asked metadata in versions 10 to 13"), True),
        (RequestRefused("cluster cloud answered INVALID_CONFIG while creating topics"), False),
        (CannotApply("flow f belongs to topology other"), False),
        (Unreachable("cluster cloud does not answer to metadata"), False),
        (Unauthorised("cluster cloud refused metadata"), False),
    ],
)
def test_only_a_refusal_for_what_is_missing_counts(error: CannotApply | ClusterError, is_meant: bool) -> None:
    decision = GuaranteeDecision("sequence", None, (METADATA, LOG_ENDS))
    assert kafka_matrix.is_meant_refusal(error, decision) is is_meant


def test_what_a_run_made_up_is_not_kept() -> None:
    told = kafka_matrix._without_address("127.0.0.1:20984 of cluster a; topic watershed.probe-aef0ff61ec05")
    assert told == "the broker of cluster a; topic watershed.probe-…"
