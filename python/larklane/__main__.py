"""python3 -m larklane FILE...: the report."""

from larklane.files import console
from larklane.report.command import main

console.run(main)
