"""`python -m t2t_jax VERB …` is `python launch.py VERB …` from anywhere the package is installed."""

import sys

from t2t_jax.command_line import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
