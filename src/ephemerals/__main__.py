"""Run the command line as `python -m ephemerals`."""

from ephemerals.cli import main

if __name__ == "__main__":
    main()
