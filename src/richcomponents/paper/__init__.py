"""The paper (Ge and Zou, Rich Component Analysis), literally: comes in exact or estimated cumulants, go out its own estimates.
One file per section, no protection and no shrinkage; what every other room is tested against on exact cumulants."""
