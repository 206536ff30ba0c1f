"""SYN011 wrong-type: a value that is not what its key takes.

Why: a value that is guessed at is a value that is wrong one day.

Source: own; field paths as in confluentinc/kcp internal/manifest/validate.go
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN011", "wrong-type", "error", __doc__, build_loader_check("SYN011"))
