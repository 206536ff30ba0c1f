"""Stands for `spark.verify --stay`: a verdict, then those that are ordered on standard input.

standby.py MODE [arguments of spark.verify]. MODE: `proves`; `leaves` before it is ordered anything; `dies` of an order;
`errs`: what is ordered comes to no verdict; `differs`: so says the first proof, and it does not stay; `fails`: that
comes to no verdict, and its session ends slowly.
"""

import argparse
import json
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("mode")
parser.add_argument("--out", type=Path)
parser.add_argument("--stay", type=float)
options, _ = parser.parse_known_args()


def say(out: Path, verdict: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "verify.log").write_text("begun\n")
    told = {"schema": 1, "verdict": verdict, "unproven": 0 if verdict == "proven" else -1, "by": options.mode}
    (out / ".summary").write_text(json.dumps(told))
    (out / ".summary").rename(out / "summary.json")


assert options.stay
say(options.out, {"differs": "different", "fails": "error"}.get(options.mode, "proven"))
if options.mode == "fails":
    time.sleep(1.0)
    raise SystemExit(2)
if options.mode in ("leaves", "differs"):
    raise SystemExit(0)
for line in sys.stdin:
    if options.mode == "dies":
        raise SystemExit(1)
    ordered = parser.parse_known_args(["ordered", *json.loads(line)])[0]
    say(ordered.out, "error" if options.mode == "errs" else "proven")
