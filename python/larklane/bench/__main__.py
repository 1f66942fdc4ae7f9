"""python3 -m larklane.bench."""

from larklane.bench.command import main
from larklane.files import console

console.run(main)
