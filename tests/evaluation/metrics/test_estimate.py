import json

import numpy as np

from histo_monai.evaluation.metrics import Estimate


def test_an_estimate_is_valid_json_also_where_it_is_undefined():
    metrics = json.loads(
        json.dumps(Estimate(np.float64(1 / 3), np.nan, np.inf, 7).as_dict(), allow_nan=False)
    )
    assert metrics == {"value": 0.333333, "low": None, "high": None, "n": 7}
