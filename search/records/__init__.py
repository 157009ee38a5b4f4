"""Records: what is kept of each candidate, its line in a log, and the database.

Everything read from outside is validated and nothing is evaluated.  It knows what a task is and how targets are
described, and nothing of how candidates are made, built or measured.  SQLAlchemy is used in `database` alone.
"""
