"""What each op computes, element by element: one table from ops to descriptions, which users add to."""
