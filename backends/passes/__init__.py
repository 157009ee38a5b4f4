"""The passes of `lower`, one per module: each takes a statement and returns an equal one."""
