"""python3 -m larklane FILE...: the report."""

from larklane import console
from larklane.report import main

console.run(main)
