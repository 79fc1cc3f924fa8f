"""Draws the figures of an experiment (message Figure of proto/experiment.proto) by Matplotlib."""

import collections
import math
import os

from matplotlib import lines, patches
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import report_data as data
import report_map
import report_painters as painters
import report_style as style
from report_plot import NothingToDraw, Plot, Spec
from report_style import GRAY, Styles

__all__ = ["Drawn", "NothingToDraw", "Styles", "draw"]

PAINTERS = {
    "LINES": painters.paint_lines,
    "BARS": painters.paint_bars,
    "STACKED": painters.paint_stacked,
    "LOSSES": painters.paint_losses,
}
# Panels with these on y have one scale, so that they can be compared.
SHARED = ["speedup", "efficiency", "gpu_busy"]

# What all points have in common and nobody has to be told.
WITHOUT_MENTION = [("devices", 1), (data.SPARE_SERVERS, 0)]
# What other names or the experiment's text say.
UNMENTIONED = ["policy", "parameters", "sweep"]

# caption: a sentence or more, without the title.
Drawn = collections.namedtuple("Drawn", "file width caption")


def draw(results, styles, message, number):
    """Writes one figure into the results directory; throws NothingToDraw."""
    spec = Spec(message, number)
    points = spec.select(results)
    if spec.kind == "MAP":  # of one mode
        points = [p for p in points if p.text("mode") == data.modes_of(points)[0]]
    with style.context():
        plot = Plot(spec, results, styles, points)
        panels = plot.panels()
        shared = spec.kind == "LOSSES" or spec.kind != "MAP" and spec.y in SHARED
        figure, grid = axes_of(panels, shared)
        if spec.kind == "MAP":
            report_map.draw(plot, figure, list(zip(grid, panels)))
        else:
            paint(plot, grid, panels, shared)
        finish(plot, figure, grid, panels, shared)
        with data.whole_file(os.path.join(results.directory, spec.file)) as part:
            kind = os.path.splitext(spec.file)[1].removeprefix(".")
            figure.savefig(part, format=kind, bbox_inches="tight", pad_inches=0.08)
    return Drawn(spec.file, round(96 * figure.get_figwidth()), caption(plot))


def axes_of(panels, shared):
    """A figure with axes for the panels, two a row."""
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = style.ALONE if len(panels) == 1 else style.PANEL
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=shared).flat
    for axes in grid[len(panels) :]:
        axes.remove()
    return figure, list(grid[: len(panels)])


def paint(plot, grid, panels, shared):
    """All panels, and then their axes, which have one unit and perhaps one scale."""
    shown = [
        PAINTERS[plot.spec.kind](plot, axes, inside) for axes, (_, inside) in zip(grid, panels)
    ]
    everything = [value for values in shown for value in values]
    for axes, (_, inside), values in zip(grid, panels, shown):
        format_axes(plot, axes, inside, everything if shared else values, everything)
    explain_marks(plot)


def format_axes(plot, axes, points, shown, everything):
    """Ticks, labels and scales."""
    spec = plot.spec
    if spec.kind == "LOSSES":
        style.value_axis(axes, "loss", shown, everything, spec.log_y)
        style.count_axis(axes, "iteration", spec.log_x)
        return
    style.value_axis(axes, spec.y, shown, everything, spec.log_y and spec.kind != "STACKED")
    places = plot.places(points)
    if plot.named_places:
        style.category_axis(axes, "x", spec.x, list(places))
        axes.set_xlim(-0.6, len(places) - 0.4)
    else:
        style.number_axis(axes, "x", spec.x, list(places), spec.log_x)
    if spec.kind == "STACKED":
        axes.set_ylabel("share of an iteration (%)")
        axes.set_ylim(0, 1)
        axes.yaxis.grid(False)


def explain_marks(plot):
    """What looks mean that any color can have."""
    if plot.spec.kind == "STACKED":
        plot.legend["computing"] = patches.Patch(facecolor=GRAY)
        plot.legend["stalled"] = patches.Patch(facecolor=GRAY, alpha=0.22)
    elif len(plot.modes) > 1:
        explain_modes(plot)
    for fitted, name in [(False, "published"), (True, "published, fitted to")]:
        if fitted in plot.published_kinds:
            plot.legend[name] = painters.published_mark(GRAY, "o", fitted)
    if "ideal" in plot.legend:
        plot.legend["ideal"] = plot.legend.pop("ideal")


def explain_modes(plot):
    """Only where a figure has several."""
    kind = plot.spec.kind
    for index, mode in enumerate(plot.modes):
        if kind == "LOSSES":
            handle = lines.Line2D([], [], color=GRAY, linestyle=painters.dashes(index))
        elif index > 0:
            handle = lines.Line2D(
                [], [], **painters.mode_mark(mode, "black" if kind == "BARS" else GRAY)
            )
        elif kind == "BARS":
            handle = patches.Patch(facecolor=GRAY)
        else:
            handle = lines.Line2D([], [], color=GRAY, marker="o", markersize=5, linewidth=1.8)
        plot.legend[data.DONE.get(mode, mode)] = handle


def finish(plot, figure, grid, panels, shared):
    """Titles, and the legend below all panels."""
    for index, (axes, (value, _)) in enumerate(zip(grid, panels)):
        if plot.spec.panel:
            axes.set_title(style.name_of(plot.spec.panel, value), fontweight="bold")
        if index % 2 and shared:
            axes.set_ylabel("")
    if len(plot.legend) < 2 and plot.spec.kind != "MAP":
        return  # The caption says what all points have in common.
    count = len(plot.legend)
    for columns in (math.ceil(count / rows) for rows in range(1, count + 1)):
        legend = figure.legend(
            by_rows(list(plot.legend.values()), columns),
            by_rows(list(plot.legend), columns),
            loc="upper center",
            bbox_to_anchor=(0.5, 0),
            ncol=columns,
            handlelength=2.4,
            columnspacing=1.6,
        )
        extent = legend.get_window_extent(figure.canvas.get_renderer())
        if columns == 1 or extent.width <= 0.98 * figure.bbox.width:
            return
        legend.remove()


def by_rows(items, columns):
    """In the order in which a legend, which fills columns, shows them row by row."""
    return [item for column in range(columns) for item in items[column::columns]]


def caption(plot):
    """What all points have in common, and what the marks mean."""
    spec, used = plot.spec, [plot.spec.x, plot.spec.y, plot.spec.series, plot.spec.panel]
    common = []
    for column in data.IDENTITY:
        values = {point.value(column) for point in plot.points}
        if len(values) == 1 and column not in [*used, *UNMENTIONED]:
            value = values.pop()
            if value not in (None, "") and (column, value) not in WITHOUT_MENTION:
                common.append(describe_common(column, value))
    sentences = [f"All points: {', '.join(common)}." if common else ""]
    if spec.kind == "LOSSES":
        longest = max((plot.results.losses(point) for point in plot.points), key=len)
        if painters.window(longest) > 1:
            sentences.append(
                "Thin lines are single iterations, thick ones means over "
                f"{painters.window(longest)}."
            )
    if spec.kind == "MAP":
        sentences.append(report_map.note(plot))
    if plot.published_kinds:
        sentences.append(
            "Hollow marks are published values"
            + (
                "; a parameter was fitted to the half-filled ones."
                if True in plot.published_kinds
                else "."
            )
        )
    return " ".join(sentence for sentence in sentences if sentence)


def describe_common(column, value):
    """Names say what they are names of."""
    if column in ("system", "model", "condition"):
        return f"{data.label_of(column)} {value}"
    return data.describe(column, value)
