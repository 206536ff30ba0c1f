"""`topology`: one command, its subcommands in one table. Nothing is imported before it is needed, so that
`topology --help` stays under 0.3 s and linting needs neither Airflow, Spark nor a Kafka client.

Exit codes everywhere: 0 fine · 1 findings, refused gate, different · 2 wrong usage, unreadable input, tool failure ·
3 changes pending, incomplete. A command returns its code, or None for 0.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from watershed.cli import garbage_collection
from watershed.cli.errors import report_error
from watershed.cli.terminal import filter_output

# section -> (command, "module:attribute", the line in --help); a later room adds its row here.
_COMMANDS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "The file": (
        ("init", "watershed.cli.init:init", "Write a first file from cluster addresses or an inventory."),
        ("lint", "watershed.cli.lint:lint", "Find what is wrong with a topology file, offline."),
        ("compile", "watershed.cli.compile:compile_", "Print the plan: clusters, flows, proofs, hash."),
        ("graph", "watershed.cli.graph:graph", "Draw clusters, flows and loops."),
        ("explain", "watershed.cli.explain:explain", "A rule's manual, or where a flow's value comes from."),
        ("rules", "watershed.cli.rules:rules", "List the lint rules."),
        ("schema", "watershed.cli.schema:schema", "The JSON Schema of the file, for editors."),
    ),
    "Before a migration": (
        ("scan", "watershed.cli.scan:scan", "Take a read-only inventory of live clusters, and a report."),
        (
            "clients",
            "watershed.cli.clients:clients",
            "Who uses the clusters: principals, client ids, topics, last seen.",
        ),
        (
            "probe",
            "watershed.cli.probe:probe",
            "Try on a topic of its own what a cluster can do; nothing is left behind.",
        ),
        ("usage", "watershed.cli.usage:usage", "How much clusters were used: sizes of target and fleet, lag, money."),
        (
            "report",
            "watershed.cli.report:report",
            "The planning report of an inventory: sizes, obstacles, times, costs.",
        ),
    ),
    "Replication": (
        ("plan", "watershed.cli.plan:plan", "What apply would change on the live clusters, field by field."),
        ("apply", "watershed.cli.apply:apply", "Create what the plan needs and write the desired flows."),
        ("worker", "watershed.cli.worker:worker", "Serve all flows into one cluster until stopped."),
        ("fleet", "watershed.cli.fleet:fleet", "Start, scale, restart, stop, supervise the workers into one cluster."),
        ("exporter", "watershed.cli.exporter:exporter", "Serve the metrics of all flows and fleets to Prometheus."),
        ("acls", "watershed.cli.acls:acls", "The least rights that each role needs, and which are missing."),
        ("status", "watershed.cli.status:status", "State and lag of every flow and partition."),
        ("flow", "watershed.cli.flow:flow", "Pause, resume, stop; accept a gap, reseed, adopt; quarantine."),
        (
            "offsets",
            "watershed.cli.offsets:offsets",
            "Translate offsets exactly; show, carry and reset positions of groups.",
        ),
        ("trace", "watershed.cli.trace:trace", "Follow a record back to the application that wrote it."),
        (
            "backfill",
            "watershed.cli.backfill:backfill",
            "Copy a part of a flow's topics, and end; the flow goes on behind it.",
        ),
        ("verify", "watershed.cli.verify:verify", "Prove with Spark that nothing is missing."),
    ),
    "Seen from outside": (
        ("alerts", "watershed.cli.alerts:alerts", "Alert rules for Prometheus, from the budgets of a file."),
        (
            "dashboards",
            "watershed.cli.dashboards:dashboards",
            "Dashboards for Grafana: estate, flow, fleet, migration.",
        ),
    ),
    "Through storage": (
        (
            "archive",
            "watershed.cli.archive:archive",
            "Topics into a folder, with a sealed manifest; check and compare it.",
        ),
        ("restore", "watershed.cli.restore:restore", "An archive's topics into a cluster, with the same offsets."),
    ),
    "Moving applications": (
        ("migrate", "watershed.cli.migrate:migrate", "Move applications wave by wave, with gates."),
        (
            "failover",
            "watershed.cli.failover:failover",
            "The source is gone: promote the target, with the loss declared.",
        ),
        ("failback", "watershed.cli.failback:failback", "Back to the old primary; what only it has is listed first."),
        (
            "rollback",
            "watershed.cli.rollback:rollback",
            "Take a wave back after the switch, with all that was written since.",
        ),
        ("journal", "watershed.cli.journal:journal", "What a migration did, checked against its hash chain."),
    ),
    "Other tools": (
        ("import", "watershed.cli.import_:import_", "Turn a foreign configuration into a topology file."),
        ("export", "watershed.cli.export:export", "Write a topology as another tool's configuration."),
        (
            "assets",
            "watershed.cli.assets:assets",
            "Write target topics, users, ACLs and quotas for Strimzi, Terraform, scripts.",
        ),
    ),
    "Trying it": (("lab", "watershed.cli.lab:lab", "Real Kafka clusters on this machine."),),
}
COMMAND_TABLE = {name: (where, line) for rows in _COMMANDS.values() for name, where, line in rows}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help."""
        return list(COMMAND_TABLE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the command's module; None for a name that is no command."""
        if cmd_name not in COMMAND_TABLE:
            return None
        module, _, attribute = COMMAND_TABLE[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggests the nearest command for an unknown name. Pauses the garbage collector for short commands."""
        if args and not args[0].startswith("-") and args[0] not in COMMAND_TABLE:
            from watershed.topology.spelling import suggest_word

            known = suggest_word(args[0], COMMAND_TABLE)
            hint = f"Did you mean `{known}`?" if known else "See `topology --help`."
            raise click.UsageError(f"no command `{args[0]}`. {hint}", ctx)
        if args and args[0] in garbage_collection.COLLECTOR_FREE_COMMANDS:
            ctx.with_resource(garbage_collection.pause_garbage_collection())
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the help's sections without importing a single command."""
        for section, rows in _COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name, line) for name, _, line in rows])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: topology lint topology/examples/active_standby.yaml",
)
@click.option("-v", "--verbose", is_flag=True, help="Say more; show the traceback of an unexpected error.")
@click.option("-q", "--quiet", is_flag=True, help="Say only what was asked for.")
@click.version_option(package_name="watershed", message="topology %(version)s")
@click.pass_context
def topology(ctx: click.Context, verbose: bool, quiet: bool) -> None:
    """Move Kafka topics and their applications between clusters from one YAML file."""
    ctx.obj = {"verbose": verbose, "quiet": quiet}
    _log_with_fields()


def _log_with_fields() -> None:
    """Warnings go to standard error where a command sets up no log of its own: with what they are about, not only the
    event's name."""
    import logging

    from watershed.replicator.worker.log_format import EventFormatter

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(EventFormatter())


def main(arguments: list[str] | None = None) -> int:
    """Run one command line; the exit code. Nothing but SystemExit comes out of here."""
    with filter_output():
        return _run(sys.argv[1:] if arguments is None else arguments)


def _run(arguments: list[str]) -> int:
    try:
        outcome: Any = topology.main(args=arguments or ["--help"], prog_name="topology", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the one place where everything ends as a message
        return report_error(error, verbose=bool({"-v", "--verbose"} & set(arguments)))
    return outcome if isinstance(outcome, int) else 0


if __name__ == "__main__":
    sys.exit(main())
