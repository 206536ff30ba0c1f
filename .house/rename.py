"""Give modules and names of the repo new names, by the tables beside this file (working tool of issue 16).

    python .house/rename.py [--only ROOM ...] [--check]

Tables: *.map, tab separated: `module OLD NEW`, `name MODULE:OLD NEW` (MODULE is the old path), `attr MODULE:Class.old NEW`,
`merge` (left to a person). What nobody but its own module uses becomes private. It works on `git ls-files`, and stops
before it writes anything when two names would meet.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOMS = ("topology", "clusters", "replicator", "cutover", "spark", "plugins", "dags", "cli", "lab", "bench")
KEEP = {"main", "log", "RULE", "check", "RULES", "pytestmark", "dag"}
TEXTS = (".md", ".toml", ".mk", ".yaml", ".yml", ".sh", ".html", ".js", ".css", ".txt", ".json")


def modname(path: str) -> str:
    return path[:-3].replace("/", ".").removesuffix(".__init__")


class Module:
    def __init__(self, path: str) -> None:
        self.path, self.name = path, modname(path)
        self.source = Path(path).read_text()
        self.tree = ast.parse(self.source)
        self.lines = self.source.split("\n")
        self.edits: list[tuple[int, int, int, str]] = []  # line, byte column, byte length, new text
        self.splits: list[tuple[int, int, str]] = []
        self.package = path.endswith("__init__.py")

    def edit(self, line: int, column: int, old: str, new: str) -> None:
        at = self.lines[line - 1].encode()
        size = len(old.encode())
        if at[column : column + size] != old.encode():
            raise SystemExit(f"{self.path}:{line}:{column}: {old!r} is not there")
        self.edits.append((line, column, size, new))

    def top(self) -> dict[str, ast.AST]:
        found: dict[str, ast.AST] = {}

        def walk(body: list[ast.stmt]) -> None:
            for node in body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    found.setdefault(node.name, node)
                elif isinstance(node, ast.Assign):
                    for target in node.targets:
                        for each in ast.walk(target):
                            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                                found.setdefault(each.id, node)
                elif isinstance(node, ast.AnnAssign | ast.AugAssign) and isinstance(node.target, ast.Name):
                    found.setdefault(node.target.id, node)
                elif isinstance(node, ast.If | ast.Try | ast.With):
                    for part in ("body", "orelse", "finalbody"):
                        walk(getattr(node, part, []))
                    for handler in getattr(node, "handlers", []):
                        walk(handler.body)

        walk(self.tree.body)
        return found


def bound_in(node: ast.AST) -> set[str]:
    """Names that a function's own scope binds (arguments and stores, not those of inner scopes)."""
    names: set[str] = set()
    outer: set[str] = set()
    if not isinstance(node, ast.ClassDef):
        a = node.args  # type: ignore[attr-defined]
        names |= {x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg)))}

    def walk(each: ast.AST) -> None:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(each.name)
            return
        if isinstance(each, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            for inner in ast.walk(each):  # a walrus in a comprehension binds outside of it
                if isinstance(inner, ast.NamedExpr):
                    names.add(inner.target.id)
            return
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store | ast.Del):
            names.add(each.id)
        elif isinstance(each, ast.ExceptHandler) and each.name:
            names.add(each.name)
        elif isinstance(each, ast.Global | ast.Nonlocal):
            outer.update(each.names)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            names.update((x.asname or x.name.split(".")[0]) for x in each.names)
        elif isinstance(each, ast.MatchAs | ast.MatchStar) and each.name:
            names.add(each.name)
        elif isinstance(each, ast.MatchMapping) and each.rest:
            names.add(each.rest)
        for child in ast.iter_child_nodes(each):
            walk(child)

    body = node.body if isinstance(node.body, list) else [node.body]  # type: ignore[attr-defined]
    for statement in body:
        walk(statement)
    return names - outer


def defaults(a: ast.arguments) -> list[ast.expr]:
    return [x for x in (*a.defaults, *a.kw_defaults) if x is not None]


def annotations(a: ast.arguments) -> list[ast.expr]:
    every = (*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg)))
    return [x.annotation for x in every if x.annotation is not None]


class Repo:
    def __init__(self) -> None:
        files = subprocess.check_output(["git", "ls-files"], text=True).split("\n")
        self.files = [f for f in files if f and Path(f).is_file() and not f.startswith(".house/")]
        self.modules = {modname(f): Module(f) for f in self.files if f.endswith(".py")}
        self.module_moves: dict[str, str] = {}
        self.names: dict[tuple[str, str], str] = {}
        self.attrs: dict[str, str] = {}
        self.problems: list[str] = []

    def load(self, tables: list[Path]) -> None:
        for table in tables:
            for number, line in enumerate(table.read_text().split("\n"), 1):
                parts = [x.strip() for x in line.split("\t") if x.strip()]
                if not parts or parts[0].startswith("#"):
                    continue
                parts = [x.split(" #")[0].strip() for x in parts[:3]]
                if len(parts) < 3:
                    self.problems.append(f"{table.name}:{number}: three columns are wanted: {line!r}")
                elif parts[0] == "module":
                    if parts[1] not in self.modules:
                        self.problems.append(f"{table.name}:{number}: no module {parts[1]}")
                    elif parts[1] != parts[2]:
                        self.module_moves[parts[1]] = parts[2]
                elif parts[0] == "name":
                    module, _, name = parts[1].partition(":")
                    if module not in self.modules:
                        self.problems.append(f"{table.name}:{number}: no module {module}")
                    elif "." not in name and name not in self.modules[module].top() and "_" + name in self.modules[module].top():
                        if parts[2].lstrip("_") != name:
                            self.names[(module, "_" + name)] = "_" + parts[2].lstrip("_")
                    elif "." in name or name not in self.modules[module].top():
                        self.problems.append(f"{table.name}:{number}: {module} has no {name}")
                    elif name != parts[2]:
                        self.names[(module, name)] = parts[2]
                elif parts[0] == "attr":
                    self.attrs[parts[1]] = parts[2]

    # -- who uses what ------------------------------------------------------------------------------------------

    def origin(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> tuple[str, str] | None:
        """Where a name that `from module import name` fetches is defined; through re-exports."""
        if module not in self.modules or module in seen:
            return None
        if name in self.modules[module].top():
            return module, name
        for node in ast.walk(self.modules[module].tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        if f"{node.module}.{alias.name}" in self.modules:
                            return None
                        return self.origin(node.module, alias.name, seen | {module})
        return None

    def used_elsewhere(self) -> set[tuple[str, str]]:
        used: set[tuple[str, str]] = set()
        for name, module in self.modules.items():
            aliases = self.aliases(module)
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    for alias in node.names:
                        if (found := self.origin(node.module, alias.name)) and found[0] != name:
                            used.add(found)
                elif isinstance(node, ast.Attribute):
                    if (owner := self.module_of(node.value, aliases)) and (found := self.origin(owner, node.attr)):
                        used.add(found)
        return used

    def aliases(self, module: Module) -> dict[str, str]:
        found: dict[str, str] = {}
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    if f"{node.module}.{alias.name}" in self.modules:
                        found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname and alias.name in self.modules:
                        found[alias.asname] = alias.name
                    elif not alias.asname and alias.name.split(".")[0] in self.modules:
                        found[alias.name.split(".")[0]] = alias.name.split(".")[0]
        return found

    def module_of(self, node: ast.expr, aliases: dict[str, str]) -> str | None:
        if isinstance(node, ast.Name):
            return aliases.get(node.id)
        if isinstance(node, ast.Attribute) and (owner := self.module_of(node.value, aliases)):
            path = f"{owner}.{node.attr}"
            return path if path in self.modules else None
        return None

    def make_private(self, rooms: tuple[str, ...]) -> None:
        used = self.used_elsewhere()
        words: collections.Counter[str] = collections.Counter()
        for file in self.files:
            if not file.endswith((".py", *TEXTS)) and file != "Makefile":
                continue
            text = Path(file).read_text(errors="replace")
            words.update({m for m in re.findall(r"[\"'`:.](\w+)[\"'`]", text)})  # named in a string somewhere
        for name, module in self.modules.items():
            if name.split(".")[0] not in rooms or name.split(".")[0] == "dags" or name.endswith("__main__"):
                continue
            for old, node in module.top().items():
                if old.startswith("_") or old in KEEP or (name, old) in used:
                    continue
                decorated = bool(getattr(node, "decorator_list", []))
                if decorated and isinstance(node, ast.FunctionDef):
                    continue  # a command, a fixture: somebody else calls it
                value = getattr(node, "value", None)
                if isinstance(value, ast.Call) and getattr(value.func, "id", "") in ("TypeVar", "ParamSpec", "NewType"):
                    continue
                if words[old] and old != old.upper():
                    continue
                if isinstance(node, ast.ClassDef) and name.startswith("plugins"):
                    continue
                new = "_" + self.names.get((name, old), old).lstrip("_")
                if new not in module.top():
                    self.names[(name, old)] = new

    # -- edits ---------------------------------------------------------------------------------------------------

    def rename(self) -> None:
        for name, module in self.modules.items():
            renames: dict[str, str] = {}  # module-level name here -> new
            for old in module.top():
                if new := self.names.get((name, old)):
                    renames[old] = new
            imported: dict[str, str] = {}
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    for alias in node.names:
                        if f"{node.module}.{alias.name}" in self.modules:
                            continue
                        found = self.origin(node.module, alias.name)
                        new = self.names.get(found) if found else None
                        if new:
                            module.edit(alias.lineno, alias.col_offset, alias.name, new)
                            if not alias.asname:
                                imported[alias.name] = new
            everything = {**imported, **renames}
            moved = self.moved_aliases(module, everything)
            if everything:
                self.rename_scope(module, module.tree, everything, set())
            self.rename_attributes(module)
            self.rename_all(module, everything)
            self.rename_strings(module)
            del moved

    def rename_all(self, module: Module, everything: dict[str, str]) -> None:
        """`__all__`: gone from modules (private names say it); packages and tests keep theirs. And "Forward" references."""
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                if module.package or module.name.startswith("tests"):
                    for each in node.value.elts:  # type: ignore[attr-defined]
                        if each.value in everything:
                            module.edit(each.lineno, each.col_offset + 1, each.value, everything[each.value])
                else:
                    module.splits.append((node.lineno, node.end_lineno, ""))
        literals = {
            id(each)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal"
            for each in ast.walk(node.slice)
        }
        for node in ast.walk(module.tree):
            for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
                if isinstance(part, ast.expr):
                    for each in ast.walk(part):
                        if not (isinstance(each, ast.Constant) and isinstance(each.value, str)) or id(each) in literals:
                            continue
                        if each.value in everything:
                            module.edit(each.lineno, each.col_offset + 1, each.value, everything[each.value])

    def moved_aliases(self, module: Module, everything: dict[str, str]) -> None:
        """`from package import old_module` becomes `from new.package import new_module`; so do all uses."""
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                owners = set()
                for alias in node.names:
                    path = f"{node.module}.{alias.name}"
                    if path in self.modules:
                        new = self.module_moves.get(path, path)
                        package, _, last = new.rpartition(".")
                        owners.add(package)
                        if last != alias.name:
                            module.edit(alias.lineno, alias.col_offset, alias.name, last)
                            if not alias.asname:
                                everything[alias.name] = last
                    else:
                        found = self.origin(node.module, alias.name)
                        home = found[0] if found else node.module
                        owners.add(self.module_moves.get(home, home))
                if owners == {node.module}:
                    continue
                if len(owners) > 1:
                    self.split_import(module, node)
                    continue
                [package] = owners
                line = module.lines[node.lineno - 1]
                column = node.col_offset + 5
                module.edit(node.lineno, column, node.module, package)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in self.module_moves:
                        module.edit(alias.lineno, alias.col_offset, alias.name, self.module_moves[alias.name])

    def split_import(self, module: Module, node: ast.ImportFrom) -> None:
        groups: dict[str, list[str]] = collections.defaultdict(list)
        for alias in node.names:
            path = f"{node.module}.{alias.name}"
            if path in self.modules:
                package, _, last = self.module_moves.get(path, path).rpartition(".")
                word = last
            else:
                found = self.origin(node.module, alias.name)
                home = found[0] if found else node.module
                package = self.module_moves.get(home, home)
                word = (self.names.get(found) if found else None) or alias.name
            groups[package].append(f"{word} as {alias.asname}" if alias.asname else word)
        indent = " " * node.col_offset
        text = "\n".join(f"{indent}from {package} import {', '.join(words)}" for package, words in groups.items())
        module.splits.append((node.lineno, node.end_lineno, text))

    def rename_scope(self, module: Module, scope: ast.AST, renames: dict[str, str], hidden: set[str]) -> None:
        """Rename what resolves to the module's own names. `hidden`: names that an enclosing function binds."""

        def visit(node: ast.AST, hidden: set[str]) -> None:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name in renames and node.name not in hidden and scope_is_module[-1]:
                    self.edit_def(module, node, renames[node.name])
                for part in (*node.decorator_list, node.returns, *defaults(node.args), *annotations(node.args)):
                    if part is not None:
                        visit(part, hidden)
                mine = bound_in(node)
                self.warn(module, node, mine, renames, hidden)
                fetched = {
                    alias.asname or alias.name
                    for each in ast.walk(node)
                    if isinstance(each, ast.ImportFrom)
                    for alias in each.names
                }
                inner = (hidden | mine) - (fetched & set(renames))
                scope_is_module.append(False)
                for each in node.body:
                    visit(each, inner)
                scope_is_module.pop()
            elif isinstance(node, ast.Lambda):
                inner = hidden | bound_in(node)
                for part in defaults(node.args):
                    visit(part, hidden)
                visit(node.body, inner)
            elif isinstance(node, ast.ClassDef):
                if node.name in renames and node.name not in hidden and scope_is_module[-1]:
                    self.edit_def(module, node, renames[node.name])
                for part in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
                    visit(part, hidden)
                scope_is_module.append(False)
                mine = bound_in(node)
                for each in node.body:  # the body sees the class's names, its methods do not
                    visit_class(each, hidden, mine)
                scope_is_module.pop()
            elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
                mine = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
                visit(node.generators[0].iter, hidden)
                for at, g in enumerate(node.generators):
                    for part in (g.target, *([] if at == 0 else [g.iter]), *g.ifs):
                        visit(part, hidden | mine)
                for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
                    visit(part, hidden | mine)
            elif isinstance(node, ast.Name):
                if node.id in renames and node.id not in hidden:
                    module.edit(node.lineno, node.col_offset, node.id, renames[node.id])
            elif isinstance(node, ast.Global):
                for name in node.names:
                    if name in renames:
                        line = module.lines[node.lineno - 1]
                        module.edit(
                            node.lineno,
                            len(line[: re.search(rf"\b{name}\b", line).start()].encode()),
                            name,
                            renames[name],
                        )
            else:
                for child in ast.iter_child_nodes(node):
                    visit(child, hidden)

        def visit_class(node: ast.AST, hidden: set[str], mine: set[str]) -> None:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                visit(node, hidden)
            else:
                # A field with the name of a module-level name hides it only behind its own assignment; rare: be careful.
                visit(node, hidden | (mine & set(renames)))

        scope_is_module = [True]
        for each in scope.body:  # type: ignore[attr-defined]
            visit(each, hidden)

    def warn(self, module: Module, node: ast.AST, mine: set[str], renames: dict[str, str], hidden: set[str]) -> None:
        """A local variable that has the new name of something this function uses would hide it."""
        inside = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        for old, new in renames.items():
            if new in mine and old in inside and old not in mine | hidden:
                self.problems.append(f"{module.path}:{node.lineno}: {old} → {new} would be hidden by a local {new}")  # type: ignore[attr-defined]

    def edit_def(self, module: Module, node: ast.AST, new: str) -> None:
        line = node.lineno  # type: ignore[attr-defined]
        text = module.lines[line - 1]
        old = node.name  # type: ignore[attr-defined]
        column = re.compile(rf"(?:def|class)\s+({re.escape(old)})\b").search(text, 0)
        assert column, (module.path, line)
        module.edit(line, len(text[: column.start(1)].encode()), old, new)

    def rename_attributes(self, module: Module) -> None:
        """`alias.name` where alias is a module, and monkeypatch.setattr(alias, "name", …)."""
        aliases = self.aliases(module)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and (owner := self.module_of(node.value, aliases)):
                found = self.origin(owner, node.attr)
                if found and (new := self.names.get(found)):
                    end = node.end_col_offset - len(node.attr.encode())
                    module.edit(node.end_lineno, end, node.attr, new)
                elif f"{owner}.{node.attr}" in self.module_moves:
                    path = f"{owner}.{node.attr}"
                    text = ast.get_source_segment(module.source, node)
                    if text == path:
                        module.edit(node.lineno, node.col_offset, text, self.module_moves[path])
                    else:
                        self.problems.append(f"{module.path}:{node.lineno}: a moved module by a dotted path: {path}")
            elif isinstance(node, ast.Call) and len(node.args) >= 2:
                target, text = node.args[0], node.args[1]
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    owner = self.module_of(target, aliases) if isinstance(target, ast.Name | ast.Attribute) else None
                    found = self.origin(owner, text.value) if owner else None
                    if found and (new := self.names.get(found)):
                        module.edit(text.lineno, text.col_offset + 1, text.value, new)

    def rename_strings(self, module: Module) -> None:
        """Dotted paths in strings: "replicator.seat", "replicator.seating.places", "replicator.seat:places"."""
        for node in ast.walk(module.tree):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)) or node.lineno != node.end_lineno:
                continue
            if not re.search(r"\w\.\w", node.value):
                continue
            segment = module.lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()
            new = self.rewrite(segment)
            if new != segment:
                module.edit(node.lineno, node.col_offset, segment, new)

    def rewrite(self, text: str) -> str:
        """A text in which modules (dotted or as paths) and names behind them have their new names."""

        def dotted(match: re.Match[str]) -> str:
            words = match.group(0)
            parts = re.split(r"([.:])", words)
            for cut in range(len(parts), 0, -2):
                path = "".join(parts[:cut]).replace(":", ".")
                if path in self.modules:
                    rest = parts[cut:]
                    if len(rest) >= 2 and (found := self.origin(path, rest[1])) and found in self.names:
                        rest[1] = self.names[found]
                    return self.module_moves.get(path, path) + "".join(rest)
            return words

        def slashed(match: re.Match[str]) -> str:
            path = modname(match.group(0))
            return self.new_path(match.group(0)) if path in self.module_moves else match.group(0)

        def fetched(match: re.Match[str]) -> str:
            path = match.group(1)
            if path not in self.modules:
                return match.group(0)
            names = []
            for word in match.group(2).split(","):
                name = word.strip()
                found = self.origin(path, name)
                new = self.names.get(found) if found else None
                moved = self.module_moves.get(f"{path}.{name}")
                names.append(word.replace(name, new or (moved.rpartition(".")[2] if moved else name)))
            return f"from {path} import {','.join(names)}"

        rooms = "|".join((*ROOMS, "tests"))
        text = re.sub(r"\bfrom ([\w.]+) import ([\w, ]+)", fetched, text)
        text = re.sub(rf"(?<![\w/.-])(?:{rooms})(?:/\w+)+\.py\b", slashed, text)
        return re.sub(rf"(?<![\w/.-])(?:{rooms})(?:\.\w+)+(?::\w+)?", dotted, text)

    def new_path(self, path: str) -> str:
        new = self.module_moves.get(modname(path))
        if new is None:
            return path
        return new.replace(".", "/") + ("/__init__.py" if path.endswith("__init__.py") else ".py")

    def find_clashes(self) -> None:
        for (name, old), new in self.names.items():
            if new in self.modules[name].top() and (name, new) not in self.names:
                self.problems.append(f"{name}: {old} → {new}, which is there already")
        twice = collections.Counter((m, new) for (m, _), new in self.names.items())
        self.problems += [f"{m}: two names become {new}" for (m, new), n in twice.items() if n > 1]
        paths = collections.Counter(self.module_moves.get(m, m) for m in self.modules)
        self.problems += [f"two modules become {m}" for m, n in paths.items() if n > 1]
        for module in self.modules.values():
            names: dict[str, str] = {}
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    for alias in node.names:
                        found = self.origin(node.module, alias.name)
                        new = self.names.get(found) if found and not alias.asname else None
                        if new and new in module.top() and (module.name, new) not in self.names:
                            self.problems.append(
                                f"{module.path}:{node.lineno}: imports {alias.name} → {new}, its own name"
                            )
                        if new:
                            names[new] = alias.name

    def write(self) -> None:
        for module in self.modules.values():
            lines = [line.encode() for line in module.lines]
            for line, column, length, new in sorted(set(module.edits), reverse=True):
                at = lines[line - 1]
                lines[line - 1] = at[:column] + new.encode() + at[column + length :]
            for first, last, new in module.splits:
                lines[first - 1] = new.encode()
                for at in range(first, last):
                    lines[at] = b"\x00"
            text = "\n".join(line for line in b"\n".join(lines).decode().split("\n") if line != "\x00")
            text = self.rewrite_prose(text)
            if text != module.source:
                Path(module.path).write_text(text)
        for file in self.files:
            if (file.endswith(TEXTS) or file in ("Makefile",)) and not file.startswith("tests/cases"):
                text = Path(file).read_text()
                if (new := self.rewrite(text)) != text:
                    Path(file).write_text(new)
        for old in [m for m in self.module_moves]:
            path = self.modules[old].path
            new = self.new_path(path)
            Path(new).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", path, new], check=True)
            folder = Path(new).parent
            while str(folder) != ".":
                if not (folder / "__init__.py").exists() and not str(folder).startswith("tests"):
                    (folder / "__init__.py").write_text("")
                    subprocess.run(["git", "add", str(folder / "__init__.py")], check=True)
                folder = folder.parent

    def rewrite_prose(self, text: str) -> str:
        """Dotted paths in comments and in strings of several lines (those on one line were done before)."""
        lines = text.split("\n")
        within: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant | ast.JoinedStr) and node.lineno != node.end_lineno:
                if isinstance(node, ast.JoinedStr) or isinstance(node.value, str):
                    within.update(range(node.lineno, node.end_lineno + 1))
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                line, column = token.start
                lines[line - 1] = lines[line - 1][:column] + self.rewrite(lines[line - 1][column:])
        for line in within:
            lines[line - 1] = self.rewrite(lines[line - 1])
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--private", nargs="*", default=[], help="rooms whose unshared names become private")
    options = parser.parse_args()
    repo = Repo()
    repo.load(options.tables)
    if options.private:
        repo.make_private(tuple(options.private))
    repo.find_clashes()
    repo.rename()
    print(f"{len(repo.module_moves)} modules, {len(repo.names)} names", file=sys.stderr)
    for problem in repo.problems:
        print(problem, file=sys.stderr)
    if repo.problems or options.check:
        return bool(repo.problems)
    repo.write()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
