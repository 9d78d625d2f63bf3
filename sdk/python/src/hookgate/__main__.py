"""`python -m hookgate run`: serves the plugins of modules."""

import sys

from hookgate._cli.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
