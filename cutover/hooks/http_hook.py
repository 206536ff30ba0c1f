"""A hook as an address that gets a signed POST (`cutover.live.signed_request`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from watershed.clusters.bounded_http import HttpAnswer, NoHttpAnswer, call_http
from watershed.cutover.hooks.hook_messages import HookCall, HookReply, parse_hook_reply
from watershed.cutover.live.allowed_hosts import find_host_refusal, is_loopback_url_host, parse_host
from watershed.cutover.live.signed_request import build_signature_headers

_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)  # seconds between tries; the last one again and again
_ASK_AGAIN = frozenset({408, 425, 429})  # and all of 5xx: it could not say yes or no


@dataclass(frozen=True, slots=True)
class HttpHook:
    """secret: key of the signature. seconds: bound of all tries together; one try gets at most half of what is left."""

    url: str
    secret: str | None
    seconds: float
    environ: Mapping[str, str]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    wall: Callable[[], float]

    def problems(self) -> list[str]:
        """Why the hook cannot be called: a host that is not allowed, or no key to sign with."""
        return [why for why in (find_host_refusal(self.url, self.environ), self._unsigned()) if why is not None]

    def call(self, asked: HookCall) -> HookReply:
        """Posts the signed body until there is an answer or the hook's time is over."""
        refused = (
            find_host_refusal(self.url, self.environ) or self._unsigned()
        )  # an operator may have changed his mind since
        if refused is not None:
            return HookReply("no", refused)
        body = json.dumps(asked.to_json(), sort_keys=True).encode()
        ends, tries = self.clock() + self.seconds, 0
        while True:
            tries += 1
            left = ends - self.clock()
            try:
                answer = call_http("POST", self.url, body, self._headers(asked.key, body), max(left / 2, 0.05))
                heard = _heard(answer)
            except NoHttpAnswer as silence:
                heard = HookReply("silence" if silence.transient else "no", f"{self.url}: {silence}")
            pause = _PAUSES[min(tries, len(_PAUSES)) - 1]
            if heard.word != "silence":
                return HookReply(heard.word, heard.text, tries)
            if self.clock() + pause >= ends:
                return HookReply("silence", f"{heard.text} (asked {tries} times in {self.seconds:g} s)", tries)
            self.sleep(pause)

    def _headers(self, key: str, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self.secret is None:
            return headers | {"X-Watershed-Timestamp": str(int(self.wall()))}
        return headers | build_signature_headers(self.secret, body, self.wall())

    def _unsigned(self) -> str | None:
        if self.secret is not None or is_loopback_url_host(parse_host(self.url)):
            return None
        return f"{self.url} would be called unsigned, which only this machine's own addresses are: give it a `secret`"


def _heard(answer: HttpAnswer) -> HookReply:
    if answer.status == 409:
        return HookReply("yes", f"done before: it answered 409 for the same key ({answer.text or 'without a word'})")
    if 200 <= answer.status < 300:
        try:
            return parse_hook_reply(json.loads(answer.body or b"null"), f"answered {answer.status}")
        except (ValueError, RecursionError):
            if answer.body.lstrip().startswith(b"{"):  # cut off perhaps, and perhaps a no
                return HookReply("no", f"answered {answer.status} with JSON that cannot be read: {answer.text}")
            return HookReply("yes", answer.text or f"answered {answer.status}")
    answer_text = f"answered {answer.status}" + (f": {answer.text}" if answer.text else "")
    if 300 <= answer.status < 400:
        return HookReply("no", f"{answer_text}; redirects are not followed, give the hook its final address")
    return HookReply("silence" if answer.status >= 500 or answer.status in _ASK_AGAIN else "no", answer_text)
