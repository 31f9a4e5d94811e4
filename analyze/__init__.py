"""Study a recorded run: lazily, on any machine, without torch."""
