#!/usr/bin/env python3
"""t2t_jax: train, evaluate and use the Transformer of "Attention Is All You Need".

    python launch.py VERB TARGET [--field.sub value …]

TARGET is an experiment file (experiments/*.py) or a run directory. `python launch.py VERB --help` explains a verb;
with an experiment file before --help it lists every setting with that experiment's value.
"""

import sys

from t2t_jax.command_line import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
