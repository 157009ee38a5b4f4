"""Integer sets: isl behind a small typed interface, and proofs that accesses stay inside."""
