"""Draws the pictures from the JSON that demo.py writes: PNG and SVG beside it. The only file with matplotlib."""

import json
import sys
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (after the choice of the backend)
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

from arrivals import typical  # noqa: E402

# Okabe and Ito's colours, which the colour-blind can tell apart; the marks differ in shape too.
COLOURS = {"native": "#D55E00", "larklane": "#0072B2"}
NAMES = {"native": "native", "larklane": "under Larklane"}
LANE = {"native": -0.17, "larklane": 0.17}  # where in a partition's row; Larklane below


def draw_run(axes: plt.Axes, run: dict) -> None:
    """One run: a hollow circle where a partition became ready, a diamond where it arrived, a line between."""
    ready, arrived = typical(run["ready_ms"]), typical(run["arrived_ms"])
    rows = [i + LANE[run["how"]] for i in range(len(ready))]
    colour = COLOURS[run["how"]]
    axes.hlines(rows, ready, arrived, color=colour, linewidth=2.2, alpha=0.45, zorder=2)
    axes.scatter(ready, rows, s=34, facecolors="white", edgecolors=colour, linewidths=1.5, zorder=3)
    axes.scatter(arrived, rows, s=40, marker="D", color=colour, zorder=4)


def verdict(run: dict) -> str:
    """One line under a panel: how the rounds of a run went, those that are drawn."""
    total, name = len(run["ready_ms"][0]), NAMES[run["how"]]
    return (f"{name} ({len(run['ready_ms'])} rounds): {run['early']:.0f} of {total} arrive before the last is ready, "
            f"the last {run['exposed_ms']:.2f} ms after it")


def note_missing(axes: plt.Axes, run: dict, partitions: int) -> None:
    """Says in the panel why a run has no marks."""
    axes.text(0.5, (partitions - 1) / 2 + LANE[run["how"]], f"{NAMES[run['how']]}: {run['data']}", ha="center",
              va="center", transform=axes.get_yaxis_transform(), fontsize=10, fontweight="bold",
              color=COLOURS[run["how"]], zorder=5)


def draw_panel(axes: plt.Axes, runs: list[dict], late: list[int], partitions: int) -> None:
    """One MPI: native against Larklane."""
    for partition in late:
        axes.axhspan(partition - 0.5, partition + 0.5, color="#F0E442", alpha=0.35, linewidth=0, zorder=0)
    for run in runs:
        if run["ready_ms"]:
            draw_run(axes, run)
        else:
            note_missing(axes, run, partitions)
    for boundary in range(1, partitions):
        axes.axhline(boundary - 0.5, color="#dddddd", linewidth=0.6, zorder=1)
    axes.set_title(runs[0]["mpi"], fontsize=11, fontweight="bold", loc="left")
    axes.set_yticks(range(partitions), [f"{i} (late)" if i in late else str(i) for i in range(partitions)])
    axes.set_ylim(partitions - 0.5, -0.5)
    axes.tick_params(labelsize=8.5)
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)
    lines = []
    for run in (run for run in runs if run["ready_ms"]):
        lines.append((verdict(run), run["how"]))
        if run["data"] != "right":
            lines.append((f"{NAMES[run['how']]}: {run['data']}", run["how"]))
    for number, (text, how) in enumerate(lines):
        axes.text(0, -0.205 - 0.068 * number, text, transform=axes.transAxes, fontsize=8.5, color=COLOURS[how], va="top")


def listed(names: list[str]) -> str:
    """ "A keeps", "A and B keep"."""
    if len(names) == 1:
        return f"{names[0]} keeps"
    return f"{', '.join(names[:-1])} and {names[-1]} keep"


def headline(data: dict) -> str:
    """What is seen, as far as this run shows it."""
    late = len(data["late"])
    share = "one partition is" if late == 1 else f"{late} partitions are"
    runs = [run for run in data["runs"] if run["ready_ms"]]  # all that are drawn
    larklane = [run["early"] for run in runs if run["how"] == "larklane"]
    native = [run for run in runs if run["how"] == "native"]
    punctual = data["partitions"] - late
    if larklane and min(larklane) >= punctual:
        keep_back = [run["mpi"] for run in native if run["early"] < punctual]
        rest = " early, whatever the MPI"
        if keep_back:
            who = "the native MPIs keep" if len(keep_back) == len(native) else f"natively {listed(keep_back)}"
            rest = f"; {who} them back"
        return f"While {share} late, Larklane delivers the others{rest}"
    return f"When do partitions arrive while {share} late?"


def legend(figure: plt.Figure, top: float) -> None:
    """Explains marks and colours once, above the panels."""
    grey = "#555555"
    handles = [
        Line2D([], [], marker="o", markerfacecolor="white", markeredgecolor=grey, linestyle="", markersize=7,
               label="ready at the sender (MPI_Pready)"),
        Line2D([], [], marker="D", color=grey, linestyle="", markersize=6.5,
               label="seen by the receiver (MPI_Parrived)"),
        Patch(color=COLOURS["native"], label="native MPI"),
        Patch(color=COLOURS["larklane"], label="same program under Larklane"),
        Patch(color="#F0E442", alpha=0.5, label="late thread's partition"),
    ]
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.042, top), ncols=5, frameon=False,
                  fontsize=9, handletextpad=0.5, columnspacing=1.6)


def draw(data: dict) -> plt.Figure:
    """One figure: a panel per MPI. What has no colour, the send after the join, is in the table alone."""
    data = {**data, "runs": [run for run in data["runs"] if run["how"] in COLOURS]}
    mpis = list(dict.fromkeys(run["mpi"] for run in data["runs"]))
    columns = 1 if len(mpis) == 1 else 2
    rows = (len(mpis) + columns - 1) // columns
    height = 1.7 + 3.65 * rows
    figure, grid = plt.subplots(rows, columns, figsize=(12, height), squeeze=False, sharex=True)
    for axes in grid.flat[len(mpis):]:
        axes.set_axis_off()
    for mpi, axes in zip(mpis, grid.flat):
        draw_panel(axes, [run for run in data["runs"] if run["mpi"] == mpi], data["late"], data["partitions"])
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("time after the round's first partition was ready [ms]", fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel("partition", fontsize=9)
    title = headline(data)
    size = min(13.5, 13.5 * 80 / len(title))  # 80 letters fit
    figure.suptitle(title, x=0.05, y=1 - 0.17 / height, ha="left", va="top", fontsize=size, fontweight="bold")
    figure.text(0.05, 1 - 0.48 / height, data["what"], fontsize=9.5, color="#333333", va="top")
    figure.text(0.05, 0.1 / height, "\n".join(data["footer"]), fontsize=7.5, color="#555555", va="bottom")
    legend(figure, 1 - 0.68 / height)
    figure.subplots_adjust(left=0.07, right=0.985, top=1 - 1.35 / height, bottom=1.45 / height, hspace=0.6, wspace=0.13)
    return figure


def draw_messages(data: dict) -> plt.Figure:
    """One figure of plain messages: for each MPI and its communicators the time natively and under Larklane, with the least and the most."""
    pairs: dict[tuple[str, str], dict[str, dict]] = {}
    for run in data["runs"]:
        pairs.setdefault((run["mpi"], run["communicators"]), {})[run["how"]] = run
    height = 2.2 + 0.62 * len(pairs)
    figure, axes = plt.subplots(figsize=(10, height))
    most = max((max(run["ns"]) for run in data["runs"] if run["ns"]), default=1)
    for row, pair in enumerate(pairs.values()):
        times = {how: median(run["ns"]) for how, run in pair.items() if run["ns"]}
        for how, run in pair.items():
            place = row + LANE[how]
            text = run["data"]
            if how in times:
                low, high = times[how] - min(run["ns"]), max(run["ns"]) - times[how]
                axes.barh(place, times[how], height=0.3, color=COLOURS[how], xerr=[[low], [high]], ecolor="#555555", capsize=2)
                text = f"{times[how]:.0f} ns" + ("" if text == "right" else f": {text}")
                if how == "larklane" and run["left"]:
                    text += ", left to the MPI"
                elif how == "larklane" and "native" in times:
                    text += f", {times['native'] / times[how]:.1f} times as fast"
            axes.text((max(run["ns"]) if run["ns"] else 0) + most / 80, place, text, va="center", fontsize=8.5, color=COLOURS[how])
    axes.set_yticks(range(len(pairs)), [f"{mpi}\ncommunicators: {communicators}" for mpi, communicators in pairs], fontsize=8.5)
    axes.set_ylim(len(pairs) - 0.5, -0.5)
    axes.set_xlim(0, most * 1.3)
    axes.set_xlabel("time for a message that a rank sends [ns]", fontsize=9)
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)
    figure.suptitle("Plain messages of several threads: the same program, native and under Larklane", x=0.02, y=1 - 0.15 / height, ha="left", va="top",
                    fontsize=13, fontweight="bold")
    figure.text(0.02, 1 - 0.5 / height, f"exchange: {data['ranks']} ranks x {data['threads']} threads, messages of {data['bytes']} bytes, MPI_Isend, MPI_Irecv, "
                "MPI_Waitall. Larklane: `larklane run --option p2p=on`.", fontsize=9, color="#333333", va="top")
    figure.text(0.02, 0.1 / height, "\n".join(data["footer"]), fontsize=7, color="#555555", va="bottom", wrap=True)
    figure.legend(handles=[Patch(color=COLOURS[how], label=label) for how, label in (("native", "native MPI"), ("larklane", "same program under Larklane"))],
                  loc="upper left", bbox_to_anchor=(0.01, 1 - 0.68 / height), ncols=2, frameon=False, fontsize=9)
    figure.subplots_adjust(left=0.2, right=0.97, top=1 - 1.1 / height, bottom=0.85 / height)
    return figure


def main() -> int:
    """picture.py FILE.json...: writes FILE.png and FILE.svg."""
    plt.rcParams["svg.hashsalt"] = "larklane"  # same input, same bytes
    for name in sys.argv[1:]:
        path = Path(name)
        data = json.loads(path.read_text(encoding="utf-8"))
        figure = draw_messages(data) if path.stem == "messages" else draw(data)
        figure.savefig(path.with_suffix(".png"), dpi=130)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        plt.close(figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
