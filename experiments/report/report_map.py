"""The MAP of report_figures: a field over two columns, each cell the fastest of its points."""

import collections
import re

import numpy
from matplotlib import cm, colors, patches

import report_data as data
import report_style as style

# Cells of a panel into which their values are written.
LABELED_CELLS = 100
# Above this ratio of the largest to the smallest value, colors are by logarithm.
LOG_RATIO = 30
SCHEME = re.compile(r"\s*(.+?)\s+([\d.]+)\s*([kKMG]?)\s*$")
Cell = collections.namedtuple("Cell", "value place low high")
FACTORS = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}


def dominant(schemes):
    """(name, share of the parameters) of the scheme with most of them in "PS 20.0M, SFB 123.6M";
    ("", 0) if there is none."""
    parts = {}
    for part in schemes.split(","):
        match = SCHEME.match(part)
        if match:
            parts[match[1]] = parts.get(match[1], 0) + float(match[2]) * FACTORS[match[3]]
    total = sum(parts.values())
    if total == 0:
        return schemes.strip(), 1.0 if schemes.strip() else 0.0
    name = max(parts, key=parts.get)
    return name, parts[name] / total


def seconds(point):
    """Of an iteration, or what the planner says of it."""
    measured = point.number("iteration_seconds")
    return measured if measured is not None else point.number("predicted_seconds")


def fastest(points, spec):
    """{(x, y): point}."""
    cells = {}
    for point in points:
        place = point.value(spec.x), point.value(spec.y)
        if place not in cells or seconds(point) < seconds(cells[place]):
            cells[place] = point
    return cells


def note(plot):
    """For the caption."""
    if plot.spec.color == "schemes":
        return (
            "Colors are the scheme that has most of the parameters; numbers are its share of "
            "them in %."
        )
    if plot.spec.color == "system":
        return "Colors are the system with the shortest iteration; numbers are that in ms."
    place = [column for column in (plot.spec.x, plot.spec.y, plot.spec.panel) if column]
    cells = {tuple(point.value(column) for column in place) for point in plot.points}
    several = len(plot.points) > len(cells)
    return "Of several points in a cell, the one with the shortest iteration." if several else ""


def draw(plot, figure, panels):
    """panels: [(axes, (value, points))]."""
    spec = plot.spec
    fields = [(axes, points, fastest(points, spec)) for axes, (_, points) in panels]
    if data.kind_of(spec.color) == "text":
        for axes, points, cells in fields:
            draw_names(plot, axes, points, cells)
        plot.legend = dict(
            sorted(plot.legend.items(), key=lambda item: plot.styles.place(spec.color, item[0]))
        )
    else:
        draw_numbers(plot, figure, fields)


def draw_names(plot, axes, points, cells):
    """A color a name."""
    looks = {}
    for place, point in cells.items():
        if plot.spec.color == "schemes":
            name, share = dominant(point.text("schemes"))
            text = f"{100 * share:.0f}" if name else ""
        else:
            name, time = point.text(plot.spec.color), seconds(point)
            text = data.plain(float(f"{1e3 * time:.3g}"))
        color = plot.styles.color(plot.spec.color, name) if name else "#dddddd"
        looks[place] = color, text
        plot.legend.setdefault(name or "none", patches.Patch(facecolor=color))
    paint(plot, axes, points, looks)


def draw_numbers(plot, figure, fields):
    """One scale of colors for all panels."""
    column = plot.spec.color
    values = [
        value
        for _, _, cells in fields
        for value in (point.number(column) for point in cells.values())
        if value is not None
    ]
    unit, factor = data.unit_of(column, values)
    low, high = min(values, default=0) * factor, max(values, default=1) * factor
    norm = (colors.LogNorm if low > 0 and high / low > LOG_RATIO else colors.Normalize)(low, high)
    scale = cm.ScalarMappable(norm, "viridis")
    for axes, points, cells in fields:
        looks = {}
        for place, point in cells.items():
            value = point.number(column)
            if value is not None:
                looks[place] = (
                    colors.to_hex(scale.to_rgba(value * factor)),
                    data.plain(float(f"{value * factor:.3g}")),
                )
        paint(plot, axes, points, looks)
    key = figure.colorbar(scale, ax=[axes for axes, _, _ in fields], pad=0.02, fraction=0.05)
    key.set_label(data.label_of(column, unit))
    key.outline.set_visible(False)


def paint(plot, axes, points, looks):
    """looks: {(x, y): (color, text)}; where there is no point, a hatched cell."""
    spec = plot.spec
    across = lattice(plot, spec.x, spec.log_x, points)
    upward = lattice(plot, spec.y, spec.log_y, points)
    few = len(across) * len(upward) <= LABELED_CELLS
    for x in across:
        for y in upward:
            color, text = looks.get((x.value, y.value), (None, ""))
            axes.add_patch(
                patches.Rectangle(
                    (x.low, y.low),
                    x.high - x.low,
                    y.high - y.low,
                    facecolor=color or "white",
                    edgecolor="white" if color else "#aaaaaa",
                    hatch=None if color else "////",
                    linewidth=0.8 if few else 0,
                )
            )
            if few and text:
                axes.text(
                    x.place,
                    y.place,
                    text,
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color=style.contrast(color),
                )
    axes.grid(False)
    axes.set_xlim(across[0].low, across[-1].high)
    axes.set_ylim(upward[0].low, upward[-1].high)
    for which, column, cells, log in [
        ("x", spec.x, across, spec.log_x),
        ("y", spec.y, upward, spec.log_y),
    ]:
        values = [cell.value for cell in cells]
        if data.kind_of(column) == "text":
            style.category_axis(axes, which, column, values)
        else:
            style.number_axis(axes, which, column, values, log)


def lattice(plot, column, log, points):
    """Cells along an axis: their edges are half way between neighbors, on the axis' scale."""
    here = {point.value(column) for point in points}
    values = [value for value in plot.results.values(column) if value in here]
    names = data.kind_of(column) == "text"
    log = log and not names and min(values) > 0
    places = numpy.arange(len(values)) if names else numpy.array(values, dtype=float)
    scaled = numpy.log(places) if log else places
    if len(scaled) == 1:
        edges = scaled[0] + numpy.array([-0.5, 0.5])
    else:
        middles = (scaled[1:] + scaled[:-1]) / 2
        edges = numpy.concatenate(
            [[2 * scaled[0] - middles[0]], middles, [2 * scaled[-1] - middles[-1]]]
        )
    edges = numpy.exp(edges) if log else edges
    return [Cell(*cell) for cell in zip(values, places, edges, edges[1:])]
