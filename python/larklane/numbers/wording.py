"""Words of reports: names, numbers with units, and a glossary."""

import math

VARIANTS = {"native": "native", "larklane": "Larklane", "ordinary": "MPI messages on lanes", "lci": "LCI v2"}

WAYS = {
    "join": "one send after the join",
    "single": "one sending thread",
    "persistent": "persistent send after the join",
    "threads": "a send per thread",
    "multiple": "a send per thread",
    "thread-comms": "a send per thread, own communicators",
    "rma": "a put per thread (RMA)",
    "partitioned": "partitioned",
    "pretended": "partitioned in name only",
    "mpipcl": "partitioned, MPIPCL",
    "shared": "threads share lanes",
    "own": "a lane a thread",
    "everywhere": "a process a thread",
    "one-tag": "threads share a communicator and a tag",
    "hints": "threads share a communicator with hints",
    "funneled": "one thread for the messages of all",
    "single-threaded": "a lane a thread, without locks",
    "process-lock": "one lock around all lanes",
    "one-pool": "one pool of operations",
    "progress-all": "each turn serves all lanes",
    "progress-own": "a turn serves its lane only",
    "nothing": "one lane, nothing kept apart",
}

WAY_MEANINGS = {
    "join": "All threads compute, join, then one MPI_Send of the whole message.",
    "single": "The same for each face of sweep3d and halo3d.",
    "persistent": "The same with MPI_Send_init and MPI_Start.",
    "threads": "Each thread sends its share when it has it (MPI_THREAD_MULTIPLE).",
    "thread-comms": "The same, each thread in a communicator of its own.",
    "rma": "Each thread puts its share into a window of the receiver, and a mark after it.",
    "partitioned": "MPI_Psend_init and MPI_Precv_init; each thread marks its partitions with MPI_Pready.",
    "mpipcl": "The same by the calls of MPIPCL, a library over the MPI's persistent messages.",
    "shared": "Messages of threads that have one lane together, or, of an MPI, one communicator or window; or as many as --lanes says.",
    "own": "The same with a lane, or a communicator or window, for each thread.",
    "everywhere": "The same with a process in the place of each thread (\"MPI everywhere\").",
    "one-tag": "All threads have one communicator, or lane, and one tag: a thread receives messages of any.",
    "hints": "A tag for each thread, in one communicator that tells the MPI that no receive has a wildcard (mpi_assert_no_any_source, mpi_assert_no_any_tag).",
    "funneled": "One thread of each process sends and receives the messages of all threads (MPI_THREAD_FUNNELED).",
    "single-threaded": "A lane for each thread alone, which has it without a lock; others ask the kernel when they need it.",
    "process-lock": "A lane a thread, but whoever uses one has one lock of the process first.",
    "one-pool": "A lane a thread, but the operations of all come from one pool; short messages that nobody is told of need none.",
    "progress-all": "A lane a thread, but each turn of progress serves all lanes.",
    "progress-own": "A lane a thread, and a turn serves no other, not even now and then (which may deadlock: ICS'20, figure 9).",
    "nothing": "One lane for all threads, one lock, one pool, and progress of all.",
}

GLOSSARY = {
    "partition": "A part of a message that a thread can mark as ready on its own (MPI_Pready); the receiver can ask for each "
    "(MPI_Parrived). Sender and receiver may split a message differently.",
    "join": "The moment when all threads of a process have finished computing. A program with one send can't send before it.",
    "early bird": "A part that travels, and arrives, while other threads of the sender still compute.",
    "exposed time": "Time from the last thread's end to the last arrival: the communication that a program waits for.",
    "smallest timer": "The shortest time after the first part for which a sender has to wait to send all parts but those of the last thread "
    "in one go (CLUSTER'23, figure 12).",
    "native": "The MPI library's own communication.",
    "Larklane": "The same program and the same MPI, started under `larklane run`, which serves the partitioned calls.",
    "round": "The same message once: threads compute, mark or send, the receiver gets everything; verified each time.",
    "noise": "What makes threads finish at different times; here made on purpose, of a known kind and amount, the same for all ways.",
    "hot, cold cache": "Whether the message is still in the processor's caches, or was flushed before each round.",
    "median, p10, p90": "Half of the rounds lie below the median, a tenth below p10, nine tenths below p90. Bands show p10 to p90.",
    "95 % interval": "Where the median (or a ratio of medians) lies, if the rounds were drawn again from those that were seen "
    "(bootstrap, 1000 draws).",
    "A/A noise": "The same way measured twice in the same run differs by this much: smaller differences mean nothing.",
    "p": "How probable it is to see the two series differ in rank as much as they do, if there were no difference "
    "(Mann-Whitney). Small is sure.",
    "guard": "A round before the measurement in which the last partition is held back: a way that claims to be complete, or shows "
    "wrong data, is refused and gets no figures.",
    "lane": "What threads post messages on, with a queue and a lock of its own (virtual communication interface, VCI).",
    "ICS'20": "Zambre, Chandramowlishwaran, Balaji: How I Learned to Stop Worrying About User-Visible Endpoints and Love MPI, ICS 2020.",
    "ICPP'22": "Temuçin, Grant, Afsahi: Micro-Benchmarking MPI Partitioned Point-to-Point Communication, ICPP 2022.",
    "SAND2019-11403": "Dosanjh, Grant: Receive-Side Partitioned Communication, Sandia National Laboratories, 2019.",
    "not publishable": "The build or the machine (turbo unknown) does not allow absolute figures to be quoted; ratios hold for longer.",
}

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def size(count: float) -> str:
    """Bytes, with binary units: 65536 is "64 KiB"."""
    for factor, unit in UNITS:
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count:.4g} B"


def duration(time_ns: float) -> str:
    """1e7 is "10 ms"."""
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(time_ns) >= factor:
            return f"{number(time_ns / factor)} {unit}"
    return f"{number(time_ns)} ns"


def number(value: float) -> str:
    """Three digits, more than a machine reproduces: 12345 is "12,300", 0.01234 is "0.0123"."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return f"{rounded:,.{max(digits, 0)}f}" if abs(value) >= 1e-4 else f"{value:.2e}"


def plain(value: float) -> str:
    """A number without superfluous digits: 1.50 is "1.5"."""
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def probability(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def count(number_of: int, thing: str) -> str:
    """count(1, "file") is "1 file", count(2, "file") "2 files"."""
    return f"{number_of:,} {thing}{'' if number_of == 1 else 's'}"


def way(name: str) -> str:
    return WAYS.get(name, name)
