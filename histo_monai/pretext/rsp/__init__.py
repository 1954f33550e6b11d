"""Resolution sequence prediction, as the paper has it; what `rsp_moco` shares with it lies beside this folder."""
