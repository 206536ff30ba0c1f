"""The steps at which hooks are called: checks that gate, hooks that are told, and those told of a rollback."""

from __future__ import annotations

from watershed.cutover.actions import CallHook, CheckHooks, JsonObject
from watershed.cutover.errors import Refused
from watershed.cutover.observations import HookAnswer, HookProblems
from watershed.cutover.policy import WavePolicy
from watershed.cutover.polling import ActionGenerator, perform_action
from watershed.cutover.run_context import RunContext


def _list_hook_names(policy: WavePolicy) -> tuple[str, ...]:
    """Every hook that a run with this policy may call."""
    at = policy.hooks
    checks = (*policy.checks_before, *policy.checks_after)
    fence = (policy.fence.hook,) if policy.fence.hook is not None else ()
    return tuple(dict.fromkeys((*at.before, *at.fenced, *at.switched, *at.rolled_back, *checks, *fence)))


def check_hooks(context: RunContext, problems: list[str]) -> ActionGenerator[None]:
    """What would keep hooks from being called is found before anything is moved."""
    names = _list_hook_names(context.policy)
    if names:
        problems += (yield from perform_action(CheckHooks(names), HookProblems, context.policy)).problems


def call_checks_before(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `checks_before`: the file's own checks, before anything is stopped."""
    yield from _call_hooks(context, outcome, "check", context.policy.checks_before, "checks_before")


def call_checks_after(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `checks_after`: the file's own checks, once consumers have moved."""
    yield from _call_hooks(context, outcome, "check", context.policy.checks_after, "checks_after")


def call_hooks_before(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `hooks_before`: the hooks that the file calls before applications move."""
    yield from _call_hooks(context, outcome, "before", context.policy.hooks.before)


def call_hooks_fenced(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `hooks_fenced`: the hooks that the file calls while nobody writes."""
    yield from _call_hooks(context, outcome, "fenced", context.policy.hooks.fenced)


def call_hooks_switched(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Step `hooks_switched`: the hooks that the file calls once producers write to the target."""
    yield from _call_hooks(context, outcome, "switched", context.policy.hooks.switched)


def call_hooks_rolled_back(context: RunContext, outcome: JsonObject) -> ActionGenerator[None]:
    """Nothing that a hook says can break a rollback: it is noted."""
    try:
        yield from _call_hooks(context, outcome, "rolled_back", context.policy.hooks.rolled_back, all_of_them=True)
    except Refused as why:
        outcome["refused"] = str(why)


def _call_hooks(
    context: RunContext,
    outcome: JsonObject,
    point: str,
    names: tuple[str, ...],
    purpose: str | None = None,
    *,
    all_of_them: bool = False,
) -> ActionGenerator[None]:
    """One after the other. Raises Refused at the first that says no (`on_failure: continue` never does), or behind the
    last with all_of_them. purpose: what makes the key, where a point alone does not tell two calls apart."""
    outcome["hooks"], refused = {}, []
    for name in names:
        body: JsonObject = {
            "source": context.flow.source,
            "target": context.flow.target,
            "topics": list(context.wave.topics),
        }
        key = f"{context.wave.name}/{purpose or point}/{name}"
        try:
            seen = yield from perform_action(CallHook(name, point, key, body), HookAnswer, context.policy)
        except Refused as why:
            outcome["hooks"][name] = {"agreed": False, "text": str(why)}
        else:
            outcome["hooks"][name] = {"agreed": seen.agreed, "text": seen.text, **seen.seen}
        if not outcome["hooks"][name]["agreed"]:
            refused.append(f"hook {name} said no: {outcome['hooks'][name]['text']}")
            if not all_of_them:
                break
    if refused:
        raise Refused("; ".join(refused), outcome)
