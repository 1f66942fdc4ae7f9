#!/usr/bin/env python3
"""Files that a user keeps are whole, and a path that is no regular file stays unchanged."""

import json
import os
import pathlib
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from larklane.files import json_text, output_file  # noqa: E402


def test_link(folder):
    (folder / "target").write_text("old")
    (folder / "link").symlink_to("target")
    output_file.write(folder / "link", "new")
    assert (folder / "link").is_symlink() and (folder / "target").read_text() == "new"


def test_part_that_is_a_link(folder):
    (folder / "other").write_text("other")
    (folder / ("file" + output_file.PART)).symlink_to("other")
    output_file.write(folder / "file", "new")
    assert (folder / "file").read_text() == "new" and (folder / "other").read_text() == "other"


def test_pipe(folder):
    os.mkfifo(folder / "pipe")
    heard = []
    reader = threading.Thread(target=lambda: heard.append((folder / "pipe").read_text()))
    reader.start()
    output_file.write(folder / "pipe", "through")
    reader.join()
    assert heard == ["through"] and (folder / "pipe").is_fifo()


def test_json_takes_a_line_for_each_series(_):
    series = [0.1 + number for number in range(100)]
    value = {"a": {"b": 1, "c": []}, "name": "é\n", "series": {"x": series, "y": [None, *series]}, "rows": [{"n": number, "text": "t" * 30} for number in range(9)]}
    text = json_text.compact(value)
    assert json.loads(text) == value and list(json.loads(text)) == list(value)
    lines = text.split("\n")
    assert lines[1] == ' "a": {"b": 1, "c": []},' and lines[4:7] == [f'  "x": {json.dumps(series)},', f'  "y": {json.dumps([None, *series])}', " },"]
    assert len(lines) == 1 + 2 + 4 + 11 + 2, lines
    assert json_text.compact({}) == "{}\n" and json_text.compact(1.5) == "1.5\n"


def main():
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder))
            print(f"{name}: ok")


if __name__ == "__main__":
    main()
