"""Runs and records of `larklane bench` outside a launcher."""
