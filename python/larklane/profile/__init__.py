"""Recorded runs: one file a rank, merged on one clock; requests, rounds, phases, messages and page writes."""
