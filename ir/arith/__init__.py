"""Integer arithmetic: intervals, linear forms, and the simplifier."""
