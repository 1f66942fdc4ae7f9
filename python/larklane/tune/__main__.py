"""python3 -m larklane.tune."""

from larklane.files import console
from larklane.tune.command import main

console.run(main)
