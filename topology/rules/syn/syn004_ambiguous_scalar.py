"""SYN004 ambiguous-scalar: a word without quotes that YAML readers understand differently.

Why: `no` becomes false, `010` becomes 8, `12:30` becomes 750 and `3.10` becomes 3.1 for some readers and not for
others.

Source: PyYAML 6.0.3 (measured); adrienverge/yamllint truthy.py, octal_values.py, float_values.py
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN004", "ambiguous-scalar", "error", __doc__, build_loader_check("SYN004"))
