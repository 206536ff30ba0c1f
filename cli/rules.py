"""`topology rules`"""

from __future__ import annotations

import click


@click.command(epilog="Example: topology rules --format json")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def rules(form: str) -> None:
    """List the lint rules; `topology explain CODE` prints a rule's manual."""
    from watershed.topology.rule_manual import parse_rule_manual
    from watershed.topology.rules import RULES

    if form == "json":
        import json

        rows = [
            {
                "code": rule.code,
                "name": rule.name,
                "severity": rule.severity,
                "needs": rule.needs,
                "profile": rule.profile,
                "ignorable": rule.ignorable,
                "options": {option.name: option.doc for option in rule.options},
                "title": parse_rule_manual(rule).title,
            }
            for rule in RULES
        ]
        click.echo(json.dumps({"schema": 1, "rules": rows}, indent=2))
        return
    width = max(len(rule.name) for rule in RULES)
    for rule in RULES:
        needs = {"static": "file", "inventory": "inventory", "live": "live"}[rule.needs]
        title = parse_rule_manual(rule).title
        click.echo(f"{rule.code}  {rule.name:<{width}}  {rule.severity:<7}  {needs:<9}  {rule.profile:<7}  {title}")
    click.echo(
        f"\n{len(RULES)} rules. Needs: file (always asked), inventory (`lint --inventory`; `topology scan` takes one), "
        "live (`topology plan`).\nProfile: regular always has its severity; strict informs until `--profile strict`; "
        "audit is asked with `--profile audit`.",
        err=True,
    )
