"""`topology rollback` on the command line, without clusters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from watershed.cli.rollback import rollback

EXAMPLE = "topology/examples/migration.yaml"


def run(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(rollback, arguments, standalone_mode=False)
    if found.exception is not None:
        raise found.exception
    return found.return_value, found.output


def test_a_dry_run_shows_every_step_with_its_undo_and_touches_nothing() -> None:
    code, text = run(EXAMPLE, "--wave", "orders", "--dry-run")
    assert code == 0
    assert "rollback of orders, cloud → onprem" in text
    assert "producers stop at cloud" in text
    assert "undo: producers start at cloud again" in text
    assert "POINT OF NO RETURN" in text
    assert "no writes  about" in text
    assert text.rstrip().endswith("Nothing was touched.")


def test_a_dry_run_as_json() -> None:
    code, text = run(EXAMPLE, "--wave", "orders", "--dry-run", "--format", "json")
    document = json.loads(text)
    assert code == 0
    assert (document["kind"], document["wave"]) == ("rollback", "orders")
    names = [step["name"] for step in document["steps"]]
    assert names[0] == "preflight_back"
    assert names.index("translate_back") < names.index("commit_back") < names.index("point_of_no_return")


def test_without_a_flow_back_there_is_nothing_but_a_refusal(tmp_path: Path) -> None:
    text = Path(EXAMPLE).read_text().replace("{until: 72h, reverse: cloud-to-onprem}", "{none: the source is sold}")
    path = tmp_path / "t.yaml"
    path.write_text(text)
    _, told = run(str(path), "--wave", "orders", "--dry-run")
    assert "switch_producers" not in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--force",), "--force goes with --abandon"),
        (("--abandon", "--resume"), "--abandon goes without"),
        (("--run", "a/b"), "use letters"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(Exception, match=words):
        run(EXAMPLE, "--wave", "orders", *arguments)
