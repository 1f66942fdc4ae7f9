"""The Python part of the command `larklane`: statistics, figures and reports of measurements. Needs the standard library only;
figures need matplotlib."""
