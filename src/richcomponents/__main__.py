"""``python -m richcomponents`` is the command ``rca``."""

from richcomponents.cli import main

if __name__ == "__main__":
    main()
