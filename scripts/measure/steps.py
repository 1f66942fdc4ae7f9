#!/usr/bin/env python3
"""Runs an example in its mode without partitions and prints the milliseconds per step. It runs on MPICH 5, two ranks, one core each.

bars.py reads the last line: {"samples": [ms per step], "wrong": 0}. The examples verify their results and fail otherwise.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import savings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", action="store_true", help="recorded by `larklane profile`")
    parser.add_argument("program", choices=savings.JOINED)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of the program")
    arguments = parser.parse_args()
    configuration = savings.Configuration(arguments.program, " ".join(arguments.options))
    with tempfile.TemporaryDirectory(prefix="steps-") as folder:
        before = savings.profiler(pathlib.Path(folder) / "profile") if arguments.profile else ()
        print(json.dumps({"samples": [savings.run(configuration, savings.JOINED[arguments.program], before, ("-bind-to", "core"))], "wrong": 0}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
