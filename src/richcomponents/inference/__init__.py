"""In: an answer as a function of second moments and T, and evidence about T. Out: its value, share, error, identified set, and
the tests and verdict on it: the one way to be sure."""
