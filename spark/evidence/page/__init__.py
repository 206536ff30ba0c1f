"""The proof as one HTML file: `page(document, tables)` of what `summary.json` and the Parquet tables say.

It needs nothing but itself: no script, no network, fonts of the reader's machine; its own Content-Security-Policy
forbids the rest. Everything that is told is text that `element` escapes, because names of groups can be anything.
Its size is bounded whatever was proven: tables end after `ROWS` rows, the map after some 6,000 cells, and both say so.
"""

from watershed.spark.evidence.page.html_page import render_fallback_page, render_proof_page

__all__ = ["render_fallback_page", "render_proof_page"]
