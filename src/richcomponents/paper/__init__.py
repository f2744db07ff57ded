"""The paper, literally."""
