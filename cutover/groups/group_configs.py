"""What brokers hold a group to, compared between both clusters before it moves (configs of groups, since Kafka 3.8).

With KIP-848, KIP-932 and KIP-1071 the cluster says what clients of classic groups say for themselves: when a member is
given up, what a share group reads of transactions that were rolled back, how often a record is tried. Nobody who moves
an application sees that, because none of it stands in the application's own settings.
"""

from __future__ import annotations

from typing import Final

from watershed.cutover.actions import JsonObject, ReadGroupConfigs, ReportMessage
from watershed.cutover.errors import Refused
from watershed.cutover.observations import ObservedGroupConfigs
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext
from watershed.topology.shell_command import render_shell_command

GROUP_CONFIG_PREFIXES: Final = {
    "consumer": "consumer.",
    "share": "share.",
    "streams": "streams.",
}  # kind → its keys begin so
# Other records are read, or none: such a difference is refused.
_MEANS: Final = {
    "share.isolation.level": "what was rolled back is read at one of them and not at the other",
    "share.auto.offset.reset": "partitions without a start offset would begin elsewhere",
}


def compare_group_configs(
    context: RunContext, group: str, kind: str, problems: list[str]
) -> ActionGenerator[JsonObject]:
    """What is different, by key: [at the source, at the target]; a key that only one side knows is its version's own.
    `problems` gets what changes which records are read; the rest is said."""
    there_name = context.flow.sync.groups.target_group(group)
    try:
        at_source = yield from perform_action(ReadGroupConfigs("source", group), ObservedGroupConfigs, context.policy)
        at_target = yield from perform_action(ReadGroupConfigs("target", group), ObservedGroupConfigs, context.policy)
    except Refused as why:
        yield ReportMessage(f"settings of group {group} at its brokers cannot be compared: {why}")
        return {"untold": str(why)}
    if at_source.text or at_target.text:
        silent = [
            alias for alias, seen in ((context.flow.source, at_source), (context.flow.target, at_target)) if seen.text
        ]
        verb = "do" if len(silent) > 1 else "does"
        reason = f"{' and '.join(silent)} {verb} not tell ({at_source.text or at_target.text})"
        yield ReportMessage(
            f"settings of group {group} at its brokers cannot be compared: {reason}. They need DESCRIBE_CONFIGS on the "
            "group (`topology acls`)"
        )
        return {"untold": reason}
    different = {
        key: [value, at_target.values[key]]
        for key, value in sorted(at_source.values.items())
        if key.startswith(GROUP_CONFIG_PREFIXES[kind]) and at_target.values.get(key, value) != value
    }
    for key, (source, target) in different.items():
        text = (
            f"group {group} has {key}={source} at {context.flow.source} and {target} at {context.flow.target}"
            f"{f', where it is {there_name}' if there_name != group else ''}"
        )
        if key in _MEANS:
            problems.append(f"{text}: {_MEANS[key]}. {_remedy(there_name, key, source)}")
        else:
            yield ReportMessage(f"{text}. {_remedy(there_name, key, source)}")
    return {"different": different}


def _remedy(group: str, key: str, value: str) -> str:
    alter = ["kafka-configs", "--bootstrap-server", "TARGET", "--alter", "--entity-type", "groups"]
    held = f"[{value}]" if "," in value else value  # else the tool takes what follows for another key
    return f"To keep it: {render_shell_command(*alter, '--entity-name', group, '--add-config', f'{key}={held}')}"
