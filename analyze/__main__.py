"""``python -m outcrop.analyze`` is ``outcrop``."""

from .cli import main

if __name__ == "__main__":
    main()
