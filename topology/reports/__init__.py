"""Findings as text for people (`text`, `concise`) and as data (`json`). Secrets never reach a report: see `frame`."""
