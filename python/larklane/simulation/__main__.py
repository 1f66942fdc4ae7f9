"""python3 -m larklane.simulation."""

from larklane.files import console
from larklane.simulation.command import main

console.run(main)
