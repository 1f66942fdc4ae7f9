"""Python side of the `larklane` command: runs, reports, figures."""
