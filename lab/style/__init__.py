"""How every figure of the lab looks."""
