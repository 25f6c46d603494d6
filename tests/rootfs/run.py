#!/usr/bin/python3
"""Runs the suites beside this file: what rootfs/build makes, and how it fails.

    tests/rootfs/run.py --nsbox build/nsbox [--as root|user|both] [--only REGEX] [--list] [SUITE...]

Everything else is that of tests/e2e/run.py. NSBOX_TEST_RECIPES=all also builds the large recipes,
twice each, from the mirror of this machine's apt; that takes many minutes.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import run  # noqa: E402

run.HERE = HERE

if __name__ == "__main__":
    sys.exit(run.main())
