"""Parts of PromQL expressions and of the templates in alerts, with names from the file quoted safely."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable


def quote_label(text: str) -> str:
    """The text as a string of PromQL. PromQL reads strings as Go does
    (https://prometheus.io/docs/prometheus/latest/querying/basics/#string-literals); what JSON escapes, Go reads
    alike."""
    return json.dumps(text, ensure_ascii=False)


def match_label(name: str, values: Iterable[str]) -> str:
    """A matcher for one of the values: `flow="a"` or `flow=~"a|b"`. Prometheus anchors regular expressions at both
    ends."""
    several = sorted(set(values))
    if len(several) == 1:
        return f"{name}={quote_label(several[0])}"
    return f"{name}=~{quote_label('|'.join(map(re.escape, several)))}"


def escape_annotation(text: str) -> str:
    """The text for an annotation: Prometheus expands `{{ … }}` there as a template of Go."""
    return text.replace("{{", '{{ "{{" }}')


def render_promql_seconds(milliseconds: float) -> str:
    """Milliseconds as a number of seconds with at most six digits that count."""
    return render_promql_number(milliseconds / 1000)


def render_promql_number(value: float) -> str:
    """A number with at most six digits that count."""
    return f"{value:g}"
