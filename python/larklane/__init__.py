"""What the command `larklane` does in Python: statistics, figures and reports of measurements. Needs the standard library only;
figures need matplotlib."""
