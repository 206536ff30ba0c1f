"""What can be known of Terraform files without running Terraform: literals, defaults of variables, locals, and
attributes of blocks that another block refers to. Everything else is None, and the caller says so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from watershed.topology.interop.hcl import HclBlock, HclValue, parse_hcl
from watershed.topology.interop.import_formats import ForeignDocument
from watershed.topology.interop.import_notes import ImportNotes

_MAX_HOPS = 16
# values of `jsonencode`, and characters of one text: locals that name each other must not grow without end
_MAX_WORK = 50_000
_MAX_TEXT = 1 << 20
_PART = re.compile(r"\$\{([^{}]*)\}")
_PLAIN_REFERENCE = re.compile(r"\s*([^\W\d][\w-]*(?:\.[\w-]+)+)\s*")
_INDEX = re.compile(r"\[[^\[\]]*\]")
_WRAPPERS = ("toset", "tolist", "tostring", "tomap", "trimspace", "nonsensitive", "sensitive")


@dataclass(slots=True)
class TerraformModule:
    """All files of a directory. Addresses are as Terraform writes them: `data.TYPE.NAME`, `TYPE.NAME`."""

    blocks: list[HclBlock] = field(default_factory=list)
    addressed: dict[str, HclBlock] = field(default_factory=dict)
    variables: dict[str, HclBlock] = field(default_factory=dict)
    locals: dict[str, HclValue] = field(default_factory=dict)
    work: int = 0
    texts_of: dict[str, str | None] = field(default_factory=dict)

    def resources(self, type_: str) -> Iterator[HclBlock]:
        """Managed resources of a type, in the order of the files."""
        return (each for each in self.blocks if each.type == "resource" and each.labels[:1] == (type_,))

    def known(self, value: HclValue | None) -> HclValue | None:
        """The value with references followed as far as they lead; a reference that leads nowhere stays one."""
        for _ in range(_MAX_HOPS):
            if value is None:
                return None
            if value.kind == "call" and value.text in _WRAPPERS and len(value.items) == 1:
                value = value.items[0]
            elif value.kind == "reference":
                following = self._follow(value.text)
                if following is None:
                    return value
                value = following
            else:
                return value
        return value

    def text(self, value: HclValue | None, hops: int = 0) -> str | None:
        """The text of a value, when all of it is known: literals, interpolations of what is known, `jsonencode`."""
        if value is not None and value.kind == "reference":
            if value.text not in self.texts_of:
                self.texts_of[value.text] = None  # as long as it is looked for: a circle is unknown
                self.texts_of[value.text] = self._text(self.known(value), hops)
            return self.texts_of[value.text]
        return self._text(self.known(value), hops)

    def _text(self, found: HclValue | None, hops: int) -> str | None:
        if found is None or hops > _MAX_HOPS:
            return None
        if found.kind == "call" and found.text == "jsonencode" and len(found.items) == 1:
            data = self._data(found.items[0], hops + 1)
            return None if data is _UNKNOWN else json.dumps(data)
        if found.kind == "string" and found.interpolated:
            return self._interpolated(found, hops + 1)
        return found.literal

    def texts(self, value: HclValue | None) -> list[str] | None:
        """The texts of a list or a set, or the keys of a map; None when one of them is unknown."""
        found = self.known(value)
        if found is None or found.kind not in ("list", "map"):
            return None
        values = [self.text(item) for item in found.items]
        if found.kind == "map":
            values = [name for name, _, _ in found.entries]
        texts = [text for text in values if text is not None]
        return texts if len(texts) == len(values) else None

    def address(self, value: HclValue | None) -> str | None:
        """The address of the block that a reference is about: of `data.x.east[0].id` it is `data.x.east`. Locals are
        followed."""
        for _ in range(_MAX_HOPS):
            if value is None or value.kind != "reference":
                return None
            if value.text.startswith("local.") and (following := self.locals.get(value.text[6:])) is not None:
                value = following
                continue
            text = _INDEX.sub("", value.text)
            return text.rpartition(".")[0] or text
        return None

    def block(self, address: str | None) -> HclBlock | None:
        """`x.east[0]` is the block `x.east`: which of its instances does not matter here."""
        return self.addressed.get(_INDEX.sub("", address)) if address is not None else None

    def _follow(self, text: str) -> HclValue | None:
        head, _, rest = text.partition(".")
        if head == "local":
            return self.locals.get(rest)
        if head == "var":
            declared = self.variables.get(rest)
            default = declared.value("default") if declared is not None else None
            return default if default is not None and default.kind != "null" else None
        address, _, attribute = text.rpartition(".")
        block = self.block(address)
        return block.value(attribute) if block is not None else None

    def _interpolated(self, value: HclValue, hops: int) -> str | None:
        unknown, length = False, 0

        def replacement(match: re.Match[str]) -> str:
            nonlocal unknown, length
            plain = _PLAIN_REFERENCE.fullmatch(match[1])
            text = self.text(HclValue("reference", value.span, plain[1]), hops) if plain is not None else None
            length += len(text or "")
            unknown = unknown or text is None or length > _MAX_TEXT
            return "" if unknown else text or ""

        text = _PART.sub(replacement, value.text)
        return None if unknown or "%{" in text else text

    def _data(self, value: HclValue, hops: int) -> object:
        found = self.known(value)
        self.work += 1
        if found is None or hops > _MAX_HOPS or self.work > _MAX_WORK:
            return _UNKNOWN
        if found.kind == "list":
            items = [self._data(each, hops + 1) for each in found.items]
            return _UNKNOWN if _UNKNOWN in items else items
        if found.kind == "map":
            entries = {name: self._data(each, hops + 1) for name, _, each in found.entries}
            return _UNKNOWN if None in entries or _UNKNOWN in entries.values() else entries
        if found.kind in ("boolean", "null"):
            return {"true": True, "false": False}.get(found.text)
        text = self.text(found, hops)
        return _UNKNOWN if text is None else text


_UNKNOWN = object()


def build_terraform_module(documents: tuple[ForeignDocument, ...], notes: ImportNotes) -> TerraformModule:
    """What is wrong with a file goes to the notes."""
    module = TerraformModule()
    for document in documents:
        root, problems = parse_hcl(document.text, document.file)
        for problem in problems:
            notes.add_foreign_problem(problem)
        module.blocks += root.blocks
        for block in root.blocks:
            if block.type in ("resource", "data") and len(block.labels) == 2:
                address = ".".join((("data",) if block.type == "data" else ()) + block.labels)
                module.addressed[address] = block
            elif block.type == "variable" and len(block.labels) == 1:
                module.variables[block.labels[0]] = block
            elif block.type == "locals":
                module.locals |= {name: each.value for name, each in block.attributes.items()}
    return module
