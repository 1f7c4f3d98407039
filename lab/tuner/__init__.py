"""Which values of a kernel's constants make it the fastest: `lab.tune`."""
