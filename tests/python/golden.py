"""Records as `larklane bench` writes them, made up: by hand, or by a small model of threads and a network."""

import copy
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

Json = dict[str, Any]

MACHINE = {"cpu": "Model CPU", "cores": "8", "sockets": "1", "kernel": "6.1", "governor": "performance", "turbo": "off"}


def series(way: str, samples: dict[str, Any], **changes: Any) -> Json:
    """One way's series with these samples."""
    return {"way": way, "wrong": 0, "early": False, "samples": samples, "traces": [], **changes}


def point(size: int, partitions: int, *ways: Json) -> Json:
    return {"bytes": size, "send_partitions": partitions, "recv_partitions": partitions, "rounds": 1, "series": list(ways)}


def record(benchmark: str, *points: Json, variant: str = "native", failures: list[Json] | None = None, **options: Any) -> Json:
    """One run. Options: those of the benchmark, as far as they are not usual."""
    asked = {"benchmark": benchmark, "threads": 4, "compute_ns": 1e7, "noise": "none", "noise_percent": 4, "cache": "hot",
             "scaling": "strong", "order": "ascending", **options}
    context = {"version": "0.1.0", "build": "Release", "variant": variant, "mpi": "Model MPI 1.0", "ranks": 2, "hosts": 1,
               "bindings": ["0-3", "4-7"], "oversubscribed": benchmark == "overhead", "machine": dict(MACHINE), "environment": {}, "timer_ns": 20, "clock_error_ns": 150}
    return {"schema": 1, "kind": "bench", "options": asked, "context": context, "points": list(points), "failures": failures or []}


def gathered(*runs: Json, failures: list[Json] | None = None) -> Json:
    return {"schema": 1, "kind": "bench-set", "runs": list(runs), "failures": failures or []}


# --- a small model ---------------------------------------------------------------------------------------------------

LATENCY_NS, BYTES_PER_NS, CALL_NS = 1500.0, 6.0, 250.0


def _union(spans: list[tuple[float, float]], start: float) -> float:
    length = 0.0
    for begin, end in sorted(spans):
        begin = max(begin, start)
        if end > begin:
            length, start = length + end - begin, end
    return length


def _samples(transfers: list[list[float]], joined: float, size: int) -> dict[str, float]:
    spans = [(begin, end) for begin, end, _ in transfers]
    ends = [end for _, end in spans]
    before = [span for span in spans if span[1] <= joined]
    communication, exposed = _union(spans, float("-inf")), max(ends) - joined
    return {
        "total_ns": max(ends) - min(begin for begin, _ in spans), "exposed_ns": exposed, "communication_ns": communication,
        "before_join_ns": _union(before, float("-inf")), "after_join_ns": _union(spans, joined),
        "perceived_bandwidth_bps": size / exposed * 1e9, "early_bird_share": _union(before, float("-inf")) / communication,
        "early_bytes_share": len(before) / len(spans), "extra_compute_ns": max(ends) - min(ends),
    }


def _round(draw: random.Random, way: str, variant: str, size: int, threads: int, parts: int, options: Json) -> tuple[list[list[float]], float]:
    """@return transfers [begin, end, bytes], and when the threads joined"""
    noise = options["noise_percent"] / 100 * options["compute_ns"]
    times: dict[str, Callable[[int], float]] = {"none": lambda t: 0.0, "uniform": lambda t: draw.uniform(0, noise), "gaussian": lambda t: abs(draw.gauss(0, noise)),
             "single": lambda t: noise if t == 0 else 0.0}
    ready = [options["compute_ns"] + times[options["noise"]](t) + draw.uniform(0, 2000) for t in range(threads)]
    joined, jitter = max(ready), draw.lognormvariate(0, 0.08)
    if way in ("join", "persistent", "single"):
        return [[joined, joined + (LATENCY_NS + size / BYTES_PER_NS) * jitter, size]], joined
    count = parts if way == "partitioned" else threads
    cost = CALL_NS * (1 if (way, variant) == ("partitioned", "larklane") else 3 if way in ("rma", "partitioned") else 6)
    free, transfers = 0.0, []
    held = joined if (way, variant) == ("partitioned", "native") else 0.0
    begins = sorted(ready[part * threads // count] + part * 40 for part in range(count))
    for begin in begins:
        free = max(free, begin, held) + (cost + size / count / BYTES_PER_NS) * jitter
        transfers.append([begin, free + LATENCY_NS * jitter, size // count])
    return transfers, joined


def _add_figure(ways: list[Json], benchmark: str) -> None:
    """The figures that refer to the median of the first way (bench/measure/series.cpp)."""
    one = statistics.median(ways[0]["samples"]["total_ns"])
    for samples in (way["samples"] for way in ways):
        if benchmark == "overhead":
            samples["overhead"] = [value / one for value in samples["total_ns"]]
        elif benchmark == "availability":
            samples["availability"] = [100 * (1 - value / one) for value in samples["after_join_ns"]]


def modelled(benchmark: str, variant: str, sizes: list[int], per_thread: int = 1, rounds: int = 12, **options: Any) -> Json:
    """A run of the model, all ways of a pair, the first one twice."""
    run = record(benchmark, variant=variant, **options)
    draw, threads = random.Random(f"{benchmark} {variant} {per_thread} {options}"), run["options"]["threads"]
    parts = threads * per_thread
    for size in sizes:
        ways = []
        for name in ("join", "persistent", "threads", "thread-comms", "rma", "partitioned", "join'"):
            made = series(name, {}, early=(name, variant) == ("partitioned", "larklane"))
            for number in range(rounds):
                transfers, joined = _round(draw, name.removesuffix("'"), variant, size, threads, parts, run["options"])
                for metric, value in _samples(transfers, joined, size).items():
                    made["samples"].setdefault(metric, []).append(value)
                if number < 3:
                    arrivals = [end for _, end, _ in transfers]
                    made["traces"].append({"transfers": transfers, "arrivals_ns": arrivals, "joined_ns": joined})
            ways.append(made)
        _add_figure(ways, benchmark)
        run["points"].append(point(size, parts, *ways))
    return run


def pattern(benchmark: str, variant: str, threads: int, rounds: int = 20) -> Json:
    """A run of sweep3d or halo3d; only throughput matters."""
    run = record(benchmark, variant=variant, threads=threads, noise="single", scaling="weak")
    run["context"].update(ranks=4, grid=[2, 2])
    draw = random.Random(f"{benchmark} {variant} {threads}")
    for size in (1 << power for power in range(12, 23, 2)):
        ways = []
        for name, gain in (("single", 1.0), ("persistent", 1.1), ("multiple", threads / 2), ("thread-comms", threads / 1.8), ("rma", threads / 3),
                           ("partitioned", threads * (0.8 if variant == "larklane" else 0.5))):
            time_ns = (LATENCY_NS + 2e5 + size / BYTES_PER_NS) / gain
            samples = [time_ns * draw.lognormvariate(0, 0.06) for _ in range(rounds)]
            ways.append(series(name, {"step_ns": samples, "throughput_bps": [size / value * 1e9 for value in samples]}))
        run["points"].append(point(size, threads, *ways))
    return run


def messages(variant: str, per_thread: float) -> list[Json]:
    """Runs of message-rate: lanes of their own, and processes, scale with the threads; a shared lane does not."""
    runs = []
    for threads in (1, 2):
        rates = {"shared": per_thread, "own": per_thread * threads, "everywhere": per_thread * threads}
        for ways in (("shared", "own"), ("everywhere",)):
            run = record("message-rate", variant=variant, threads=threads, operation="send", window=64, lanes=1, compute_ns=0,
                         **({"completion": "queue", "progress": "workers"} if variant == "larklane" else {}))
            ranks = 2 * threads if ways == ("everywhere",) else 2
            run["context"].update(ranks=ranks, bindings=["0-3"] * ranks, mpi="none" if variant == "larklane" else "Model MPI 1.0")
            for size in (8, 1024, 65536):
                again = [series(f"{ways[0]}'", {"rate_per_s": [rates[ways[0]]] * 20})]
                run["points"].append(point(size, 1, *(series(way, {"rate_per_s": [rates[way]] * 20}) for way in ways), *again))
            runs.append(run)
    return runs


def application(variant: str, time_ns: float) -> list[Json]:
    """Runs of bspmm; all its parts take their shares."""
    shares = {"get": 0.1, "get_flush": 0.3, "accumulate": 0.05, "accumulate_flush": 0.2, "counter": 0.1, "time": 1.0}
    runs = []
    for threads in (1, 2):
        for ways in (["shared", "own"], ["everywhere"]):
            run = record("bspmm", variant=variant, threads=threads, lanes=1, blocks=8, compute_ns=0, ways=ways)
            ranks = 2 * threads if ways == ["everywhere"] else 2
            run["context"].update(ranks=ranks, bindings=["0-3"] * ranks, mpi="none" if variant == "larklane" else "Model MPI 1.0")
            for size in (2048, 8192):
                samples = {f"{part}_ns": [time_ns * share] * 20 for part, share in shares.items()}
                run["points"].append(point(size, 1, *(series(way, samples) for way in ways)))
            runs.append(run)
    return runs


def suite() -> Json:
    """Every benchmark in little, native and under Larklane, with failures in some."""
    sizes = [1 << power for power in range(16, 23, 2)]
    runs: list[Json] = []
    for variant in ("native", "larklane"):
        for threads in (2, 8):
            runs.append(modelled("overhead", variant, sizes, threads=threads))
            runs.append(modelled("perceived-bandwidth", variant, sizes, threads=threads, noise="uniform"))
            runs.append(modelled("early-bird", variant, sizes, threads=threads, noise="uniform"))
            runs.append(modelled("recv-compute", variant, sizes, threads=threads, noise="single"))
        for noise in ("single", "uniform"):
            for per_thread in (1, 4):
                runs.append(modelled("availability", variant, sizes, per_thread, threads=4, noise=noise))
        for threads in (4, 16):
            runs.append(pattern("sweep3d", variant, threads))
            runs.append(pattern("halo3d", variant, threads))
        runs.append(record("latency", *(point(size, 1, *(series(way, {"half_round_trip_ns": [base * (1 + 0.02 * i) + size / 6 for i in range(9)]})
                                                         for way, base in (("join", 900), ("partitioned", 1200))))
                                        for size in (8, 64, 512, 4096)), variant=variant, threads=1))
        runs.append(record("call-cost", point(65536, 8, *(series(call, {"call_ns": [cost * (1 + 0.01 * i) for i in range(12)]})
                                                             for call, cost in (("empty", 0.5), ("pready", 95 if variant == "native" else 9)))),
                           variant=variant))
    refused = copy.deepcopy(runs[0])
    refused["points"] = [point(65536, 4, {"way": "rma", "wrong": 0, "early": False, "refused": "what has arrived, it says, is not in the buffer"},
                               series("join", {"total_ns": [1, 2, 3]}, wrong=2))]
    failures = [{"benchmark": "early-bird", "variant": "native", "way": "partitioned", "what": "a round was not over after 30 s"}]
    return gathered(*runs, refused, failures=failures)
