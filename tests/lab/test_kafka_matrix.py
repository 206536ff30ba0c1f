"""What `make soak-kafka` refuses before it starts a cluster."""

from __future__ import annotations

import pytest

from tests.soak import kafka_matrix


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
