"""The source is gone: what is lost, where groups go on, promotion; and the way back to it."""
