"""SYN008 deprecated-field: a word that an earlier version of the language used, and that is still read.

Why: old spellings go one day, and a file that mixes both is harder to search. What the word means has not changed:
`guard: path` is `producer_id`, and the proof levels `counts` and `checksums` are `L0` and `L1`.

Bad:

    defaults:
      provenance: {guard: path}

Good:

    defaults:
      provenance: {guard: producer_id}

Source: own; the words are those of the first draft of `topology/v1alpha1`
"""

from topology.rule import Rule, build_loader_check

RULE = Rule("SYN008", "deprecated-field", "warning", __doc__, build_loader_check("SYN008"))
