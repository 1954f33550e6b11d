"""`python -m histo_monai`."""

import sys

from histo_monai.pipeline.warm import main

sys.exit(main())
