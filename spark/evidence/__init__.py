"""What a proof leaves behind: tables, summary, report page; and looking into it later."""
