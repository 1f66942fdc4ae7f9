"""Measurements of `larklane tune`."""
