"""Everything that `%load_ext lab` adds to a notebook; also source listings and sliders."""
