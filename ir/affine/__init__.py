"""Integer sets: index maps, regions, and proofs about them."""
