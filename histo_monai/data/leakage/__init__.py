"""The audit of the index: nothing that the test is about may have been seen before, under whatever name."""
