"""Imported by the process whose forks run stages: five trees in place of fifty, as the fixture `small_forests` has it.

What forests learn is tested with the baselines.
"""

from histo_monai.finetuning import learners

learners.TREES_IN_FOLDS = 5
