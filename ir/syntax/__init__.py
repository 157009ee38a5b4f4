"""Expressions of the script form: names and positions, literals, what ``T.name(...)`` builds, and their parser."""
