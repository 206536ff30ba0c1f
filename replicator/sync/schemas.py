"""`sync.schemas`: versions of subjects, what they refer to, their compatibility and mode, between two registries.

Versions go in order, what one refers to goes first. `ids: preserve` gives every schema the id that it has at the source
(mode IMPORT for the subject, put back afterwards); `ids: translate` lets the target give ids, and records get theirs on
the way (`clusters.registry.schema_id_translation`). Nothing is deleted, softly or otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.errors import ClusterError, RequestRefused, Unauthorised
from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import resolve_registry_settings
from watershed.clusters.registry.schema import Schema, SchemaVersion, is_same_schema
from watershed.clusters.registry.subject_selection import (
    build_target_subject,
    build_version_matcher,
    can_create_subject,
    select_subjects,
)
from watershed.clusters.registry.version_matching import VersionMatcher
from watershed.clusters.settings import SettingsLookup
from watershed.replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from watershed.topology.drift import DriftClass, FieldDrift
from watershed.topology.plan import PlanFlow
from watershed.topology.sync_settings import SyncMode

_EVERY_MS: Final = 5_000  # a record that was translated waits for its schema no longer than this
_KIND: Final = "schema subject"
_READONLY, _READWRITE, _IMPORT = "READONLY", "READWRITE", "IMPORT"
_TRANSLATE: Final = "say `ids: translate`"


@dataclass(frozen=True, slots=True)
class SchemaKind:
    """The kind `schemas`. A difference is named after the subject at the target; its field is `version N` (N as at the
    source), `compatibility` or `mode`."""

    name: str = "schemas"
    _took_s: dict[str, float] = field(default_factory=dict, compare=False)  # by flow

    def mode(self, flow: PlanFlow) -> SyncMode:
        """`sync.schemas` of the flow."""
        return flow.sync.schemas.mode

    def every_ms(self, flow: PlanFlow) -> int:
        """Registries are asked during a tenth of the time at most: some hold thousands of versions."""
        return max(_EVERY_MS, int(self._took_s.get(flow.id, 0.0) * 10_000))

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        """Subjects and versions that the target registry lacks or has otherwise."""
        source, target = resolve_registry_settings(sides.source), resolve_registry_settings(sides.target)
        began = time.monotonic()
        try:
            with RegistryClient(source) as here, RegistryClient(target) as there:
                return compare_schemas(flow, build_version_matcher(flow, here, there), _beside(flow, sides.flows))
        finally:
            self._took_s[flow.id] = time.monotonic() - began

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        """Register the missing versions and set the modes and compatibility levels that differ."""
        source, target = resolve_registry_settings(sides.source), resolve_registry_settings(sides.target)
        with RegistryClient(source) as here, RegistryClient(target) as there:
            return carry_schemas(flow, build_version_matcher(flow, here, there), differences)


def compare_schemas(
    flow: PlanFlow, twins: VersionMatcher, beside: Sequence[PlanFlow] = (), otherwise: str = _TRANSLATE
) -> list[FieldDrift]:
    """What the target's registry lacks or has otherwise. beside: flows from elsewhere that carry schemas to the same
    target. otherwise: what messages say a person can do where an id cannot be kept. Raises ClusterError."""
    return list(_Comparison(flow, twins, tuple(beside), otherwise).differences())


def carry_schemas(
    flow: PlanFlow, twins: VersionMatcher, differences: Sequence[FieldDrift], otherwise: str = _TRANSLATE
) -> list[DifferenceOutcome]:
    """Makes the target's registry so, as far as a difference is `applied`. otherwise: as of `compare_schemas`. Raises
    ClusterError."""
    return _Carrying(flow, twins, differences, otherwise).done()


def require_registries(flows: Iterable[PlanFlow], connect: SettingsLookup) -> None:
    """See that all registries that are needed answer. Raises ClusterError for the first that does not."""
    asked = {alias for flow in flows if flow.sync.schemas.mode != "never" for alias in (flow.source, flow.target)}
    for alias in sorted(asked):
        with RegistryClient(resolve_registry_settings(connect(alias))) as registry:
            registry.subjects()


def _beside(flow: PlanFlow, flows: Iterable[PlanFlow]) -> tuple[PlanFlow, ...]:
    return tuple(
        each
        for each in flows
        if each.id != flow.id and each.source != flow.source and each.sync.schemas.mode != "never"
    )


def _order_by_reference(flow: PlanFlow, twins: VersionMatcher) -> list[str]:
    """The selected subjects of the source, and what they refer to, however far; referred to before referring."""
    found: dict[str, None] = {}
    under_way: set[str] = set()

    def visit(subject: str) -> None:
        if subject in found or subject in under_way:
            return
        under_way.add(subject)
        for version in twins.history(subject):
            for each in version.schema.references:
                visit(each.subject)
        found[subject] = None

    for subject in select_subjects(flow, twins.source.subjects(deleted=True)):
        visit(subject)
    return list(found)


@dataclass(slots=True)
class _Comparison:
    """One inspection of both registries."""

    flow: PlanFlow
    twins: VersionMatcher
    beside: tuple[PlanFlow, ...] = ()  # flows from elsewhere that carry schemas to the same target
    otherwise: str = _TRANSLATE  # what a person can do where an id cannot be kept
    _modes: bool | None = None  # whether the target's registry has any

    def differences(self) -> Iterator[FieldDrift]:
        for subject in _order_by_reference(self.flow, self.twins):
            history, name = self.twins.history(subject), build_target_subject(self.flow, subject)
            for version in history:
                yield from self._version(name, version)
            if any(not each.deleted for each in history):
                yield from self._compatibility(subject, name)
                yield from self._mode(subject, name)

    def _version(self, name: str, version: SchemaVersion) -> Iterator[FieldDrift]:
        if self.flow.sync.schemas.names.exclude and not self._allowed(version.subject):
            why = f"another schema refers to it, and `sync.schemas.exclude` keeps it from {self.flow.target}"
            if self.twins.twin(version) is None:
                yield self._left(name, version, None, why)
            return
        twins = self.twins.twins(version)
        live = [each for each in twins if not each.deleted]
        if version.deleted:
            why = (
                f"softly deleted at {self.flow.source}, still live here: nothing is ever deleted"
                if live
                else f"softly deleted at {self.flow.source}, not carried over: records with its id cannot be read here"
            )
            if live or not twins:
                yield self._left(name, version, live[0] if live else None, why, wanted="deleted", drift="unknown")
            return
        if self.flow.sync.schemas.ids == "translate":
            if not twins:
                yield self._wanted(name, version)
            return
        if any(each.id == version.id for each in twins):
            return
        why_not = self._why_not(name, version, twins)
        if why_not:
            yield self._left(name, version, twins[0] if twins else None, why_not)
        else:
            yield self._wanted(name, version)

    def _why_not(self, name: str, version: SchemaVersion, twins: list[SchemaVersion]) -> str:
        """Why this id cannot be given to this version; empty when it can."""
        target, other = self.flow.target, f"or {self.otherwise}"
        if twins:
            return f"the same schema has id {twins[0].id} at {target}, and ids are never changed; {other}"
        taken = self.twins.target.schema(version.id, name)
        if taken is not None and not is_same_schema(taken, version.schema):
            return f"id {version.id} is another schema at {target}; {other}"
        if self._modes is None:
            self._modes = self.twins.target.mode() is not None
        if not self._modes:
            return f"the registry of {target} has no mode IMPORT, so it gives ids of its own; {self.otherwise}"
        ours = {each.id for each in self.twins.history(version.subject)}
        strange = [each for each in self.twins.there(name) if each.id not in ours]
        if strange:
            numbers = ", ".join(str(each.version) for each in strange[:5])
            return (
                f"it has versions of its own at {target} ({numbers}), and IMPORT is only for one that has none; {other}"
            )
        return ""

    def _compatibility(self, subject: str, name: str) -> Iterator[FieldDrift]:
        wanted = self.twins.source.compatibility(subject, effective=True)
        live = self.twins.target.compatibility(name, effective=True) or self.twins.target.compatibility()
        if wanted is None or wanted == live:
            return
        others = [each.id for each in self.beside if can_create_subject(each, name)]
        if others and self.twins.target.compatibility(name) is not None:
            why = f"{', '.join(sorted(others))} may bring this subject, too, and the first to come has set it"
            yield FieldDrift(self.flow.target, _KIND, name, "compatibility", live, wanted, "unknown", False, why)
        else:
            yield FieldDrift(self.flow.target, _KIND, name, "compatibility", live, wanted)

    def _mode(self, subject: str, name: str) -> Iterator[FieldDrift]:
        live = self.twins.target.mode(name)
        if live is None and self.twins.target.mode() is None:
            return
        wanted = self.twins.source.mode(subject)
        if wanted == _READONLY and live != _READONLY:
            yield FieldDrift(self.flow.target, _KIND, name, "mode", live, _READONLY)
        elif live == _IMPORT and wanted != _IMPORT:  # left so by somebody who died while importing
            yield FieldDrift(self.flow.target, _KIND, name, "mode", live, _READWRITE)
        elif live == _READONLY and wanted != _READONLY:
            why = f"somebody made it so at {self.flow.target}; new versions are refused until it is {_READWRITE}"
            yield FieldDrift(self.flow.target, _KIND, name, "mode", live, wanted or _READWRITE, "unknown", False, why)

    def _allowed(self, subject: str) -> bool:
        names = self.flow.sync.schemas.names
        return type(names)((), names.exclude).selects(subject)

    def _wanted(self, name: str, version: SchemaVersion) -> FieldDrift:
        return FieldDrift(self.flow.target, _KIND, name, _field(version), None, self._shown(version))

    def _left(
        self,
        name: str,
        version: SchemaVersion,
        twin: SchemaVersion | None,
        why: str,
        *,
        wanted: str | None = None,
        drift: DriftClass = "unsupported",
    ) -> FieldDrift:
        live = None if twin is None else self._shown(twin)
        return FieldDrift(
            self.flow.target, _KIND, name, _field(version), live, wanted or self._shown(version), drift, False, why
        )

    def _shown(self, version: SchemaVersion) -> str:
        keeps = self.flow.sync.schemas.ids == "preserve"
        return f"{version.schema.type}, id {version.id}" if keeps else version.schema.type


@dataclass(slots=True)
class _Carrying:
    """Making the target so. What one version needs goes first, whatever the order of the differences."""

    flow: PlanFlow
    twins: VersionMatcher
    differences: Sequence[FieldDrift]
    otherwise: str = _TRANSLATE
    _done: dict[tuple[str, str], DifferenceOutcome] = field(default_factory=dict)
    _under_way: set[tuple[str, str]] = field(default_factory=set)
    _before: dict[str, str | None] = field(default_factory=dict)  # modes that are to be put back
    _stop: str = ""

    def done(self) -> list[DifferenceOutcome]:
        asked = {(each.name, each.field): each for each in self.differences if each.applied}
        by_name = {
            build_target_subject(self.flow, subject): subject for subject in _order_by_reference(self.flow, self.twins)
        }
        try:
            for subject in by_name.values():
                self._up_to(subject, None, asked)
        finally:
            self._put_back()
        for name in by_name:
            for setting in ("compatibility", "mode"):
                wanted = asked.get((name, setting))
                if wanted is not None and (name, setting) not in self._done:
                    self._set(wanted)
        return [self._done[key] if key in self._done else _gone(each) for key, each in asked.items()]

    def _up_to(self, subject: str, last: int | None, asked: Mapping[tuple[str, str], FieldDrift]) -> None:
        """The versions of a subject in order, through `last` (None: all), and before each what it refers to."""
        name = build_target_subject(self.flow, subject)
        for version in self.twins.history(subject):
            key = (name, _field(version))
            wanted = asked.get(key)
            if last is not None and version.version > last:
                return
            if wanted is None or key in self._done or key in self._under_way:
                continue
            self._under_way.add(key)
            for each in version.schema.references:
                self._up_to(each.subject, each.version, asked)
            self._put(name, version, wanted, asked.get((name, "compatibility")))

    def _put(self, name: str, version: SchemaVersion, wanted: FieldDrift, compatibility: FieldDrift | None) -> None:
        failed = next((done for (at, _), done in self._done.items() if at == name and done.error), None)
        if self._stop or failed is not None:
            why = self._stop or f"what comes before it could not be carried over: {failed and failed.error}"
            self._done[name, wanted.field] = DifferenceOutcome(wanted, why)
            return
        references = self.twins.references(version)
        if references is None:
            why = "a schema that it refers to is not there"
            self._done[name, wanted.field] = DifferenceOutcome(wanted, why)
            return
        schema = Schema(version.schema.text, version.schema.type, references)
        there = bool(self.twins.there(name))
        if compatibility is not None and there and (name, "compatibility") not in self._done:
            self._set(compatibility)  # a registry may know settings of subjects only that exist; the first is free
        try:
            self._done[name, wanted.field] = DifferenceOutcome(wanted, self._registered(name, schema, version))
        except (RequestRefused, Unauthorised) as error:
            self._done[name, wanted.field] = DifferenceOutcome(wanted, str(error))
        self.twins.forget(name)

    def _registered(self, name: str, schema: Schema, version: SchemaVersion) -> str | None:
        """What is wrong with it; None when it is registered as it should be."""
        if self.flow.sync.schemas.ids == "translate":
            self.twins.target.register(name, schema)
            return None
        if name not in self._before:
            before = self.twins.target.mode(name)
            self.twins.target.set_mode(name, _IMPORT, force=bool(self.twins.there(name)))
            self._before[name] = None if before == _IMPORT else before
        given = self.twins.target.register(name, schema, id=version.id, version=version.version)
        if given == version.id:
            return None
        self._stop = (
            f"the registry of {self.flow.target} gave id {given} to {name} where {version.id} was asked for: it takes "
            f"the mode IMPORT and gives ids of its own all the same; {self.otherwise}"
        )
        return self._stop

    def _put_back(self) -> None:
        """The modes as they were. What cannot be put back now is a difference at the next inspection."""
        for name, before in self._before.items():
            if before is not None:
                self.twins.target.set_mode(name, before)
            elif not self.twins.target.clear_mode(name):
                self.twins.target.set_mode(name, self.twins.target.mode() or _READWRITE)
        self._before.clear()

    def _set(self, wanted: FieldDrift) -> None:
        name, value = wanted.name, wanted.wanted or _READWRITE
        error: ClusterError | None = None
        try:
            if wanted.field == "compatibility":
                self.twins.target.set_compatibility(name, value)
            elif value != _READWRITE or not self.twins.target.clear_mode(name):
                self.twins.target.set_mode(name, value)
        except (RequestRefused, Unauthorised) as refused:
            error = refused
        self._done[name, wanted.field] = DifferenceOutcome(wanted, None if error is None else str(error))


def _field(version: SchemaVersion) -> str:
    return f"version {version.version}"


def _gone(difference: FieldDrift) -> DifferenceOutcome:
    return DifferenceOutcome(difference, "it is not at the source any more")
