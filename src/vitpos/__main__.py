"""``python -m vitpos``: the command line."""

from vitpos.cli import main

if __name__ == "__main__":
    main()
