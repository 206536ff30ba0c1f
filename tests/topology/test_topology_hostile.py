"""Files that were written to hurt: whatever is in them, the answer is a message, soon and with little memory.

"Soon" is counted in starts: how often the command could have been started for a clean file with the processor time that
it took (2 s are about eight starts on the machines this was written on). A start is measured on the same machine in the
same minute, so a slower or busier machine changes nothing; it compiles what it imports, wherever compiled modules lie.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cases.hostile.corpus import CLEAN, corpus
from tests.examples import choose_examples

ROOT = Path(__file__).parents[2]
MAX_STARTS = 8
MAX_MIB = 300
MAX_LINE = 2_000
SMALL = 1 << 16
CASES = corpus()
# Large ones that differ little from another one, which `make test` has.
ALIKE = {
    *("flows_to_themselves", "flows_with_one_id", "same_spoke_often", "mesh_of_100", "waves_in_a_circle"),
    *("stars_from_all_to_one", "stars_everywhere", "literals_into_one_from_many", "rename_map_to_one_name"),
    *("list_of_empty_lists", "tiny_keys", "tiny_nodes", "complex_keys_many", "selectors_2000", "suppressions_many"),
    *("only_commas", "only_tabs", "only_percent", "only_colons_and_spaces"),
    *("name_of_1_mib", "regex_of_1_mib", "regex_exponential_product"),
}
OTHERS: tuple[tuple[str, ...], ...] = (
    ("lint", "--format", "concise"),
    ("lint", "--format", "json"),
    ("compile",),
    ("graph", "--format", "text"),
)
# what a terminal would obey, reorder or hide
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True)
class Answer:
    exit: int
    starts: float
    mib: float
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        return self.stdout + self.stderr


Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Runs a command in a fork of a warm interpreter; what is counted includes the start that it was spared."""
    folder = tmp_path_factory.mktemp("answers")
    out, err = folder / "out", folder / "err"
    clean = folder / "clean.yaml"
    clean.write_text(CLEAN, encoding="utf-8")
    command = [sys.executable, "-m", "tests.cases.hostile.runner"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdin is not None
        assert runner.stdout is not None

        def once(start: float, *arguments: str) -> Answer:
            print(json.dumps({"arguments": arguments, "out": str(out), "err": str(err)}), file=runner.stdin, flush=True)
            figures = json.loads(runner.stdout.readline())
            texts = (path.read_bytes().decode(errors="backslashreplace") for path in (out, err))
            return Answer(figures["exit"], 1 + figures["cpu"] / start, figures["mib"], *texts)

        def start() -> float:
            return min(_whole_process(["lint", str(clean)], folder / "none") for _ in range(3))

        usual = start()

        def asked(*arguments: str) -> Answer:
            """The cheapest of up to five runs while they are above the bound, each beside a start of its own: a
            neighbour on the processor makes a run dearer, never cheaper."""
            answer = once(usual, *arguments)
            for _ in range(4):
                if not MAX_STARTS < answer.starts < 3 * MAX_STARTS:
                    break
                answer = min(answer, once(start(), *arguments), key=lambda each: each.starts)
            return answer

        yield asked
        runner.stdin.close()


def _whole_process(arguments: list[str], compiled: Path) -> float:
    """CPU seconds from the interpreter's first instruction to its last; `compiled`: a folder that is not there."""
    program = "import sys; from watershed.cli.main import main; sys.exit(main(sys.argv[1:]))"
    own = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(compiled)}
    child = subprocess.Popen([sys.executable, "-c", program, *arguments], cwd=ROOT, env=own, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime


def check(answer: Answer, codes: tuple[int, ...] = (0, 1, 2)) -> None:
    """What holds for every file and every command."""
    assert answer.exit in codes, answer.said[:2_000]
    assert answer.starts <= MAX_STARTS
    assert answer.mib <= MAX_MIB
    assert answer.said.strip() or answer.exit == 0, "no message"
    assert "Traceback" not in answer.said
    assert "defect of Watershed" not in answer.said, answer.said[:2_000]
    assert "hunter2" not in answer.said
    assert HARMFUL.search(answer.said) is None
    assert max(map(len, answer.said.split("\n"))) <= MAX_LINE


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if name in ALIKE else ()) for name in CASES]
)
def test_a_hostile_file_is_answered(name: str, ask: Ask, tmp_path: Path) -> None:
    hostile = CASES[name]()
    path = tmp_path / f"{name}.yaml"
    path.write_bytes(hostile.data)
    answer = ask("lint", str(path))
    check(answer, hostile.exit)
    assert hostile.says in answer.said
    position = list(CASES).index(name)
    most = choose_examples(1, len(OTHERS)) if len(hostile.data) <= SMALL else choose_examples(0, 1)
    others = [*OTHERS, *OTHERS][position % len(OTHERS) :][:most]  # in turn
    for command, *options in others:
        other = ask(command, str(path), *options)
        check(other)
        if options[-1:] == ["json"] and other.exit != 2:
            assert {"findings", "counts"} <= json.loads(other.stdout).keys()


def test_the_corpus_is_large_enough() -> None:
    assert CASES.keys() >= ALIKE
    assert len(CASES) - len(ALIKE) >= 90


def fifo(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path)


def dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def random_device(path: Path) -> None:
    path.symlink_to("/dev/urandom")


def folder(path: Path) -> None:
    path.mkdir()


def folder_of_traps(path: Path) -> None:
    path.mkdir()
    for name, trap in (("a", fifo), ("b", loop), ("c", dangling), ("d", endless), ("e", folder)):
        trap(path / f"{name}.yaml")


def vanished(path: Path) -> None:
    path.write_text(CLEAN, encoding="utf-8")
    path.unlink()


def below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text(CLEAN, encoding="utf-8")


def locked(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    path.touch(mode=0)


@pytest.mark.parametrize(
    "trap",
    [
        fifo,
        loop,
        dangling,
        endless,
        random_device,
        folder,
        folder_of_traps,
        vanished,
        below_a_file,
        locked,
    ],
)
def test_a_path_that_is_no_file_is_one_message(trap: Callable[[Path], None], ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "below" / "t.yaml"
    path.parent.mkdir()
    trap(path)
    for command in ("lint", "compile", "graph"):
        answer = ask(command, str(path))
        check(answer, (2,))
        assert str(path) in answer.stderr


@pytest.mark.parametrize(
    "name",
    [
        "two words.yaml",
        "-rf.yaml",
        "Ünïcödé-北京.yaml",
        '\'; rm -rf "$HOME" #.yaml',
        "%s{0}%(x)s.yaml",
        "line\nbreak.yaml",
        "\x1b[31m.yaml",
        "\udcff.yaml",
    ],
)
def test_a_strange_name_is_a_name(name: str, ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / name
    for text, code in ((CLEAN, 0), (CLEAN + "wrong: 1\n", 1), ("just words\n", 2)):
        path.write_text(text, encoding="utf-8")
        for form in ("text", "json"):
            answer = ask("lint", "--format", form, "--", str(path))
            check(answer, (code,))
            assert name.isprintable() or name not in answer.said
    path.unlink()
    check(ask("lint", "--", str(path)), (2,))


def test_a_name_that_is_too_long_is_one_message(ask: Ask, tmp_path: Path) -> None:
    check(ask("lint", str(tmp_path / ("x" * 1_000 + ".yaml"))), (2,))
