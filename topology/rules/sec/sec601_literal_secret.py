"""SEC601 literal-secret: a password, key, token or JAAS text stands in the file itself.

Why: it is in git, in every clone and in the logs of every tool that read the file, for ever. The language has no place
for a secret; this rule also looks where the language refuses the key anyway. Found are values under keys such as
`password`, `token`, `api_key`, `client.secret` or `sasl.jaas.config`, users with passwords in addresses, PEM blocks,
known forms of tokens, texts directly under `credentials`, and values in `{env: …}` that are no variable's name.

Source: rhysd/actionlint rule_credentials.go; stackrox/kube-linter env-var-secret; confluentinc/kcp internal/redact
"""

from __future__ import annotations

from collections.abc import Iterator

from watershed.topology.finding import Label, Problem
from watershed.topology.rule import Rule, RuleContext
from watershed.topology.rules.sec.secret_detection import detect_secret, walk_raw_scalars


def check(context: RuleContext) -> Iterator[Problem]:
    for scalar in walk_raw_scalars(context.loaded.nodes):
        found = detect_secret(scalar)
        if found is not None:
            what, confidence = found
            yield Problem(
                "SEC601",
                f"`{scalar.path}` holds {what}",
                (Label(scalar.start, "not shown"),),
                path=scalar.path,
                ids=(scalar.path,),
                help="take it out, change it wherever it is valid (the file's history keeps it), and say where it is: "
                "`{airflow_connection: id}`, `{env: NAME}` or `{file: path}`",
                confidence=confidence,
            )


RULE = Rule("SEC601", "literal-secret", "error", __doc__, check, ignorable=False)
