#!/usr/bin/env python3
"""A report of profiles with ordinary messages, made up by hand: accounts of threads, and the effect of option p2p."""

import sys
import unittest
from pathlib import Path

import golden
from report_test import Folder

sys.path.insert(0, str(golden.ROOT / "tests/unit"))
import profile_reader_test as files  # noqa: E402

from larklane.profile import profile  # noqa: E402
from larklane.profile.ordinary import accounts_of  # noqa: E402
from larklane.profile.profile_file import Kind  # noqa: E402
from larklane.profile.team import UNKNOWN  # noqa: E402

END_NS = 100_000
Chunks = list[tuple[int, list[bytes]]]


def exchange(peer: int, tag: int, at: int, context: int = 9) -> list[bytes]:
    """A receive and a send of 8 bytes, 10 ns each, and a call of 500 ns that completes both."""
    return [files.record(Kind.RECEIVE, at, at + 10, 16, 70 + tag, peer, tag, context), files.record(Kind.SEND, at + 10, at + 20, 8, 80 + tag, peer, tag, context),
            *(files.record(Kind.WAIT, at + 20, at + 520, handle=handle + tag) for handle in (70, 80))]


def teams(peer: int, tags: tuple[int, int] = (0, 1), contexts: tuple[int, int] = (9, 9)) -> Chunks:
    """Two regions of two threads. In each region both threads send messages of their own."""
    chunks: Chunks = [(0, []), (1, [])]
    for number, at in ((1, 1000), (2, 20_000)):
        for thread, (tag, context) in enumerate(zip(tags, contexts)):
            chunks[thread][1].extend([*exchange(peer, tag, at + 100, context), files.record(Kind.MEMBER, at, at + 9000, a=thread + 1, request=number)])
        chunks[0][1].append(files.record(Kind.REGION, at - 10, at + 9010, request=number))
    return chunks


class Ordinary(Folder):
    """Reports on a program that sends messages from several threads."""

    def pair(self, one: Chunks, other: Chunks | None = None, **facts: object) -> Path:
        folder = self.folder / "profile"
        folder.mkdir(exist_ok=True)
        for rank, chunks in enumerate((one, one if other is None else other)):
            files.write(folder, rank, chunks, end=END_NS, **facts)
        return folder

    def said(self, folder: Path) -> str:
        status, out, err = self.command(folder, "--text")
        self.assertEqual((status, err), (0, ""))
        return out

    def test_accounts_count_each_call_once(self) -> None:
        """Two exchanges a thread, of two calls of 10 ns and one of 500 that completes two requests."""
        found = accounts_of(profile.load(self.pair(teams(1), teams(0))))
        self.assertEqual([(each.rank, each.number, each.sends, each.sent_bytes, each.receives, each.calls_ns, dict(each.tags)) for each in found],
                         [(rank, thread, 2, 16, 2, 1040, {9: {thread}}) for rank in (0, 1) for thread in (0, 1)])

    def test_persistent_requests_count_by_their_starts(self) -> None:
        records = [files.record(Kind.REQUEST, 5, 5, 32, a=1, b=7, request=1, flags=5), files.record(Kind.PAIR, 5, 5, 9, a=1, request=1, flags=5),
                   *(files.record(Kind.START, at, at + 1, request=1) for at in (10, 20, 30))]
        (account,) = accounts_of(profile.load(self.pair([(0, records)], [])))
        self.assertEqual((account.number, account.sends, account.sent_bytes, account.receives), (UNKNOWN, 3, 96, 0))

    def test_threads_that_send_their_own_messages_are_what_p2p_is_for(self) -> None:
        out = self.said(self.pair(teams(1), teams(0)))
        self.assertRegex(out, r"  0 +1 +1 +2 +16 B +2 +1\.04 µs +1\.04 %")
        self.assertIn("`larklane run --option p2p=on` would carry them: 8 sends of 64 B in all, if all ranks run so.\n", out)
        self.assertIn("From MPI_Init to MPI_Finalize: 100.0 µs.\n", out)
        self.assertIn("Up to 2 threads of a rank make these calls", out)
        self.assertIn("each has tags of its own. A communicator for each thread", out)
        self.assertIn("Sending early would save nothing: the threads send messages of their own", out)
        self.assertNotIn("Messages after a join", out)
        self.assertNotIn("Waiting in receives, per step", out)

    def test_one_sender_in_a_region_waits_for_the_join_before(self) -> None:
        """Of the second region's threads only one sends: nothing is said of messages of their own."""
        chunks = [(thread, [each for each in records if thread == 0 or each[44] not in (Kind.SEND, Kind.RECEIVE, Kind.WAIT)]) for thread, records in teams(1)]
        out = self.said(self.pair(chunks, []))
        self.assertIn("Messages after a join", out)
        self.assertNotIn("messages of their own", out)
        self.assertIn("One thread of each rank makes these calls", out)

    def test_messages_of_their_own_among_others(self) -> None:
        """Before the regions, thread 0 sends one message, or nine, against eight of their own."""
        for count, is_most in ((1, True), (9, False)):
            with self.subTest(count):
                early = [each for at in range(count) for each in exchange(1, 7, 10 * at)]
                chunks = [(thread, early + records if thread == 0 else records) for thread, records in teams(1)]
                out = self.said(self.pair(chunks, teams(0)))
                self.assertEqual("messages of their own (89 % of all), so none" in out, is_most)

    def test_lanes_by_communicators_and_tags(self) -> None:
        for tags, contexts, words in (((0, 1), (8, 9), "Each thread has a communicator of its own"), ((5, 5), (9, 9), "share a communicator and its tags"),
                                      ((0, -1), (9, 9), "share a communicator, so a lane, and receive any tag")):
            with self.subTest(words):
                self.assertIn(words, self.said(self.pair(teams(1, tags, contexts), teams(0, tags, contexts))))

    def test_several_hosts_are_left_to_the_mpi(self) -> None:
        folder = self.pair(teams(1), teams(0))
        files.write(folder, 1, teams(0), end=END_NS, clock=2, host="g", samples=((5, 0, 5), (6, 0, 5)))
        out = self.said(folder)
        self.assertIn("would leave them to the MPI: the ranks ran on several hosts", out)
        self.assertNotIn("would carry", out)

    def test_other_worlds_are_left_to_the_mpi(self) -> None:
        self.assertIn("2 of 2 sends and receives stay with the MPI", self.said(self.pair([(0, exchange(-1, 0, 100))], [])))

    def test_a_share_too_small_to_matter(self) -> None:
        self.assertIn("0.52 % of the run in its calls, waiting included: next to nothing can be saved", self.said(self.pair([(0, exchange(1, 0, 100))], [])))

    def test_the_carrier_of_the_run(self) -> None:
        out = self.said(self.pair(teams(1), teams(0), ordinary=b"point-to-point messages are carried by Larklane, with the MPI's progress hook"))
        self.assertIn("In this run point-to-point messages are carried by Larklane, with the MPI's progress hook.\n", out)
        self.assertIn("profile the program without p2p=on", out)
        self.assertIn("share a communicator, so a lane", out)
        out = self.said(self.pair(teams(1), teams(0), ordinary=b"point-to-point messages are carried by Larklane, each tag on its lane"))
        self.assertNotIn("so a lane", out)
        self.assertNotIn("would carry", out)
        out = self.said(self.pair(teams(1), teams(0), ordinary=b"point-to-point messages are left to the MPI: of devices"))
        self.assertIn("In this run point-to-point messages are left to the MPI: of devices.\n", out)
        self.assertNotIn("would carry", out)

    def test_the_page_has_the_same_and_explains_lanes(self) -> None:
        out = self.folder / "page"
        status, _, _ = self.command(self.pair(teams(1), teams(0)), "--out", out)
        page = (out / "index.html").read_text()
        self.assertEqual(status, 0)
        for words in ("Ordinary messages under p2p=on", "Ordinary messages, by thread", "<dt>lane</dt>", "8 sends of 64 B in all"):
            self.assertIn(words, page)

    def test_a_program_with_partitions_alone_hears_nothing_of_it(self) -> None:
        out = self.said(self.pair(files.SENDER, files.receiver(0)))
        self.assertNotIn("Ordinary messages", out)
        self.assertNotIn("p2p", out)


if __name__ == "__main__":
    unittest.main()
