"""What is known of each GPU: its constants, measured or published."""
