"""Input and output files, and standard streams."""
