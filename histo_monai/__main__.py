"""`python -m histo_monai`."""

import sys

from histo_monai.pipeline.cli import main

sys.exit(main())
