"""`python -m uniot`."""

from uniot.cli import main

if __name__ == "__main__":
    main()
