"""The part of a profile's report on ordinary messages: accounts of threads, and the effect of option p2p."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from larklane.numbers import wording
from larklane.profile.ordinary import CARRIED, Account, duration_ns
from larklane.profile.profile import Profile
from larklane.profile.team import UNKNOWN
from larklane.report.digest import Table

LITTLE = 0.01  # of a thread's time
BY_TAG = "each tag on its lane"  # in RankFile.ordinary
DOCS = "docs/user/ordinary-messages.md"


def account_table(profile: Profile, accounts: Sequence[Account]) -> Table:
    """The accounts of the threads, with the share of the run that they spend in calls."""
    run_ns = {file.rank: duration_ns(file) for file in profile.files}
    rows = tuple((str(each.rank), "?" if each.number == UNKNOWN else str(each.number), str(len(each.tags)), str(each.sends), wording.size(each.sent_bytes),
                  str(each.receives), wording.duration(each.calls_ns), f"{100 * each.calls_ns / run_ns[each.rank]:.3g} %") for each in accounts)
    return Table(("rank", "thread", "communicators", "sends", "bytes sent", "receives", "time in calls", "of the run"), rows)


def ordinary_sentences(profile: Profile, accounts: Sequence[Account]) -> list[str]:
    """@return sentences on the carrier of this run, and on a run with p2p=on; none without ordinary messages"""
    if not accounts:
        return []
    longest = wording.duration(max(duration_ns(file) for file in profile.files))
    took = f"From MPI_Init to MPI_Finalize: {longest}."
    said = [f"In this run {text}." for text in dict.fromkeys(file.ordinary for file in profile.files) if text]
    if any(CARRIED in file.ordinary for file in profile.files):
        lanes = [] if any(BY_TAG in file.ordinary for file in profile.files) else _lanes(accounts)
        return [*said, took, *lanes, "To compare, profile the program without p2p=on, too, and give both folders to `larklane report`."]
    if said:
        return [*said, took]
    if len({(file.host, file.clock_id) for file in profile.files}) > 1:
        return [f"`larklane run --option p2p=on` would leave them to the MPI: the ranks ran on several hosts ({DOCS}).", took]
    return [_carried(accounts), took, *_gain(profile, accounts), *_lanes(accounts)]


def _carried(accounts: Sequence[Account]) -> str:
    sends, sent_bytes = sum(each.sends for each in accounts), sum(each.sent_bytes for each in accounts)
    foreign, calls = sum(each.foreign for each in accounts), sends + sum(each.receives for each in accounts)
    rest = (f" {foreign:,} of {calls:,} sends and receives stay with the MPI: with processes outside of MPI_COMM_WORLD, or on communicators of sessions."
            if foreign else "")
    return f"`larklane run --option p2p=on` would carry them: {wording.count(sends, 'send')} of {wording.size(sent_bytes)} in all, if all ranks run so.{rest}"


def _gain(profile: Profile, accounts: Sequence[Account]) -> list[str]:
    run_ns = {file.rank: duration_ns(file) for file in profile.files}
    most = max(each.calls_ns / run_ns[each.rank] for each in accounts)
    bound = f"The busiest thread spends {100 * most:.3g} % of the run in its calls, waiting included"
    if most < LITTLE:
        return [f"{bound}: next to nothing can be saved."]
    threads = max(collections.Counter(each.rank for each in accounts).values())
    how = (f"Up to {threads} threads of a rank make these calls, which most MPIs let in one at a time; on lanes they go side by side." if threads > 1 else
           "One thread of each rank makes these calls: it may gain by a shorter path, not by lanes.")
    return [how, f"{bound}: no more can be saved. By how much it is shorter only a run tells: give --option p2p=on to `larklane profile`, too."]


def _lanes(accounts: Sequence[Account]) -> list[str]:
    """@return a sentence on the lanes of the threads, and on the way to a lane for each"""
    users: dict[tuple[int, int], list[set[int]]] = collections.defaultdict(list)  # tags of each thread, by rank and communicator
    for each in accounts:
        for context, tags in each.tags.items():
            users[each.rank, context].append(tags)
    shared = [tags for tags in users.values() if len(tags) > 1]
    if not shared:
        several = max(collections.Counter(each.rank for each in accounts).values()) > 1
        return ["Each thread has a communicator of its own, so a lane of its own while there are enough (option vci_count_max)."] if several else []
    own = "A communicator for each thread (MPI_Comm_dup) gives each a lane"
    if any(tag < 0 for tags in shared for of_thread in tags for tag in of_thread):
        return [f"Threads share a communicator, so a lane, and receive any tag. {own}."]
    if all(sum(map(len, tags)) == len(set().union(*tags)) for tags in shared):
        return [f"Threads share a communicator, so a lane, but each has tags of its own. {own}; so do the info keys mpi_assert_no_any_tag and "
                f"mpi_assert_no_any_source, or p2p_lanes_by_tag=on with MPI_THREAD_MULTIPLE ({DOCS})."]
    return [f"Threads share a communicator and its tags, so a lane. {own}."]
