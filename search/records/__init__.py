"""Records: what is kept of each candidate, its line in a log, and the database."""
