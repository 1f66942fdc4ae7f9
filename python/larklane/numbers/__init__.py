"""Statistics of samples, and numbers with their units."""
