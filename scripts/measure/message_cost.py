#!/usr/bin/env python3
"""Runs `larklane bench message-rate` or `lanes`, given as the words of a command, and prints what a message cost: nanoseconds, for each of a round's. Or an
application of messages: what its rounds took.

The last line is what bars.py reads: {"samples": [ns per message of one thread, a round each], "wrong": rounds with a wrong message}. Of the first way only.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="larklane launch -n N larklane bench ...")
    parser.add_argument("--sample", help="which of an application's samples, in ns; without it: messages")
    arguments = parser.parse_args()
    words = arguments.command
    with tempfile.TemporaryDirectory(prefix="message-cost-") as folder:
        file = pathlib.Path(folder) / "record.json"
        done = subprocess.run([*words, "--quiet", "--json", file], stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            return done.returncode
        record = json.loads(file.read_text(encoding="utf-8"))
    [point] = record["points"]
    series = point["series"][0]
    if arguments.sample:
        samples = series["samples"][arguments.sample]
    else:
        samples = [record["options"]["threads"] * 1e9 / rate for rate in series["samples"]["rate_per_s"]]
    print(json.dumps({"samples": samples, "wrong": sum(each["wrong"] for each in point["series"])}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
