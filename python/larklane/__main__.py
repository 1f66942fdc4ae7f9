"""python3 -m larklane FILE...: the report."""

import sys

from larklane.report import main

sys.exit(main())
