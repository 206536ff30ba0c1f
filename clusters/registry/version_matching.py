"""Which version at the target says the same as one at the source: found by asking both registries, never remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.schema import Schema, SchemaReference, SchemaVersion, is_same_schema


class ReadableRegistry(Protocol):
    """What is asked of the registry that schemas come from: a `RegistryClient`, or what an archive holds of one."""

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """Of all contexts, sorted; `deleted`: those too of which only softly deleted versions are left."""
        ...

    def history(self, subject: str) -> list[SchemaVersion]:
        """All versions in order."""
        ...

    def compatibility(self, subject: str | None = None, *, effective: bool = False) -> str | None:
        """Of the subject, or of all (subject None); None: not known."""
        ...

    def mode(self, subject: str | None = None, *, effective: bool = False) -> str | None:
        """READWRITE, READONLY or IMPORT; None: not known."""
        ...


@dataclass(slots=True)
class VersionMatcher:
    """One look at two registries: what was read of a subject is kept as long as this lives. target_subject: what a
    subject of the source is called at the target. Everything raises what `RegistryClient` raises."""

    source: ReadableRegistry
    target: RegistryClient
    target_subject: Callable[[str], str]
    _at_source: dict[str, list[SchemaVersion]] = field(default_factory=dict)
    _at_target: dict[str, list[SchemaVersion]] = field(default_factory=dict)

    def history(self, subject: str) -> list[SchemaVersion]:
        """Of the source."""
        if subject not in self._at_source:
            self._at_source[subject] = self.source.history(subject)
        return self._at_source[subject]

    def there(self, subject: str) -> list[SchemaVersion]:
        """Of the target, by its name there."""
        if subject not in self._at_target:
            self._at_target[subject] = self.target.history(subject)
        return self._at_target[subject]

    def forget(self, subject: str) -> None:
        """Something was registered under it at the target."""
        self._at_target.pop(subject, None)

    def twins(self, version: SchemaVersion) -> list[SchemaVersion]:
        """Those at the target that say the same, the lowest first.

        What a registry rewrote beyond recognition (white space inside of a text, a normal form of its own) is asked of
        the registry itself."""
        subject = self.target_subject(version.subject)
        there = self.there(subject)
        found = [each for each in there if self._alike(version, each)]
        if found or not there:
            return found
        references = self.references(version)
        if references is None:
            return []
        asked = Schema(version.schema.text, version.schema.type, references)
        known = self.target.lookup(subject, asked)
        return [] if known is None else [known]

    def twin(self, version: SchemaVersion) -> SchemaVersion | None:
        """The lowest: the same answer to everybody, as long as nobody deletes a version for good."""
        return next(iter(self.twins(version)), None)

    def references(self, version: SchemaVersion) -> tuple[SchemaReference, ...] | None:
        """As the target has to be told them; None when one of them is not there yet."""
        found: list[SchemaReference] = []
        for each in version.schema.references:
            referenced = self._version(self.history(each.subject), each.version)
            twin = None if referenced is None else self.twin(referenced)
            if twin is None:
                return None
            found.append(SchemaReference(each.name, twin.subject, twin.version))
        return tuple(found)

    def _alike(self, here: SchemaVersion, there: SchemaVersion) -> bool:
        if not is_same_schema(here.schema, there.schema):
            return False
        referred = {each.name: each for each in there.schema.references}
        for each in here.schema.references:
            other = referred[each.name]
            one = self._version(self.history(each.subject), each.version)
            two = self._version(self.there(other.subject), other.version)
            if other.subject != self.target_subject(each.subject) or one is None or two is None:
                return False
            if not self._alike(one, two):
                return False
        return True

    @staticmethod
    def _version(history: list[SchemaVersion], number: int) -> SchemaVersion | None:
        return next((each for each in history if each.version == number), None)
