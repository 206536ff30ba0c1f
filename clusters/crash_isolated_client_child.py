"""The process that holds the Kafka client for another one (`clusters.crash_isolated_client`): `python -m
clusters.crash_isolated_client_child PID`.

One JSON object a line, `{"id": 1, "call": "module:function", "with": {…}}` on standard input, and its answer,
`{"id": 1, "gives": …}` or `{"id": 1, "error": …, "kind": …}`, on what was standard output. Whatever else is printed
goes to the error output. It ends with the process PID: at the end of its input, or when it has another parent.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from watershed.clusters.errors import ClusterError

MAX_CALL_ANSWER_BYTES = 128 << 20  # bytes of an answer: twice what a control record may hold
_AT_ONCE = 512  # calls; each cluster that is followed has one at a time
_PARENT_S = 1.0
_LONGEST_ERROR = 10_000


def main(arguments: Sequence[str]) -> None:
    """Answers calls from standard input until it closes. arguments: the process id of the parent."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: whoever started us ends us
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort is expected, and memory holds secrets
    threading.Thread(target=_end_with, args=(int(arguments[0]),), daemon=True).start()
    turn = threading.Lock()
    calls = ThreadPoolExecutor(_AT_ONCE)
    for line in sys.stdin.buffer:
        calls.submit(_answer, json.loads(line), answers, turn)
    os._exit(0)  # threads may be waiting for a cluster


def _end_with(parent: int) -> None:
    """The end of the input says it too, unless somebody else holds the other end of the pipe."""
    while os.getppid() == parent:
        time.sleep(_PARENT_S)
    os._exit(0)


def _answer(call: dict[str, Any], answers: BinaryIO, turn: threading.Lock) -> None:
    told = json.dumps({"id": call["id"]} | _result(call["call"], call["with"])).encode()
    if len(told) > MAX_CALL_ANSWER_BYTES:
        why = f"an answer of {len(told)} bytes, at most {MAX_CALL_ANSWER_BYTES} are passed on"
        told = json.dumps({"id": call["id"], "error": why, "kind": "ValueError"}).encode()
    with turn:
        try:
            answers.write(told + b"\n")
            answers.flush()
        except OSError:  # nobody listens any more
            os._exit(0)


def _result(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    module, _, function = name.partition(":")
    try:
        return {"gives": getattr(importlib.import_module(module), function)(**arguments)}
    except Exception as error:  # noqa: BLE001 (whatever it is: it is told to whoever asked)
        kind = "ClusterError" if isinstance(error, ClusterError) else type(error).__name__
        return {"error": (str(error) or repr(error))[:_LONGEST_ERROR], "kind": kind}


if __name__ == "__main__":
    main(sys.argv[1:])
