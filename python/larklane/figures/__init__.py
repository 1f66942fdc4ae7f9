"""Figures: contents and drawing."""
