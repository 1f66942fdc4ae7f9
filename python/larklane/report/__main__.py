"""python3 -m larklane.report."""

from typing import NoReturn

from larklane.report.command import main
from larklane.files import console


def run() -> NoReturn:
    console.run(main)


if __name__ == "__main__":
    run()
