"""What jitload knows of compilers: the machine's, their errors, and the sources they read."""
