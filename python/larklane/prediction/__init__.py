"""Predicted time of a recorded run with partitions: threads replayed with measured costs."""
