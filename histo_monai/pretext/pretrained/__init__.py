"""No pretraining: the encoder of resolution sequence prediction as it is initialized."""
