"""python3 -m larklane.profile."""

from larklane.files import console
from larklane.profile.profile import main

console.run(main)
