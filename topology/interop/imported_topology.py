"""What a reader of a foreign format hands over: clusters and flows in the words of the topology language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watershed.topology.finding import FileSpan, Problem
from watershed.topology.selectors import Selector

_Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NotCarried:
    """Something that the foreign file says and the topology does not, or says otherwise. `span` is in the foreign
    file. `what` never holds a secret."""

    what: str
    why: str
    span: FileSpan

    def __str__(self) -> str:
        return f"{self.span.file}:{self.span.line}: {self.what}: {self.why}"

    def to_json(self) -> dict[str, Any]:
        """One element of `not_carried` in the JSON report."""
        return {"what": self.what, "why": self.why, "file": self.span.file, "line": self.span.line}


@dataclass(frozen=True, slots=True)
class ImportedCluster:
    """`alias` is legal in the topology language. No bootstrap: `render_topology_file` writes a placeholder, which lint
    refuses (SYN016).

    security is the section of the language, `{"protocol": …, "credentials": {"env": …}}`; references only.
    """

    alias: str
    bootstrap: tuple[str, ...] = ()
    cluster_id: str | None = None
    region: str | None = None
    security: _Settings = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportedFlow:
    """`settings` is what stands in a flow besides source, target, suffix and the selection, in the words of the
    language: `{"naming": {"policy": "prefix"}, "sync": {"groups": {…}}, "state": "paused"}`. Scalars are written as
    given; a quantity is its text (`"30s"`), a secret a reference. A selector may stand where the language has one.

    Without `include` the flow is written with a comment that asks for topics, and does not lint."""

    source: str
    target: str
    include: tuple[Selector, ...]
    exclude: tuple[Selector, ...] = ()
    suffix: str | None = None
    settings: _Settings = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The id that the flow has in the topology file."""
        return f"{self.source}-to-{self.target}" + (f"-{self.suffix}" if self.suffix else "")


@dataclass(frozen=True, slots=True)
class ImportedTopology:
    """`format` is its name in `formats.FORMATS`, `name` goes to `metadata.name`. `file` and `text` are the foreign
    source (of several files, the first). `defaults` are settings that hold for all flows; `render_topology_file` adds
    those
    that all flows agree on. `problems` are what the foreign file does wrong, with spans in it. kept: flows that
    the tool goes on to make."""

    format: str
    name: str
    file: str
    text: str
    clusters: tuple[ImportedCluster, ...]
    flows: tuple[ImportedFlow, ...]
    defaults: _Settings = field(default_factory=dict)
    not_carried: tuple[NotCarried, ...] = ()
    problems: tuple[Problem, ...] = ()
    kept: tuple[ImportedFlow, ...] = ()
