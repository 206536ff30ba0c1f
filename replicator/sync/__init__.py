"""What travels beside records (`sync:` of a flow): one module a kind, all of the shape of `sync_kind.SyncKind`.

`topology plan` shows what a kind finds different, `topology apply` carries it over, and `continuous_sync`
in the worker that serves slot 0 does so again and again. Nothing here ever deletes anything.
"""
