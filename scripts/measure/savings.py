#!/usr/bin/env python3
"""Checks the predictions of `larklane report` for early sending: predicted against measured savings of the examples, on this machine.

Each configuration runs in two modes, in turns: whole messages after the join (the MPI alone), and partitions. In three of the
turns the joined mode also runs with a profile. The prediction from these profiles is their median, with the lowest and the highest bound. The
measured saving is the median of the turns' differences, with its 95 % bootstrap interval. Writes measurements/savings-<commit>.json
and savings.md. The costs of partitions are measured first (`larklane bench latency`).

A prediction holds if it is at most 20 % of the measured saving, or 1 % of a step, away from that saving, or if the saving lies in its interval.
It is refuted if it does not hold and the two intervals do not overlap: then the noise of the measured saving doesn't explain the difference.
The model was made without the held-out configurations. Controls, beside the 40, are programs with hardly any possible gain:
all threads wait for the same late thread during nearly all of a step, or there is one thread.

The gain is `nothing` if the measured interval ends below 1 % of a step, `something` if it begins above 0 and ends above 1 %, else `not known`.
"""

import argparse
import dataclasses
import pathlib
import re
import shlex
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/mp")]
import bars  # noqa: E402
import launch  # noqa: E402

from larklane.numbers import stats  # noqa: E402
from larklane.prediction import costs  # noqa: E402
from larklane.prediction.forecast import forecast  # noqa: E402
from larklane.prediction.predictor import WORTH  # noqa: E402
from larklane.profile.profile import load  # noqa: E402

MPI = launch.MPIS["mpich5"]
BUILD = ROOT / "build/release"
JOINED = {"heat2d": "isend", "sweep3d": "funneled", "particles": "joined"}
HELD_OUT_SEEDS = (11, 12)  # not the seeds of records before this model
TIME = re.compile(r"PASSED: ([\d.]+) ms per")
PROFILES = 3  # of each configuration: runs differ
CLOSE = 0.2  # of the measured saving
TARGET = 0.8  # share of the predictions that must hold, overall and held out


@dataclasses.dataclass(frozen=True)
class Configuration:
    """One program with its options."""

    program: str
    words: str

    @property
    def threads(self):
        return int(re.search(r"--threads (\d+)", self.words)[1])

    @property
    def is_held_out(self):
        seed = re.search(r"--seed (\d+)", self.words)
        return self.program == "particles" or bool(seed and int(seed[1]) in HELD_OUT_SEEDS)

    @property
    def is_control(self):
        return self.threads == 1 or "--late-ms 20" in self.words


def controls():
    """8 configurations with hardly any possible gain."""
    late = (("heat2d", "--n 256 --rows 128 --steps 50"), ("heat2d", "--n 4096 --rows 64 --steps 50"), ("sweep3d", "--nx 32 --ny 32 --sweeps 1"))
    alone = (("heat2d", "--n 1024 --rows 512 --steps 300 --threads 1"), ("particles", "--particles 12000 --imbalance 0 --steps 100 --threads 1 --seed 11"))
    return [Configuration(program, f"{size} --threads {threads} --late-ms 20") for threads in (2, 4) for program, size in late] + [Configuration(*each) for each in alone]


def configurations():
    """40 configurations: sizes, threads, a late thread, all threads late by chance, no late thread."""
    found = []
    for threads in (2, 4):
        for size in ("--n 256 --rows 128 --steps 150", "--n 4096 --rows 64 --steps 120"):
            found += [Configuration("heat2d", f"{size} --threads {threads} {late}")
                      for late in ("--late-ms 0", "--late-ms 2", "--late-ms 2 --seed 1", f"--late-ms 2 --seed {HELD_OUT_SEEDS[0]}")]
        for size in ("--nx 32 --ny 32", "--nx 96 --ny 96"):
            found += [Configuration("sweep3d", f"{size} --sweeps 4 --threads {threads} {late}")
                      for late in ("--late-ms 0", "--late-ms 2", "--late-ms 2 --seed 1", f"--late-ms 2 --seed {HELD_OUT_SEEDS[1]}")]
        found += [Configuration("particles", f"--particles {particles} --imbalance {imbalance} --steps 100 --threads {threads}{seed}")
                  for particles, imbalance, seed in ((700, 0, " --seed 11"), (1500, 1, " --seed 11"), (2500, 3, " --seed 12"), (6000, 2, " --seed 12"))]
    return found


def environment():
    return {**MPI.environment, "OMP_WAIT_POLICY": "passive"}


def run(configuration, mode, before=(), launcher_flags=()):
    """Run two ranks once. @return milliseconds per step. Raises RuntimeError"""
    program = BUILD / "examples/mpich" / configuration.program
    words = [*map(str, before), str(program), *configuration.words.split(), "--mode", mode]
    outcome = launch.launch(MPI, 2, words, 60, environment(), launcher_flags)
    found = TIME.search(outcome.output)
    if outcome.status or not found:
        raise RuntimeError(f"{shlex.join(words)}: status {outcome.status}: {outcome.output[-500:]}")
    return float(found[1])


def profiler(folder):
    """Words that profile the command after them."""
    return [BUILD / "bin/larklane", "profile", "--out", folder, "--mpi", "native"]


def predicted(configuration, folders, known):
    """Predict from profiles of the joined mode. @return [(forecast, saving with as many parts as threads or None)]"""
    found = []
    for folder in folders:
        made = forecast(load(folder), known)
        savings = made.prediction.savings if made.prediction else ()
        found.append((made, next((saving for saving in savings if saving.parts == configuration.threads), None)))
    return found


def measured(configuration, repetitions, scratch):
    """@param scratch  folder for the profiles
    @return times of the joined and of the partitioned mode, in turn order; the profiles, from PROFILES turns"""
    joined = JOINED[configuration.program]
    times, folders = {joined: [], "partitioned": []}, []
    for turn in range(repetitions):
        for mode in times if turn % 2 == 0 else reversed(times):
            times[mode].append(run(configuration, mode, [BUILD / "bin/larklane", "run"] if mode == "partitioned" else ()))
        if turn * PROFILES // repetitions != (turn + 1) * PROFILES // repetitions:
            folders.append(scratch / str(turn))
            run(configuration, joined, profiler(folders[-1]))
    return times[joined], times["partitioned"], folders


def compared(configuration, known, repetitions):
    """@return the record of a configuration; times in milliseconds per step"""
    with tempfile.TemporaryDirectory(prefix="savings-") as scratch:
        joined, partitioned, folders = measured(configuration, repetitions, pathlib.Path(scratch))
        made = predicted(configuration, folders, known)
    step = statistics.median(joined)
    saved = [before - after for before, after in zip(joined, partitioned)]
    low, high = stats.bootstrap(lambda middle: middle, saved)
    record = {"program": configuration.program, "options": configuration.words, "held_out": configuration.is_held_out, "control": configuration.is_control,
              "joined_ms": joined, "partitioned_ms": partitioned, "step_ms": step,
              "measured_ms": statistics.median(saved), "measured_interval_ms": [low, high], "why": next((found.why for found, saving in made if not saving), "")}
    if all(found.is_nothing for found, _ in made):
        record |= {"predicted_ms": 0.0, "interval_ms": [0.0, 0.0], "predicted_nothing": True, "predicted_unsure": False}
    elif not record["why"]:
        shares = [(saving.ns / found.prediction.step_ns, *(bound / found.prediction.step_ns for bound in saving.interval_ns)) for found, saving in made]
        middle, low, high = statistics.median(share for share, _, _ in shares), min(low for _, low, _ in shares), max(high for _, _, high in shares)
        record |= {"predicted_ms": middle * step, "interval_ms": [low * step, high * step], "predicted_shares": shares,
                   "predicted_nothing": middle < WORTH, "predicted_unsure": low <= 0}
    return judged(record)


def judged(record):
    """@return the record with its verdicts `gained`, `close`, `holds` and `refuted`"""
    measured_ms, step_ms = record["measured_ms"], record["step_ms"]
    low, high = record["measured_interval_ms"]
    record["gained"] = "nothing" if high < WORTH * step_ms else "something" if low > 0 else "not known"
    if "predicted_ms" in record:
        away, (low, high) = abs(record["predicted_ms"] - measured_ms), record["interval_ms"]
        record["close"] = away <= max(CLOSE * abs(measured_ms), WORTH * step_ms)
        record["holds"] = record["close"] or low <= measured_ms <= high
        measured_low, measured_high = record["measured_interval_ms"]
        record["refuted"] = not record["holds"] and (measured_high < low or high < measured_low)
    else:
        record["close"] = record["holds"] = record["refuted"] = False
    return record


def measure_costs(folder):
    """@return the costs of messages and partitions on this machine"""
    words = ["latency", "--ways", "join,partitioned", "--sizes", "8,1K,8K,64K,512K,4M"]
    return costs.read(bars.bench_set(words, folder, MPI, environment=environment()))


def share(records, what):
    """ "7 of 8 (88 %)" """
    count = sum(map(bool, (what(record) for record in records)))
    return f"{count} of {len(records)} ({100 * count / len(records):.0f} %)" if records else "none"


def line(record):
    cells = [record["program"], record["options"], "control" if record["control"] else "held out" if record["held_out"] else "", f"{record['step_ms']:.3f}"]
    if "predicted_ms" in record:
        cells += [f"{record['predicted_ms']:.3f}" + (" (nothing)" if record["predicted_nothing"] else " (not sure)" if record["predicted_unsure"] else ""),
                  f"{record['interval_ms'][0]:.3f} to {record['interval_ms'][1]:.3f}"]
    else:
        cells += [record["why"], ""]
    cells += [f"{record['measured_ms']:.3f}" + {"nothing": " (nothing)", "not known": " (not known)", "something": ""}[record["gained"]],
              "{:.3f} to {:.3f}".format(*record["measured_interval_ms"]),
              "yes" if record["holds"] else "refuted" if record["refuted"] else "no"]
    return "| " + " | ".join(cells) + " |"


def table(records):
    """@return the page of the records"""
    judged_ones = [each for each in records if not each["control"]]
    groups = {"all": judged_ones, "held out": [each for each in judged_ones if each["held_out"]],
              "the others": [each for each in judged_ones if not each["held_out"]]}
    gained = {name: [each for each in records if each["gained"] == name] for name in ("nothing", "something", "not known")}
    return "\n".join([
        "# What early sending saves: predicted and measured", "",
        "Milliseconds per step. Predicted from a profile of the program with one send after the join; measured: that, and the same program",
        "with partitions under Larklane, in turns. Written by `scripts/measure/savings.py`, which says when a prediction holds.", "",
        *(f"* {name}: the prediction holds at {share(group, lambda each: each['holds'])}, without its interval at "
          f"{share(group, lambda each: each['close'])}; refuted at {share(group, lambda each: each['refuted'])}" for name, group in groups.items()),
        *(f"* {how}: said that nothing is to be gained at {share(group, lambda each: each.get('predicted_nothing'))}, that it may as well be nothing at "
          f"{share(group, lambda each: not each.get('predicted_nothing') and each.get('predicted_unsure'))}"
          for how, group in (("nothing was gained", gained["nothing"]), ("something was gained", gained["something"]),
                             ("whether something was gained is not known", gained["not known"]))), "",
        "| program | options | | step | predicted | interval | measured | interval | holds |", "|---|---|---|---|---|---|---|---|---|", *map(line, records)]) + "\n"


def criteria(records):
    """Do enough predictions hold, overall and held out, and are enough of the configurations that gained nothing predicted so?
    @return [(criterion, whether it holds)]"""
    judged_ones = [each for each in records if not each["control"]]
    nothing = [each for each in records if each["gained"] == "nothing"]
    groups = (("predictions that hold", judged_ones, "holds"), ("held out", [each for each in judged_ones if each["held_out"]], "holds"),
              ("nothing gained, and predicted so", nothing, "predicted_nothing"))
    return [(f"{what}: {share(group, lambda each, name=name: each.get(name))}, at least {100 * TARGET:.0f} %",
             sum(bool(each.get(name)) for each in group) >= TARGET * len(group) and (bool(group) or name == "holds")) for what, group, name in groups]


def is_good(records):
    return all(holds for _, holds in criteria(records))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="configurations with TEXT in them; writes nothing")
    parser.add_argument("--tuning", action="store_true", help="without those that are held out; writes nothing")
    parser.add_argument("--repetitions", type=int, default=11, metavar="N", help="runs of each mode (default: %(default)s)")
    arguments = parser.parse_args()
    if not MPI.installed():
        print(f"savings: {MPI.title} is not installed (make setup)")
        return 1
    chosen = [each for each in configurations() + controls() if arguments.only in f"{each.program} {each.words}" and not (arguments.tuning and each.is_held_out)]
    about = bars.context()
    try:
        with tempfile.TemporaryDirectory(prefix="savings-costs-") as folder:
            known = measure_costs(pathlib.Path(folder))
        records = []
        for configuration in chosen:
            records.append(compared(configuration, known, arguments.repetitions))
            print(line(records[-1]), flush=True)
    except (RuntimeError, costs.RecordError) as error:
        print(f"savings: {error}", file=sys.stderr)
        return 1
    print(table(records).split("\n\n")[2])
    if arguments.only or arguments.tuning:
        return 0
    whole = {**about, "row": "savings", "unit": "ms", "costs": dataclasses.asdict(known), "points": records, "verdicts": bars.recorded(criteria(records))}
    bars.keep_record("savings", whole, table(records))
    return 0 if is_good(records) else 1


if __name__ == "__main__":
    sys.exit(main())
