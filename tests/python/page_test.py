#!/usr/bin/env python3
"""The drawn figures and the page: whole, the same for the same input, and right in a browser."""

import json
import re
import shutil
import subprocess
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import golden

from larklane.report import command as report

try:
    import matplotlib.image
except ImportError:
    matplotlib = None  # type: ignore[assignment]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SECTIONS = ["gain", "what", "headline", "metrics", "figures", "comparisons", "advice", "calls", "failures", "glossary", "files"]
# Of each kind one; which figures there are is in report_test.py.
FIGURES = ["arrivals", "overhead", "overhead-partitions", "availability-noise", "recv-compute-communication", "sweep3d", "projection"]
AGAIN = ["arrivals", "projection", "sweep3d"]


class Outline(HTMLParser):
    """Sections, images and the references of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.images: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "section":
            self.sections.append(values["id"] or "")
        if tag == "img":
            self.images.append(values["src"] or "")
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


@unittest.skipUnless(matplotlib, "no matplotlib")
class Page(unittest.TestCase):
    """A report of every benchmark, written twice."""

    folder: Path
    text: str

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        records = cls.folder / "suite.json"
        records.write_text(json.dumps(golden.suite()), encoding="utf-8")
        words = [str(records), "--projection", "0.204:15.1", "--projection", "0.545:15.1"]
        for name, figures in (("first", FIGURES), ("second", AGAIN)):
            assert report.main([*words, "--out", str(cls.folder / name), *(f"--only={figure}" for figure in figures)]) == 0
        cls.text = (cls.folder / "first/index.html").read_text(encoding="utf-8")

    def test_every_figure(self) -> None:
        names = {path.name for path in (self.folder / "first").iterdir()}
        self.assertEqual(names, {"index.html"} | {f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png", "csv")})
        for name in FIGURES:
            svg = (self.folder / "first" / f"{name}.svg").read_text(encoding="utf-8")
            self.assertEqual(ElementTree.fromstring(svg).tag, "{http://www.w3.org/2000/svg}svg")
            self.assertNotIn("<dc:date>", svg)

    def test_same_input_same_bytes(self) -> None:
        for path in (self.folder / "second").glob("*.[scp]*g"):
            self.assertEqual(path.read_bytes(), (self.folder / "first" / path.name).read_bytes(), path.name)

    def test_projection_csv(self) -> None:
        rows = (self.folder / "first/projection.csv").read_text(encoding="utf-8").splitlines()
        self.assertEqual([row.split(",")[-1] for row in rows], ["program_speedup", "1.23532", "2.03628"])

    def test_page_is_whole(self) -> None:
        outline = Outline(self.text)
        self.assertEqual((outline.sections, outline.open), (SECTIONS, []))
        self.assertEqual(len(outline.images), len(FIGURES))
        self.assertTrue(all(image.startswith("data:image/svg+xml;base64,") for image in outline.images))
        self.assertNotRegex(self.text, r"<script|(src|href)=\"https?:")
        self.assertIn('<strong class="better">Better</strong>: perceived bandwidth', self.text)
        for words in ("what has arrived, it says, is not in the buffer", "wrong data or completion in 2 rounds", "a round was not over after 30 s"):
            self.assertIn(words, self.text.replace("\u00a0", " "))

    @unittest.skipUnless(CHROMIUM, "no chromium")
    def test_in_a_browser(self) -> None:
        browser = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder / 'profile'}"]
        page = (self.folder / "first/index.html").as_uri()
        dom = subprocess.run([*browser, "--dump-dom", page], capture_output=True, text=True, timeout=120, check=True).stdout
        self.assertEqual(re.findall(r'<section id="(\w+)"', dom), SECTIONS)
        picture = self.folder / "page.png"
        subprocess.run([*browser, f"--screenshot={picture}", "--window-size=1100,6000", "--hide-scrollbars", page], capture_output=True,
                       timeout=120, check=True)
        pixels = matplotlib.image.imread(picture)[:, :, :3]
        self.assertEqual(pixels.shape[1], 1100)
        orange = (abs(pixels - [0xD5 / 255, 0x5E / 255, 0x00]) < 0.02).all(axis=2)
        self.assertGreater(orange.sum(), 300)  # a line's colour, which the page itself does not use


if __name__ == "__main__":
    unittest.main()
