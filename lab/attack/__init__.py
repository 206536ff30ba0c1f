"""The seven attacks of highest severity, run against the installed product (`make attack`, docs/security.md)."""
