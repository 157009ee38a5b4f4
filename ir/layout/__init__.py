"""Where elements lie: index maps, and what padding holds."""
