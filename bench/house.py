"""What the source looks like from inside: a table of one commit and of the tree as it stands.

Names, docstrings, complexity, import cycles, sizes: counted from the files, nothing is imported or run.
`HOUSE_BEFORE=COMMIT` chooses the commit on the left side; `make house` prints, and writes bench/results/house.json.

`python -m watershed.bench.house --check` is part of `make check`: it fails for a new import cycle, for a public name
that two
modules define, for one more function with a one-word name, and for a docstring that promises a class which does not
exist. What is known below may only become less.
"""

from __future__ import annotations

import ast
import builtins
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import networkx as nx

_ROOT = Path(__file__).resolve().parent.parent
_ROOMS = ("topology", "clusters", "replicator", "cutover", "spark", "plugins", "dags", "cli", "lab", "bench")
_BEFORE = "bfe4595"  # the last commit before the work on names and rooms began
_PROTOCOL = frozenset({"main", "RULE", "check"})  # what a program or a lint rule must define; not a choice of words
# Module-level names that many modules have by convention: every module logs; an importer of a foreign format is a
# module with these functions (`topology.interop`).
_CONVENTIONS = frozenset({"log", "read", "write", "recognises"})
_MOST_ONE_WORD_FUNCTIONS = 5
_COMPLEX = 10  # McCabe's number, the bound of ruff's C90 here
_LARGEST = 12
_DOCSTRINGS = re.compile(r'"""[\s\S]*?"""')
_PROMISES = re.compile(r"(?:Raises|→) ((?:_?[A-Z]\w+(?:, and |, or |, | and | or )?)+)")  # the errors, or the answer
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class _Source:
    """A module of the product: `name` is its dotted path, `path` that in the repository."""

    name: str
    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return self.text.count("\n")


@dataclass(frozen=True)
class House:
    """A tree of the repository: `root` is where it lies."""

    root: Path
    sources: tuple[_Source, ...]
    readme_lines: int
    strict_rooms: int


def read_house(root: Path) -> House:
    """The modules below `root`, tests left out. Raises SyntaxError where one is no Python."""
    sources = [
        _Source(_name_module(path.relative_to(root)), str(path.relative_to(root)), path.read_text("utf-8"))
        for room in _ROOMS
        for path in sorted((root / room).rglob("*.py"))
    ]
    readme = root / "README.md"
    mypy = tomllib.loads((root / "pyproject.toml").read_text("utf-8")).get("tool", {}).get("mypy", {})
    files = mypy.get("files", ()) if mypy.get("strict") else ()
    strict = [room for room in _ROOMS if room in files or "watershed" in files]
    return House(root, tuple(sources), readme.read_text("utf-8").count("\n") if readme.exists() else 0, len(strict))


def measure_house(house: House) -> dict[str, str]:
    """The rows of the table: what is measured, and its figure as text."""
    names = [(source.name, name) for source in house.sources for name in _list_public_names(source.tree)]
    counted = Counter(name for _, name in names)
    shared = sum(count for count in counted.values() if count > 1)
    functions = [
        node
        for source in house.sources
        for node in source.tree.body
        if isinstance(node, _Function) and _is_public(node.name)
    ]
    single = [node for node in functions if "_" not in node.name]
    top = [node for source in house.sources for node in _list_documented(source.tree.body)]
    deep = [node for source in house.sources for node in _walk_public(source.tree)]
    return {
        "public top-level names": str(len(names)),
        "of these, defined in two or more modules": _share(shared, len(names)),
        "public functions at top level": str(len(functions)),
        "of these, with a name of one word": _share(len(single), len(functions)),
        "public functions and classes without a docstring, top level": _share(_count_bare(top), len(top)),
        "the same with methods": _share(_count_bare(deep), len(deep)),
        f"functions over complexity {_COMPLEX}": str(len(list_complex_functions(house.root))),
        "import cycles, imports inside functions counted": str(len(find_import_cycles(house.sources))),
        "rooms under strict mypy": f"{house.strict_rooms} of {len(_ROOMS)}",
        "classes with more than 12 fields": str(sum(fields > 12 for _, fields in _count_fields(house.sources))),
        "lines of README.md": str(house.readme_lines),
        "source files, tests left out": str(len(house.sources)),
        "source lines, tests left out": str(sum(source.lines for source in house.sources)),
    }


def list_complex_functions(root: Path) -> list[str]:
    """`path:line name` of every function that ruff finds more complex than allowed."""
    rule = ["--isolated", "--select", "C901", "--config", f"lint.mccabe.max-complexity={_COMPLEX}"]
    rooms = [room for room in _ROOMS if (root / room).is_dir()]
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "json", *rule, *rooms]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"ruff could not read {root}: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    return [f"{Path(each['filename']).name}:{each['location']['row']} {each['message']}" for each in found]


def find_import_cycles(sources: Iterable[_Source]) -> list[list[str]]:
    """Groups of modules that import each other, also over others. Imports inside functions count."""
    known = {source.name: source for source in sources}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for source in known.values():
        for name in _list_imports(source.tree, known):
            if name != source.name:
                graph.add_edge(source.name, name)
    return sorted(sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1)


def list_largest(house: House) -> dict[str, list[str]]:
    """The largest modules and functions by lines, the largest classes by fields and lines."""
    modules = sorted(((source.lines, source.path) for source in house.sources), reverse=True)
    functions, classes = [], []
    for source in house.sources:
        for node in ast.walk(source.tree):
            size = getattr(node, "end_lineno", 0) - getattr(node, "lineno", 0) + 1
            if isinstance(node, _Function):
                functions.append((size, f"{source.path} {node.name}"))
            elif isinstance(node, ast.ClassDef):
                classes.append((size, f"{source.path} {node.name}, {len(_list_fields(node))} fields"))
    return {
        kind: [f"{size} {where}" for size, where in sorted(found, reverse=True)[:_LARGEST]]
        for kind, found in (("modules", modules), ("functions", functions), ("classes", classes))
    }


def check_house(house: House) -> list[str]:
    """What breaks the rules for names and imports, one line each: the place, the fault, what to do."""
    found = []
    for cycle in find_import_cycles(house.sources):
        found.append(
            f"{', '.join(cycle)}: these modules import each other (imports inside functions count); "
            "move what both need into a module of its own"
        )
    for name, modules in find_shared_names(house).items():
        found.append(
            f"{', '.join(modules)}: each defines the public name {name}; give them names that tell them apart, or "
            "begin it with _ where only its module uses it"
        )
    single = list_one_word_functions(house)
    if len(single) > _MOST_ONE_WORD_FUNCTIONS:
        found.append(
            f"{len(single)} public functions have a name of one word, {_MOST_ONE_WORD_FUNCTIONS} are known: "
            f"{', '.join(single)}; name the new one by a verb and its object"
        )
    for where, names in find_unknown_classes(house).items():
        found.append(
            f"{where}: its docstring names {', '.join(names)}, which no module has; name what it raises or gives"
        )
    return found


def find_unknown_classes(house: House) -> dict[str, list[str]]:
    """`module.function` or class → what its docstring has behind "Raises" or an arrow and no code of the tree names."""
    known = set(dir(builtins))
    for source in house.sources:
        known.update(re.findall(r"\w+", _DOCSTRINGS.sub("", source.text)))
    found: dict[str, list[str]] = {}
    for source in house.sources:
        for node in _walk_statements(source.tree.body):
            if isinstance(node, _Documented):
                text = " ".join((ast.get_docstring(node) or "").split())
                named = {name for match in _PROMISES.findall(text) for name in re.findall(r"_?[A-Z]\w+", match)}
                if named - known:
                    found[f"{source.name}.{node.name}"] = sorted(named - known)
    return found


def find_shared_names(house: House) -> dict[str, list[str]]:
    """Public top-level names that two or more modules define, with the modules; conventions left out."""
    modules: dict[str, list[str]] = defaultdict(list)
    for source in house.sources:
        for name in _list_public_names(source.tree):
            if name not in _CONVENTIONS:
                modules[name].append(source.name)
    return {name: found for name, found in sorted(modules.items()) if len(found) > 1}


def list_one_word_functions(house: House) -> list[str]:
    """`module.name` of public top-level functions with a one-word name; commands are named by what people type."""
    return [
        f"{source.name}.{node.name}"
        for source in house.sources
        for node in source.tree.body
        if isinstance(node, _Function)
        and _is_public(node.name)
        and "_" not in node.name
        and node.name not in _CONVENTIONS
        and not _is_command(node)
    ]


def main(arguments: Sequence[str] = ()) -> int:
    """Prints the table, the largest and the cycles, and writes bench/results/house.json; with `--check` only what has
    become worse. Returns the exit code."""
    if arguments:
        faults = check_house(read_house(_ROOT))
        for fault in faults:
            click.echo(f"house: {fault}", err=True)
        return 1 if faults else 0
    commit = os.environ.get("HOUSE_BEFORE") or _BEFORE
    after = read_house(_ROOT)
    try:
        before = _measure_commit(commit)
    except subprocess.CalledProcessError as error:
        click.echo(f"house: no commit {commit} here ({error.stderr.decode().strip()}); set HOUSE_BEFORE", err=True)
        return 2
    now = measure_house(after)
    width = max(map(len, now))
    click.echo(f"{'':<{width}}  {commit:>12}  {'now':>12}")
    for row, figure in now.items():
        click.echo(f"{row:<{width}}  {before[row]:>12}  {figure:>12}")
    largest = list_largest(after)
    for kind, found in largest.items():
        click.echo(f"\nthe largest {kind}, in lines")
        click.echo("\n".join(f"  {each}" for each in found))
    cycles = find_import_cycles(after.sources)
    for cycle in cycles:
        click.echo(f"\nimport cycle: {', '.join(cycle)}")
    results = Path(__file__).resolve().parent / "results"
    results.mkdir(exist_ok=True)
    document: dict[str, Any] = {
        "before": {"commit": commit, **before},
        "now": now,
        "largest": largest,
        "cycles": cycles,
    }
    (results / "house.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure_commit(commit: str) -> dict[str, str]:
    done = subprocess.run(["git", "archive", "--format=tar", commit], cwd=_ROOT, capture_output=True, check=True)
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(directory, filter="data")
        return measure_house(read_house(Path(directory)))


def _is_command(node: _Documented) -> bool:
    """Whether click makes a command of the function."""
    return any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in ("command", "group")
        for each in node.decorator_list
    )


def _name_module(path: Path) -> str:
    return ".".join(("watershed", *path.with_suffix("").parts)).removesuffix(".__init__")


def _is_public(name: str) -> bool:
    return not name.startswith("_") and name not in _PROTOCOL


def _list_documented(nodes: Iterable[ast.AST]) -> Iterator[_Documented]:
    """The functions and classes among them that a reader from outside sees: they need a docstring."""
    yield from (node for node in nodes if isinstance(node, _Documented) and not node.name.startswith("_"))


def _count_bare(nodes: Iterable[_Documented]) -> int:
    return sum(ast.get_docstring(node) is None for node in nodes)


def _list_public_names(tree: ast.Module) -> Iterator[str]:
    """Functions, classes, constants and aliases that a module defines at its top; each once."""
    seen: set[str] = set()
    for node in tree.body:
        if isinstance(node, _Documented):
            seen.add(node.name)
        elif isinstance(node, ast.Assign):
            seen.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            seen.add(node.target.id)
    yield from sorted(name for name in seen if _is_public(name))


def _walk_public(tree: ast.Module) -> Iterator[_Documented]:
    """Public functions and classes, and the public methods of public classes."""
    for node in _list_documented(tree.body):
        yield node
        if isinstance(node, ast.ClassDef):
            yield from _list_documented(node.body)


def _list_imports(tree: ast.Module, known: Mapping[str, _Source]) -> Iterator[str]:
    for node in _walk_statements(tree.body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                path = f"{node.module}.{alias.name}"
                if path in known:
                    yield path
                elif node.module in known:
                    yield node.module


def _walk_statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every statement, also nested ones; `ast.walk` also visits expressions and takes three times as long."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            nested = getattr(node, field, None)
            if isinstance(nested, list):
                yield from _walk_statements(nested)


def _list_fields(node: ast.ClassDef) -> list[str]:
    """What an object of the class holds: annotated names, and attributes that `__init__` sets."""
    found = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    for method in node.body:
        if isinstance(method, _Function) and method.name == "__init__":
            found |= {
                each.attr
                for each in ast.walk(method)
                if isinstance(each, ast.Attribute)
                and isinstance(each.ctx, ast.Store)
                and isinstance(each.value, ast.Name)
                and each.value.id == "self"
            }
    return sorted(found)


def _count_fields(sources: Iterable[_Source]) -> list[tuple[str, int]]:
    found: dict[str, int] = defaultdict(int)
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                found[f"{source.path} {node.name}"] = len(_list_fields(node))
    return sorted(found.items())


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.1%})" if whole else "0"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
