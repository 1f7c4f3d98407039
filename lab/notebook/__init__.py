"""What `%load_ext lab` adds to a notebook, and what is live in it: sources and sliders."""
