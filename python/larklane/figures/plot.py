"""Draws the figures of charts.py and patterns.py as SVG and PNG. The only file with matplotlib. Equal input gives equal bytes (with one matplotlib)."""

import io
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from larklane.comparison.projection import project
from larklane.figures.charts import ArrivalPanel, Arrivals, Chart, Curve, Figure, Panel, Speedups
from larklane.figures.patterns import Band, PatternPanel, Patterns
from larklane.numbers import wording

# Okabe and Ito's colours, distinct for colour-blind readers; the marks differ in shape, too.
COLOURS = {"partitioned": "#0072B2", "join": "#444444", "single": "#444444", "persistent": "#9A9A9A", "threads": "#D55E00",
           "multiple": "#D55E00", "thread-comms": "#E69F00", "rma": "#009E73", "pretended": "#CC79A7", "mpipcl": "#56B4E9", "shared": "#D55E00", "own": "#0072B2",
           "everywhere": "#444444", "single-threaded": "#CC79A7", "process-lock": "#E69F00", "one-pool": "#9A9A9A", "progress-all": "#009E73", "progress-own": "#56B4E9",
           "nothing": "#444444", "one-tag": "#E69F00", "hints": "#56B4E9", "funneled": "#9A9A9A"}
OTHER_COLOUR = "#CC79A7"
MARKERS = {"partitioned": "o", "join": "s", "single": "s", "persistent": "D", "threads": "^", "multiple": "^", "thread-comms": "v",
           "rma": "P", "pretended": "X", "mpipcl": "*", "shared": "^", "own": "o", "everywhere": "s",
           "single-threaded": "*", "process-lock": "v", "one-pool": "D", "progress-all": "P", "progress-own": "X", "nothing": "s", "one-tag": "v",
           "hints": "D", "funneled": "P"}
SHADES = LinearSegmentedColormap.from_list("larklane", ["#8fc1e0", "#0072B2", "#06243d"])
SHADE_MARKERS = "osD^vPX*"
STYLES = {"native": (0, (4, 2)), "larklane": "-", "lci": (0, (1, 2)), "ordinary": (0, (6, 2, 1, 2))}

WIDTH = 11.0  # inches; 1100 pixels
LEFT, RIGHT, GAP = 0.85, 0.25, 0.75
SHARE_LOWEST = -100.0  # percent; lower values are cut off
GREY = "#555555"
STYLE: Any = {"svg.hashsalt": "larklane", "font.family": "DejaVu Sans", "font.size": 9, "axes.spines.top": False,
         "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4", "grid.linewidth": 0.7, "axes.axisbelow": True,
         "axes.edgecolor": "#888888", "xtick.color": "#444444", "ytick.color": "#444444"}


class _Sheet:
    """A canvas with a title, a caption, a grid of panels, a legend and a footer, measured in inches."""

    def __init__(self, figure: Figure, panels: int, panel_height: float, legend: Sequence[Line2D], columns: int = 0) -> None:
        self.columns = columns or (1 if panels == 1 else 2 if panels in (2, 4) else 3)
        rows = math.ceil(panels / self.columns)
        caption = textwrap.wrap(figure.caption, 150)
        foot = textwrap.wrap(figure.footer, 175)
        longest = max((len(str(line.get_label())) for line in legend), default=0)
        legend_columns = max(1, min(len(legend), 140 // (longest + 9)))
        legend_rows = math.ceil(len(legend) / legend_columns)
        top = 0.62 + 0.17 * len(caption) + 0.2
        legend_height = 0.2 * legend_rows + (0.25 if legend else 0)
        bottom = 0.55 + legend_height + 0.14 * len(foot) + 0.1
        gap = 0.85
        self.height = top + rows * panel_height + (rows - 1) * gap + bottom
        self.canvas: Canvas = plt.figure(figsize=(WIDTH, self.height))
        width = (WIDTH - LEFT - RIGHT - (self.columns - 1) * GAP) / self.columns
        self.axes: list[Axes] = []
        for index in range(panels):
            row, column = divmod(index, self.columns)
            x, y = LEFT + column * (width + GAP), self.height - top - (row + 1) * panel_height - row * gap
            self.axes.append(self.canvas.add_axes((x / WIDTH, y / self.height, width / WIDTH, panel_height / self.height)))
        self._write(figure, caption, foot)
        if legend:
            self.canvas.legend(handles=legend, loc="lower left", ncols=legend_columns, frameon=False, fontsize=9, borderaxespad=0,
                               bbox_to_anchor=(LEFT / WIDTH, (0.14 * len(foot) + 0.2) / self.height), handlelength=3.2,
                               columnspacing=2.2)

    def _write(self, figure: Figure, caption: Sequence[str], foot: Sequence[str]) -> None:
        x = 0.25 / WIDTH
        self.canvas.text(x, 1 - 0.15 / self.height, figure.title, fontsize=min(14, 900 / len(figure.title)), fontweight="bold", va="top")
        self.canvas.text(x, 1 - 0.5 / self.height, "\n".join(caption), fontsize=9, color="#333333", va="top", linespacing=1.35)
        self.canvas.text(x, 0.1 / self.height, "\n".join(foot), fontsize=7.5, color=GREY, va="bottom", linespacing=1.3)
        if figure.stamp:
            self.canvas.text(1 - 0.25 / WIDTH, 1 - 0.17 / self.height, figure.stamp, fontsize=8.5, color="#B00020", ha="right", va="top",
                             bbox={"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "#B00020", "linewidth": 0.8})


def _look(curve: Curve) -> dict[str, Any]:
    """Colour by way or shade, marker with it, line style by variant."""
    if curve.shade is None:
        colour, marker = COLOURS.get(curve.way, OTHER_COLOUR), MARKERS.get(curve.way, "X")
    else:
        colour, marker = to_hex(SHADES(curve.shade)), SHADE_MARKERS[curve.order[0] % len(SHADE_MARKERS)]
    return {"color": colour, "marker": marker, "linestyle": STYLES.get(curve.variant, ":"), "linewidth": 1.8, "markersize": 4.5,
            "markerfacecolor": colour if curve.variant != "native" else "white", "markeredgecolor": colour}


def _legend(panels: Iterable[Panel]) -> list[Line2D]:
    curves = sorted((curve for panel in panels for curve in panel.curves), key=lambda curve: (curve.order, curve.variant != "native"))
    return [Line2D([], [], label=label, **_look(curve)) for label, curve in {curve.label: curve for curve in curves}.items()]


def _place_axis(axes: Axes, over: str, places: Iterable[int]) -> None:
    """Log2 axis, with a tick at each place, or at every n-th place if they do not all fit."""
    ticks = sorted(set(places))
    axes.set_xscale("log", base=2)
    room = 13 if axes.get_position().width > 0.6 else 7 if axes.get_position().width > 0.35 else 4
    step = math.ceil(len(ticks) / room)
    axes.xaxis.set_major_locator(FixedLocator(ticks[::step]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: wording.size(value) if over == "bytes" else f"{value:g}"))
    if len(ticks) == 1:
        axes.set_xlim(ticks[0] / 2, ticks[0] * 2)
    axes.set_xlabel("message size" if over == "bytes" else over)


def _value_axis(axes: Axes, chart: Chart, low: float, high: float) -> None:
    """@param low, high  bounds of all values in the figure: all panels have the same axis"""
    if chart.scale == "log" and low > 0:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.25, high * 1.25)
        if high / low < 50:
            subs = [1, 2, 5] if high / low > 4 else [1, 1.5, 2, 3, 4, 5, 6, 8]
            axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=subs))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: wording.plain(value)))
    elif chart.scale == "share":
        axes.set_ylim(max(SHARE_LOWEST, min(0.0, low)) - 4, 104)
    else:
        axes.set_ylim(min(0.0, low), high * 1.08 or 1)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: wording.plain(value)))


def _draw_chart(chart: Chart) -> Canvas:
    marks = [mark for panel in chart.panels for curve in panel.curves for mark in curve.marks]
    sheet = _Sheet(chart, len(chart.panels), 4.2 if len(chart.panels) == 1 else 3.0, _legend(chart.panels), chart.columns)
    for number, (axes, panel) in enumerate(zip(sheet.axes, chart.panels)):
        _place_axis(axes, chart.over, (mark.at for curve in panel.curves for mark in curve.marks))
        _value_axis(axes, chart, min(mark.p10 for mark in marks), max(mark.p90 for mark in marks))
        alpha = 0.13 if len(panel.curves) <= 4 else 0.08
        for curve in panel.curves:
            look, places = _look(curve), [mark.at for mark in curve.marks]
            axes.plot(places, [mark.median for mark in curve.marks], zorder=3, **look)
            axes.fill_between(places, [mark.p10 for mark in curve.marks], [mark.p90 for mark in curve.marks], color=look["color"],
                              alpha=alpha, linewidth=0, zorder=2)
        if number % sheet.columns == 0:
            axes.set_ylabel(chart.label)
        axes.set_title("\n".join(textwrap.wrap(panel.title, int(150 / sheet.columns))), fontsize=9, loc="left", fontweight="bold")
        if chart.scale == "share" and min(mark.p10 for curve in panel.curves for mark in curve.marks) < SHARE_LOWEST:
            axes.text(0.99, 0.02, f"not drawn below {SHARE_LOWEST:.0f} %", transform=axes.transAxes, ha="right", fontsize=7.5, color=GREY)
    return sheet.canvas


def _draw_arrival_panel(axes: Axes, panel: ArrivalPanel, unit: float, most: int) -> None:
    """@param most  most parts of a panel: all panels have bars of equal height"""
    colour = COLOURS.get(panel.way, OTHER_COLOUR)
    rows = range(len(panel.bars))
    begins, ends = ([value / unit for value in column] for column in list(zip(*panel.bars))[:2])
    axes.axvline(0, color="#B00020", linewidth=1.2, zorder=2)
    axes.barh(rows, [end - begin for begin, end in zip(begins, ends)], left=begins, height=0.55, color=colour, alpha=0.55, zorder=3)
    axes.plot(begins, rows, "|", color=colour, markersize=7, zorder=4)
    axes.plot(ends, rows, "D", color=colour, markersize=4, zorder=4)
    axes.set_ylim(most - 0.4, -0.6)
    axes.set_yticks(list(rows)[::math.ceil(len(panel.bars) / 16)])
    axes.grid(axis="y", visible=False)
    late = max(panel.bars, key=lambda bar: bar.end_us).end_us
    early = sum(bar.end_us <= 0 for bar in panel.bars)
    axes.set_title(panel.title, fontsize=9.5, loc="left", fontweight="bold")
    axes.set_title(f"{early} of {len(panel.bars)} before the join, the last {wording.duration(late * 1e3)} after it", fontsize=8.5,
                   loc="right", color=GREY)


def _draw_arrivals(figure: Arrivals) -> Canvas:
    bars = [bar for panel in figure.panels for bar in panel.bars]
    low, high = min(0.0, *(bar.begin_us for bar in bars)), max(bar.end_us for bar in bars)
    unit, name = (1e3, "ms") if high - low >= 2e3 else (1.0, "µs")
    legend = [Line2D([], [], color=GREY, marker="|", linestyle="", label="ready at the sender"),
              Line2D([], [], color=GREY, marker="D", markersize=4.5, linestyle="", label="seen by the receiver"),
              Line2D([], [], color="#B00020", label="all threads have joined")]
    most = max(len(panel.bars) for panel in figure.panels)
    sheet = _Sheet(figure, len(figure.panels), min(3.4, 1.2 + 0.14 * most), legend)
    for number, (axes, panel) in enumerate(zip(sheet.axes, figure.panels)):
        _draw_arrival_panel(axes, panel, unit, most)
        margin = 0.03 * (high - low)
        axes.set_xlim((low - margin) / unit, (high + margin) / unit)
        axes.set_xlabel(f"time after the join [{name}]")
        if number % sheet.columns == 0:
            axes.set_ylabel("part")
    return sheet.canvas


READY, ARRIVED, JOINED, TYPICAL = "#444444", COLOURS["partitioned"], "#B00020", COLOURS["thread-comms"]


def _draw_bands(axes: Axes, bands: Sequence[Band], unit: float, shift: float, colour: str, marker: str) -> None:
    at = [row + shift for row in range(len(bands))]
    axes.hlines(at, [band.p10_us / unit for band in bands], [band.p90_us / unit for band in bands], color=colour, alpha=0.4, linewidth=4, zorder=3)
    axes.plot([band.median_us / unit for band in bands], at, marker, color=colour, markersize=8 if marker == "|" else 5, zorder=5)
    axes.plot([band.typical_us / unit for band in bands], at, ".", color=TYPICAL, markersize=6, zorder=6)


def _draw_pattern_panel(axes: Axes, panel: PatternPanel) -> None:
    values = [value for row in panel.rows for band in row if band for value in band] + [panel.sent_us or 0.0, panel.joined_us]
    unit, name = (1e3, "ms") if max(values) >= 2e3 else (1.0, "µs")
    arrived = [row.arrived for row in panel.rows if row.arrived]
    _draw_bands(axes, [row.ready for row in panel.rows], unit, -0.15 if arrived else 0.0, READY, "|")
    _draw_bands(axes, arrived, unit, 0.15, ARRIVED, "D")
    axes.axvline(panel.joined_us / unit, color=JOINED, linewidth=1.2, zorder=2)
    if panel.sent_us is not None:
        axes.axvline(panel.sent_us / unit, color=ARRIVED, linewidth=1.2, linestyle=(0, (4, 2)), zorder=2)
    axes.set_ylim(len(panel.rows) - 0.4, -0.6)
    axes.set_yticks(list(range(len(panel.rows)))[::math.ceil(len(panel.rows) / 16)])
    axes.grid(axis="y", visible=False)
    axes.set_xlim(-0.03 * max(values) / unit, 1.03 * max(1e-3, *values) / unit)
    axes.set_xlabel(f"time since the first part was ready [{name}]")
    axes.set_title(panel.title, fontsize=9, loc="left", fontweight="bold")
    axes.set_title(f"n = {panel.n}", fontsize=8.5, loc="right", color=GREY)


def _draw_patterns(figure: Patterns) -> Canvas:
    has_arrivals = any(row.arrived for panel in figure.panels for row in panel.rows)
    has_sent = any(panel.sent_us is not None for panel in figure.panels)
    legend = [Line2D([], [], color=READY, marker="|", linestyle="", label="ready (median)"),
              *([Line2D([], [], color=ARRIVED, marker="D", markersize=4.5, linestyle="", label="arrived (median)")] if has_arrivals else []),
              Line2D([], [], color=GREY, alpha=0.4, linewidth=4, label="p10 to p90"),
              Line2D([], [], color=TYPICAL, marker=".", linestyle="", label="a typical round"),
              Line2D([], [], color=JOINED, label="the last part is ready"),
              *([Line2D([], [], color=ARRIVED, linestyle=(0, (4, 2)), label="the whole message is sent")] if has_sent else [])]
    most = max(len(panel.rows) for panel in figure.panels)
    sheet = _Sheet(figure, len(figure.panels), min(3.4, 1.2 + 0.16 * most), legend, 1 if len(figure.panels) == 1 else 2)
    for number, (axes, panel) in enumerate(zip(sheet.axes, figure.panels)):
        _draw_pattern_panel(axes, panel)
        if number % sheet.columns == 0:
            axes.set_ylabel("part")
    return sheet.canvas


def _draw_speedups(figure: Speedups) -> Canvas:
    factors = sorted({projection.speedup for projection in figure.projections})
    colours = [to_hex(SHADES(at / max(len(factors) - 1, 1) if len(factors) > 1 else 0.5)) for at in range(len(factors))]
    legend = [Line2D([], [], color=colour, label=f"communication {factor:.3g} times as fast") for factor, colour in zip(factors, colours)]
    sheet = _Sheet(figure, 1, 4.2, legend)
    axes = sheet.axes[0]
    for factor, colour in zip(factors, colours):
        axes.plot(range(101), [project(percent / 100, factor) for percent in range(101)], color=colour, linewidth=1.8)
    for projection in figure.projections:
        colour = colours[factors.index(projection.speedup)]
        axes.plot(100 * projection.share, projection.result, "o", color=colour, markersize=7)
        axes.annotate(f"{projection.label}: {projection.result:.3f}x", (100 * projection.share, projection.result), fontsize=9,
                      xytext=(-6, 8), textcoords="offset points", ha="right", va="bottom")
    axes.set_yscale("log")
    ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100) if tick <= max(factors) * 1.1]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.set_xlim(-1, 101)
    axes.set_xlabel("share of the program's time that is point-to-point communication [%]")
    axes.set_ylabel("speed-up of the program")
    return sheet.canvas


def draw(figure: Figure) -> dict[str, bytes]:
    """@return {"svg": ..., "png": ...}"""
    with matplotlib.rc_context(STYLE):
        if isinstance(figure, Chart):
            canvas = _draw_chart(figure)
        elif isinstance(figure, Arrivals):
            canvas = _draw_arrivals(figure)
        elif isinstance(figure, Patterns):
            canvas = _draw_patterns(figure)
        else:
            assert isinstance(figure, Speedups)
            canvas = _draw_speedups(figure)
        svg, png = io.BytesIO(), io.BytesIO()
        canvas.savefig(svg, format="svg", metadata={"Date": None})
        canvas.savefig(png, format="png", dpi=100)
        plt.close(canvas)
    return {"svg": svg.getvalue(), "png": png.getvalue()}
