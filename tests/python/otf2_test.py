#!/usr/bin/env python3
"""OTF2 archives: their contents are read back with the format's own library."""

import importlib.util
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

import golden  # noqa: F401  (the path of the package)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "unit"))
import profile_reader_test as by_hand  # noqa: E402

from larklane.profile import otf2_file, profile  # noqa: E402


def interval(begin_ns: int, end_ns: int, name: str) -> otf2_file.Interval:
    return otf2_file.Interval(begin_ns, end_ns, name, None)


class Nesting(unittest.TestCase):
    """The order that an archive requires: entered and left in order of time, the inner ones first."""

    def order(self, *intervals: otf2_file.Interval) -> list[tuple[int, str]]:
        return [(time, ("+" if entered else "-") + each.name) for time, entered, each in otf2_file.nested(list(intervals))]

    def test_inner_is_left_first(self) -> None:
        self.assertEqual(self.order(interval(2, 3, "b"), interval(1, 9, "a"), interval(9, 10, "c")),
                         [(1, "+a"), (2, "+b"), (3, "-b"), (9, "-a"), (9, "+c"), (10, "-c")])

    def test_one_that_ends_later_is_cut(self) -> None:
        self.assertEqual(self.order(interval(1, 5, "a"), interval(4, 8, "b")), [(1, "+a"), (4, "+b"), (5, "-b"), (5, "-a")])


class Archive(unittest.TestCase):
    def setUp(self) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self._scratch.cleanup)
        self.folder = pathlib.Path(self._scratch.name)
        by_hand.write(self.folder, 0, by_hand.SENDER)
        by_hand.write(self.folder, 1, by_hand.receiver(0))
        self.profile = profile.load(self.folder)

    @unittest.skipUnless(importlib.util.find_spec("otf2"), "the Python module otf2 is not here")
    def test_read_back(self) -> None:
        import otf2  # noqa: PLC0415

        otf2_file.write(self.profile, self.folder / "archive")
        seen = []
        with otf2.reader.open(str(self.folder / "archive/traces.otf2")) as trace:
            for location, event in trace.events:
                if isinstance(event, otf2.events.Enter):
                    seen.append((location.group.name, location.name, event.time, event.region.name))
        self.assertIn(("rank 0", "thread 0", 200, "Pready 0 to 1"), seen)
        self.assertIn(("rank 0", "thread 1", 600, "Pready 2"), seen)
        self.assertIn(("rank 1", "arrivals from 0, tag 7", 180, "arrived (observed)"), seen)
        self.assertEqual(sum(name.startswith("Pready") for *_, name in seen), 3)

    def test_of_one_that_fails_nothing_stays(self) -> None:
        class Trace:
            def __init__(self, folder: str, **_: object) -> None:
                pathlib.Path(folder).mkdir(parents=True)
                (pathlib.Path(folder) / "traces.otf2").touch()

            def __enter__(self) -> "Trace":
                raise OSError(28, "No space left on device")

            def __exit__(self, *_: object) -> None:
                pass

        fake = types.ModuleType("otf2")
        fake.writer = types.SimpleNamespace(open=Trace)  # type: ignore[attr-defined]
        (self.folder / "archive.part").mkdir()  # of a killed process
        before = sorted(self.folder.iterdir())
        with unittest.mock.patch.dict(sys.modules, otf2=fake), self.assertRaises(OSError):
            otf2_file.write(self.profile, self.folder / "archive")
        self.assertEqual(sorted(self.folder.iterdir()), [path for path in before if path.name != "archive.part"])

    def test_a_folder_that_is_there_is_left_alone(self) -> None:
        with self.assertRaisesRegex(profile.ProfileError, "is there already|pip install otf2"):
            otf2_file.write(self.profile, self.folder)


if __name__ == "__main__":
    unittest.main()
