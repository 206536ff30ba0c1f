"""What travels beside records (`sync:` of a flow): one module a kind, all of the shape of `kind.Kind`.

`topology plan` shows what a kind finds different, `topology apply` carries it over, and for `continuous` the `keeper`
in the worker that serves slot 0 does so again and again. Nothing here ever deletes anything.
"""
