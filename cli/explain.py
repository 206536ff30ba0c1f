"""`topology explain`"""

from __future__ import annotations

from pathlib import Path

import click


@click.command(epilog="Example: topology explain GRF201  ·  topology explain a-to-b.workers.quota topology.yaml")
@click.argument("what", metavar="CODE|FLOW.FIELD")
@click.argument("path", required=False, type=click.Path(path_type=Path))
def explain(what: str, path: Path | None) -> None:
    """Print a rule's manual, or a flow's value and the line of the file it comes from."""
    from watershed.topology.rule_manual import render_rule_manual
    from watershed.topology.rules import RULES

    for rule in RULES:
        if what.upper() == rule.code or what == rule.name:
            click.echo(render_rule_manual(rule))
            click.echo(f"\nSeverity: {rule.severity}. " + _ignorable(rule.ignorable))
            return
    if path is None:
        from watershed.topology.spelling import suggest_word

        near = suggest_word(what.upper(), [rule.code for rule in RULES]) or suggest_word(
            what, [rule.name for rule in RULES]
        )
        hint = f" Did you mean {near}?" if near else ""
        raise click.UsageError(f"no rule {what}.{hint} For a flow's field name the file, too: {what} PATH")
    from watershed.topology.value_origin import render_value_origins

    for line in render_value_origins(path, what):
        click.echo(line)


def _ignorable(ignorable: bool) -> str:
    if ignorable:
        return "A comment silences it: `# lint: ignore[CODE] reason`, on the line or above it."
    return "No comment silences it."
