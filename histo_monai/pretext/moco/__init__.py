"""Momentum contrast: the method and its picture; what `rsp_moco` shares with it lies beside this folder."""
