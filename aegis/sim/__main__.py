"""`python -m aegis.sim run --seeds N --first-seed S`."""

import sys

from aegis.sim.command import main

sys.exit(main())
