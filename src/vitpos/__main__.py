"""``python -m vitpos``: the command line."""

from vitpos.cli.main import main

if __name__ == "__main__":
    main()
