"""python3 -m larklane FILE...: the report."""

from larklane.report.__main__ import run

if __name__ == "__main__":
    run()
