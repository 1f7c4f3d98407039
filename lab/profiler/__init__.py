"""What a GPU's counters say of a call: `lab.profile` runs it under Nsight Compute."""
