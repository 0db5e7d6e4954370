"""`python -m dbio_commit.cli`: the same as `dbio`."""

from dbio_commit.cli import main

if __name__ == "__main__":
    main()
