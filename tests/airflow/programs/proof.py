"""Stands for a Spark proof: writes a summary after a while and ends with the verdict's exit code.

proof.py --out DIR --verdict proven|different|incomplete [--seconds S] [--topology PATH] [--whole]
"""

import argparse
import json
import time
from pathlib import Path

EXIT = {"proven": 0, "different": 1, "error": 2, "incomplete": 3}

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--verdict", required=True)
parser.add_argument("--seconds", type=float, default=0.0)
parser.add_argument("--topology")
parser.add_argument("--whole", action="store_true", help="all that subscribers are told of")
options = parser.parse_args()
print("comparing", options.topology)
time.sleep(options.seconds)
summary = {"schema": 1, "verdict": options.verdict, "unproven": 0 if options.verdict == "proven" else 3}
if options.whole:
    counts = (
        "proven missing altered reordered duplicates foreign unverifiable pending proven_earlier quarantined records"
    )
    summary |= dict.fromkeys(counts.split(), 0)
    summary |= dict.fromkeys(("proof_root", "plan_hash", "level", "mode", "ended_at", "findings"), "")
(options.out / "summary.json").write_text(json.dumps(summary))
print("done")
raise SystemExit(EXIT[options.verdict])
