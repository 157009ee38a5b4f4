"""Integer sets: isl behind a small typed face, and proofs that accesses stay inside."""
