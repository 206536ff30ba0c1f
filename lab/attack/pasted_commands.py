"""2: a group id that is a command, in the output that an administrator pastes into a shell."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

from watershed.lab.attack.attack_setup import AttackSetup, CommandResult
from watershed.lab.attack.control_checks import require_carried_out
from watershed.lab.attack.outcome import Attack, AttackFindings
from watershed.lab.pasted_script import run_pasted_script

_CANARY = "canary"
# What a topology can hold and a shell would run, each in another way of breaking out.
_HOSTILE = (
    f"x'; touch {_CANARY}; '",
    f'x"; touch {_CANARY}; "',
    f"x; touch {_CANARY};",
    f"x && touch {_CANARY} #",
    f"x | touch {_CANARY}",
    f"`touch {_CANARY}`",
    f"$(touch {_CANARY})",
    f"x\ntouch {_CANARY}\n",
)
_HONEST = "billing"
_FILE = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: pasted, owner: attack}}
clusters:
  onprem: {{bootstrap: [a.example.internal:9092]}}
  cloud: {{bootstrap: [b.example.internal:9092]}}
flows:
  - {{source: onprem, target: cloud, topics: {{include: [orders]}}}}
migration:
  flow: onprem-to-cloud
  waves:
    - {{name: one, topics: [orders], consumers: [{group}], producers: [shop],
       gates: {{before: [{{lag: {{max_records: 0, hold: 30s}}}}]}}, rollback: {{none: tried}}}}
"""
_COMMAND = re.compile(r"(?:^|[:=`]) *((?:topology|kafka-[a-z-]+)(?:\.sh)? [^`\n]+)", re.MULTILINE)


def _paste_printed_commands(scene: AttackSetup) -> AttackFindings:
    honest = _acls(scene, _HONEST, "honest", "User:ops")
    done = run_pasted_script(honest.out, scene.folder / "shell-honest")
    groups = [call[call.index("--group") + 1] for call in done.calls if "--group" in call]
    require_carried_out(_HONEST in groups, f"the commands for an honest group do not name it: {groups} ({honest.how})")
    for number, (group, quotes) in enumerate(zip(_HOSTILE, ("'", '"', ""), strict=False)):
        naive = f"kafka-acls --group {quotes}{group}{quotes}"
        ran = run_pasted_script(naive, scene.folder / f"shell-naive-{number}")
        require_carried_out(_CANARY in ran.files, f"even unquoted, {group!r} executes nothing in this shell")
    findings = AttackFindings(
        f"{len(_HOSTILE)} hostile group ids, a hostile principal and a hostile file name; all that was printed was run "
        "by bash"
    )
    quoted, refused = 0, 0
    with ThreadPoolExecutor(2) as pool:
        names = [f"hostile-{number}" for number in range(len(_HOSTILE))]
        outputs = list(pool.map(lambda group, name: _acls(scene, group, name), _HOSTILE, names))
    for number, (group, printed) in enumerate(zip(_HOSTILE, outputs, strict=True)):
        ran = run_pasted_script(printed.out, scene.folder / f"shell-{number}")
        if ran.files or ran.code:
            findings.broken.append(f"with group {group!r} bash ended with {ran.code} and made {list(ran.files)}")
        named = [call[call.index("--group") + 1] for call in ran.calls if "--group" in call]
        quoted += group in named
        refused += printed.code in (1, 2) and not printed.out
        if group not in named and not (printed.code in (1, 2) and printed.is_clean):
            findings.broken.append(f"group {group!r} is neither quoted nor refused ({printed.how})")
    require_carried_out(quoted or findings.broken, "no hostile group id came into a command: nothing was tried")
    if not findings.broken:
        findings.seen.append(f"{quoted} came out quoted, {refused} were refused")
        _paste_the_rest(scene, findings)
    return findings


def _acls(scene: AttackSetup, group: str, name: str, principal: str = f"User:w'; touch {_CANARY}; '") -> CommandResult:
    file = scene.file(f"{name}.yaml", _FILE.format(group=json.dumps(group)))
    return scene.topology("acls", file, "--role", "migrate", "--format", "commands", "--principal", principal)


def _paste_the_rest(scene: AttackSetup, findings: AttackFindings) -> None:
    """Commands that other subcommands print for a file with a hostile name."""
    text = _FILE.format(group=json.dumps(_HOSTILE[0]))
    file = scene.file(f"x'; touch {_CANARY}; '.yaml", text)
    lines: list[str] = []
    for arguments in (
        ("lint",),
        ("migrate", "--dry-run"),
        ("acls",),
        ("failover", "--dry-run"),
        ("rollback", "--dry-run"),
    ):
        said = scene.topology(arguments[0], file, *arguments[1:]).said
        lines += _COMMAND.findall(said)
    lines = sorted(set(lines))
    # one by one: what bash cannot parse would hide what stands behind it
    ran = [run_pasted_script(line, scene.folder / f"shell-rest-{number}") for number, line in enumerate(lines)]
    require_carried_out(any(each.calls for each in ran), "the other subcommands printed no command")
    executed = [line for line, each in zip(lines, ran, strict=True) if each.files]
    findings.expect(
        not executed,
        f"{len(lines)} other printed commands executed nothing either",
        f"other printed commands executed what a name holds: {executed}",
    )


PASTED_COMMANDS_ATTACK = Attack(
    2,
    "A topology's author has a command run by the administrator who pastes what is printed",
    _paste_printed_commands,
    needs_clusters=False,
)
