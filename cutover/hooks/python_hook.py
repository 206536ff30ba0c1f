"""A hook as a function of an installed package, registered as an entry point of the group `watershed.hooks`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from watershed.clusters.deadline import run_with_deadline
from watershed.cutover.hooks.hook_messages import MAX_HOOK_TEXT_CHARS, HookCall, HookReply, parse_hook_reply

_GROUP = "watershed.hooks"


@dataclass(frozen=True, slots=True)
class PythonHook:
    """Called with a HookCall; an exception and False are a no, everything else is a yes. seconds: its bound."""

    name: str
    seconds: float

    def problems(self) -> list[str]:
        """Why the hook cannot be called: its entry point is missing, twice there, or cannot be loaded."""
        found = self._found()
        if isinstance(found, str):
            return [found]
        try:
            loaded = found.load()
        except Exception as error:  # noqa: BLE001 (whatever a foreign module does at its import)
            return [f"entry point {self.name} ({found.value}) cannot be loaded: {type(error).__name__}: {error}"]
        return [] if callable(loaded) else [f"entry point {self.name} ({found.value}) is no function"]

    def call(self, asked: HookCall) -> HookReply:
        """Calls the registered function in a thread of its own, at most for the hook's time."""
        found = self._found()
        if isinstance(found, str):
            return HookReply("no", found)
        returned = False

        def called() -> object:
            nonlocal returned
            try:
                return found.load()(asked)
            finally:
                returned = True

        try:
            value = run_with_deadline(self.seconds, called)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            if isinstance(error, TimeoutError) and not returned:
                return HookReply(
                    "silence", f"{found.value} did not return in {self.seconds:g} s; it may still be running"
                )
            return HookReply("no", f"{type(error).__name__}: {error}"[:MAX_HOOK_TEXT_CHARS])
        return (
            HookReply("no", f"{found.value} returned False") if value is False else parse_hook_reply(value, "returned")
        )

    def _found(self) -> EntryPoint | str:
        """The one entry point of that name, or what is wrong."""
        there = entry_points(group=_GROUP)
        mine = [point for point in there if point.name == self.name]
        if len({point.value for point in mine}) > 1:
            names = " and ".join(sorted(point.value for point in mine))
            return f"{self.name} is registered twice in the group {_GROUP}: {names}; remove one of the packages"
        if not mine:
            others = ", ".join(sorted({point.name for point in there})) or "none"
            return (
                f"no installed package registers {self.name} as an entry point of the group {_GROUP} (there is "
                f"{others}); install it into the environment that runs the migration"
            )
        return mine[0]
