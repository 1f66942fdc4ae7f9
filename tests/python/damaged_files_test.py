#!/usr/bin/env python3
"""Damaged files: each reader refuses them with file and place, or makes a report of the intact parts. Files without an end are refused unread.

LARKLANE_SEED=N begins with another seed.
"""

import contextlib
import io
import json
import os
import resource
import sys
import tempfile
import unittest
from pathlib import Path

import golden
from mutations import mutated, mutated_json, seeds

sys.path.insert(0, str(golden.ROOT / "tests/unit"))
import profile_reader_test as files  # noqa: E402

from larklane.comparison import projection  # noqa: E402
from larklane.files import input_file  # noqa: E402
from larklane.prediction import costs  # noqa: E402
from larklane.profile import command as profile_command  # noqa: E402
from larklane.profile import profile, writes  # noqa: E402
from larklane.profile.profile_file import Kind, ProfileError  # noqa: E402
from larklane.records import schema  # noqa: E402
from larklane.report import command as report  # noqa: E402
from larklane.simulation import command as simulation  # noqa: E402

MUTATIONS = 1000
DIGESTS = 10  # every so many
GROWTH_MAX = 400 << 20  # bytes, of the process, in all mutations of a kind

MPIP = """@ mpiP
@--- MPI Time (seconds) ---------------------------------------------------
Task    AppTime    MPITime     MPI%
   0       10.0        2.0    20.00
   *       20.0        4.0    20.00
@--- Aggregate Time (top twenty, descending, milliseconds) ----------------
Call                 Site       Time    App%    MPI%     COV
Send                    1        500    2.50   12.50    0.00
Allreduce               2        900    4.50   22.50    0.00
@--- Callsite ---
"""


def damaged_json(whole: golden.Json, seed: int) -> bytes:
    """Its text, or one of its values: the latter stays JSON."""
    if seed % 3 == 0:
        return mutated(json.dumps(whole, indent=1).encode(), seed)
    return json.dumps(mutated_json(whole, seed), indent=1).encode()


class Damaged(unittest.TestCase):
    """One folder of files for each test."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def tearDown(self) -> None:
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self.before) << 10
        self.assertLess(grown, GROWTH_MAX)

    def check_refusal(self, seed: int, error: Exception, *places: str) -> None:
        text = input_file.show(str(error))
        self.assertLess(len(text), 2000, f"LARKLANE_SEED={seed}")
        self.assertTrue(all(place in text for place in places), f"LARKLANE_SEED={seed}: {text}")

    def report(self, seed: int, *words: object) -> None:
        """It is made, or refused with a message."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = report.main([*map(str, words), "--text"])
        self.assertTrue(status == 0 or (status == report.USAGE and err.getvalue()), f"LARKLANE_SEED={seed}: {err.getvalue()}")

    def test_records(self) -> None:
        trace = {"transfers": [[1, 2, 8], [2, 5, 8]], "arrivals_ns": [2, 5], "joined_ns": 1.5}

        def of(variant: str) -> list[golden.Json]:
            ways = [golden.series(way, {"total_ns": [1, None, 3], "exposed_ns": [1.5, 2, 4], "half_round_trip_ns": [5, 6, 7]}, traces=[trace])
                    for way in ("join", "partitioned", "join'")]
            return [golden.record(name, golden.point(8, 4, *ways), golden.point(16, 4, *ways), variant=variant) for name in ("overhead", "latency")]

        failures = [{"benchmark": "halo3d", "variant": "native", "way": None, "what": "no end after 300 s"}]
        whole = {**golden.gathered(*of("native"), *of("larklane"), failures=failures), "turns": {"run": 1, "asked": 3}}
        path = self.folder / "bench.json"
        for seed in seeds(MUTATIONS):
            path.write_bytes(damaged_json(whole, seed))
            try:
                schema.load([path])
            except schema.RecordError as error:
                self.check_refusal(seed, error, "bench.json: ")
                continue
            if seed % DIGESTS == 0:
                self.report(seed, path)
            with contextlib.suppress(schema.RecordError):
                costs.read(path)

    def test_profiles(self) -> None:
        files.write(self.folder, 0, files.SENDER)
        files.write(self.folder, 1, files.receiver(0))
        main = [files.record(Kind.REGION, 10, 30, a=2, request=1), files.record(Kind.MEMBER, 11, 20, request=1), files.record(Kind.SEND, 35, 36, 8, a=1, b=1),
                files.record(Kind.BARRIER, 40, 52), files.record(Kind.SEND, 53, 54, 8, 77, a=1, b=2), files.record(Kind.WAIT, 55, 56, handle=77),
                files.record(Kind.BUFFER, 60, 60, 4096, 4096), files.record(Kind.WRITE, 50, 50, 4096, a=4096, b=1), files.record(Kind.JOIN, 80, 90, 111)]
        second = [files.record(Kind.MEMBER, 12, 28, request=1), files.record(Kind.BARRIER, 50, 51), files.record(Kind.THREAD, 70, 75, 111)]
        files.write(self.folder, 2, [(0, main), (1, second)], size=3)
        damaged = [(path, path.read_bytes()) for path in sorted(self.folder.iterdir())]
        chunk = files.HEADER_BYTES + files.CHUNK_HEADER_BYTES
        parts = ((0, 700), (files.HEADER_BYTES, chunk + 500), (chunk, chunk + 500))
        for seed in seeds(MUTATIONS):
            path, data = damaged[seed % len(damaged)]
            begin, end = parts[seed // 3 % len(parts)]
            piece = mutated(data[begin:end], seed)
            if seed % 4:  # the rest stays where it is
                piece = piece[: end - begin].ljust(end - begin, b"\0")
            path.write_bytes(data[:begin] + piece + data[end:])
            try:
                found = profile.load(self.folder)
                profile_command.summary(found)
                profile_command.delays(found)
                if seed % DIGESTS == 0:
                    self.report(seed, self.folder)
            except ProfileError as error:
                self.check_refusal(seed, error, ".larkprof")
            path.write_bytes(data)

    def test_profiles_of_writes(self) -> None:
        """The trace that `larklane report --writes` reads."""
        records = [files.record(Kind.BUFFER, 60, 60, 4096, 4096), files.record(Kind.REGION, 61, 70, a=1, request=1), files.record(Kind.MEMBER, 62, 68, request=1),
                   files.record(Kind.WRITE, 64, 64, 4096, a=4096), files.record(Kind.SEND, 72, 73, 4096, handle=4096, a=1, b=1), files.record(Kind.WRITE, 75, 75, 8192, a=4096)]
        plain, traced = self.folder / "plain", self.folder / "traced"
        for folder in (plain, traced):
            folder.mkdir()
            files.write(folder, 0, [(0, records)], size=1)
        whole = profile.load(plain)
        path = next(traced.iterdir())
        data = path.read_bytes()
        begin = files.HEADER_BYTES
        end = begin + files.CHUNK_HEADER_BYTES + 48 * len(records)
        for seed in seeds(MUTATIONS):
            piece = mutated(data[begin:end], seed)
            if seed % 4:
                piece = piece[: end - begin].ljust(end - begin, b"\0")
            path.write_bytes(data[:begin] + piece + data[end:])
            try:
                found = profile.load(traced)
                for pages in writes.writers_of(found).values():
                    self.assertTrue(all(page.begin <= page.end for page in pages.pages), f"LARKLANE_SEED={seed}")
                writes.check_same(whole, found)
            except ProfileError as error:
                self.check_refusal(seed, error, str(traced) if "does not say" in str(error) else ".larkprof")

    def test_reports_of_mpip(self) -> None:
        path = self.folder / "app.mpiP"
        for seed in seeds(MUTATIONS):
            path.write_bytes(mutated(MPIP.encode(), seed))
            try:
                share = projection.read_mpip(path).share
                self.assertTrue(0 <= share <= 1, f"LARKLANE_SEED={seed}: {share}")
            except schema.RecordError as error:
                self.check_refusal(seed, error, "app.mpiP: ")

    def test_simulations(self) -> None:
        result = {"exposed_us": 1.0, "perceived_gigabytes_per_second": 2.0}
        made = {"schema": 1, "regime": "r", "pattern": "laggard", "spread_us": 1.0, "rounds": 1, "partitions": 4, "threads": 4, "counts": [1, 2, 4], "queues": 1, "seed": 1,
                "is_extrapolated": False, "first_counted": 0, "parameters": [{"name": "L", "value": "1", "source": "s"}],
                **{f"{name}_ps": 1000 for name in ("latency", "send_overhead", "recv_overhead", "gap", "byte")},
                "rows": [{"bytes": size, "one_sided": [result] * 3, "two_sided": result} for size in (8, 16)]}
        path = self.folder / "simulated.json"
        for seed in seeds(MUTATIONS):
            path.write_bytes(damaged_json(made, seed))
            try:
                simulation.figures([simulation.read(path)])
            except schema.RecordError as error:
                self.check_refusal(seed, error, "simulated.json: ")

    def test_files_without_an_end(self) -> None:
        pipe, large = self.folder / "pipe", self.folder / "large"
        os.mkfifo(pipe)
        with large.open("wb") as file:
            file.truncate(input_file.RECORD_BYTES_MAX + 1)
        for path, why in ((pipe, "no regular file"), (Path("/dev/zero"), "no regular file"), (large, "more than"), (self.folder, "Is a directory")):
            for read in (lambda path=path: input_file.read_bytes(path, input_file.RECORD_BYTES_MAX), lambda path=path: input_file.read_json(path)):
                with self.assertRaisesRegex(OSError, why):
                    read()
        for read, expected in ((lambda: schema.load([pipe]), schema.RecordError), (lambda: projection.read_mpip(pipe), schema.RecordError),
                               (lambda: simulation.read(pipe), schema.RecordError)):
            with self.assertRaisesRegex(expected, "pipe: .*no regular file"):
                read()
        (self.folder / "rank-00000.larkprof").symlink_to("/dev/zero")
        with self.assertRaisesRegex(ProfileError, "rank-00000.larkprof: it is no regular file"):
            profile.load(self.folder)

    def test_what_a_terminal_would_obey_is_escaped(self) -> None:
        self.assertEqual(input_file.printable("a\x1b[2J\n\x9b\u202e\udcff"), r"a\x1b[2J\n\x9b\u202e\xff")
        self.assertEqual(input_file.printable("abc", 2), "ab... (3 characters)")
        self.assertEqual(input_file.show("größer\t\x1b\n"), "größer\t\\x1b\n")


if __name__ == "__main__":
    unittest.main()
