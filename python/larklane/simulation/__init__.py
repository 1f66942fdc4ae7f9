"""Figures of the output of `larklane simulate --json`."""
