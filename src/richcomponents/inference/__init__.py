"""Draws, protection, evidence, posterior, tests and verdicts, estimates: the one way to be sure."""
