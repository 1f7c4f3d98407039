"""The constants of each GPU, measured or published."""
