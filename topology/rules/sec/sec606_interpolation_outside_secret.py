"""SEC606 interpolation-outside-secret: a value holds `${…}`, `$(…)`, `{{…}}` or `<%…%>`, and nothing replaces it.

Why: a topology file is read as it stands. Text that some other tool puts in before the parse can bring quotes, colons
and line ends along and change what the file means, and the file that was reviewed is not the one that runs. Only
references name what is looked up later: `{env: NAME}`, `{file: path}`, `{airflow_connection: id}`, where the name is
plain, too.

Source: confluentinc/kcp internal/interpolate, which makes it opt-in for this reason
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.sec.secret_detection import walk_raw_scalars

_FORMS = {"${": "${…}", "$(": "$(…)", "{{": "{{…}}", "<%": "<%…%>"}
_MARK = re.compile(r"\$\{|\$\(|\{\{|<%")


def check(context: RuleContext) -> Iterator[Problem]:
    for scalar in walk_raw_scalars(context.loaded.nodes):
        mark = _MARK.search(scalar.node.text)
        if mark is not None and not (mark[0] == "$(" and scalar.names[-1:] == ("regex",)):
            what = "the key" if scalar.is_key else "the value"
            yield Problem(
                "SEC606",
                f"{what} of `{scalar.path}` holds `{_FORMS[mark[0]]}`; nothing replaces it",
                (Label(scalar.start),),
                path=scalar.path,
                ids=(scalar.path,),
                help="write the value itself, or generate the whole file; a secret is named by `{env: NAME}`",
            )


RULE = Rule("SEC606", "interpolation-outside-secret", "error", __doc__, check)
