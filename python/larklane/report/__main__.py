"""python3 -m larklane.report."""

from larklane.files import console
from larklane.report.command import main

console.run(main)
