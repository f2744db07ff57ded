"""What the library must survive: see `python -m torture --help`."""
