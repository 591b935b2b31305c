"""``python -m haloconv``: the command line."""

from haloconv.flow.cli import entry

__all__: list[str] = []

if __name__ == "__main__":
    entry()
