"""Back behind the point of no return, with everything that was written since."""
