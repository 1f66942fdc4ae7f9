"""Comparison of records: tests, gains, advice, and a projection on an application."""
