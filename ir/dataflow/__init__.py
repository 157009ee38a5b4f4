"""Statement instances: who depends on whom, what memory holds, and which instances may appear or vanish."""
