"""Draws one panel of each kind of figure but maps. A painter gets (plot, axes, points) and returns
the values of y that the axis must show."""

import math

import numpy
from matplotlib import lines, patches

import report_data as data
import report_plot
import report_style as style
from report_style import GRAY

# Inches of a bar from which on there is room for a number above or in it.
LABELED_BAR = 0.27
# Of a curve of losses, the part over which the smooth line is a mean.
SMOOTH_PART = 1 / 40
# The first line of a panel to the last: where lines meet, those below are still seen.
LINE_WIDTHS = 2.2, 1.6
MARK_SIZES = 6.0, 4.8
# Of the highest bar, what an axis shows where a number is above it.
NUMBER_ROOM = 1.06


def mode_mark(mode, color):
    """Of points that are not on the lines."""
    return {
        "marker": style.MODE_MARKS.get(mode, "*"),
        "color": color,
        "linestyle": "none",
        "markersize": 8,
        "markeredgewidth": 1.7,
    }


def published_mark(color, mark, fitted, place=None, face="none"):
    """A hollow mark for a published value; half filled if something was fitted to it."""
    return lines.Line2D(
        *([[one] for one in place] if place else ([], [])),
        color=color,
        marker=mark,
        linestyle="none",
        markersize=9.5,
        markeredgewidth=1.4,
        zorder=5,
        fillstyle="left" if fitted else "full",
        clip_on=False,
        markerfacecolor=color if fitted else face,
        markerfacecoloralt=face,
    )


def mark_on_bar(axes, color, mark, fitted, place):
    """The same, white inside and around, as the bar has its color."""
    axes.plot(*place, color="white", marker=mark, markersize=11, markeredgewidth=0, zorder=4.5)
    line = published_mark(color, mark, fitted, place, "white")
    line.set_markersize(7)
    axes.add_line(line)


def graded(ends, index, count):
    """From the first of the ends to the last."""
    return ends[0] + (ends[1] - ends[0]) * (index / (count - 1) if count > 1 else 0.5)


def dashes(index):
    """Of lines of one color."""
    return style.DASHES[index % len(style.DASHES)]


def hatches(index):
    """Of bars of one color."""
    return style.HATCHES[index % len(style.HATCHES)]


def paint_lines(plot, axes, points):
    """A line a series; published values, and modes other than the first, as marks."""
    spec, places, shown = plot.spec, plot.places(points), []
    groups = plot.groups(points)
    for index, group in enumerate(groups):
        color, mark = plot.look(group)
        ordered = sorted(group.points, key=lambda point: places[point.value(spec.x)])
        xs = [places[point.value(spec.x)] for point in ordered]
        ys = [point.number(spec.y) for point in ordered]
        published = plot.published(group.points, places)
        shown += ys + [value for value, _ in published.values()]
        if group.mode == plot.modes[0]:
            axes.plot(
                xs,
                ys,
                color=color,
                marker=mark,
                zorder=3,
                markersize=graded(MARK_SIZES, index, len(groups)),
                markeredgewidth=0,
                linewidth=graded(LINE_WIDTHS, index, len(groups)),
                linestyle=dashes(plot.extra_index(group.extra)),
            )
        else:
            axes.plot(xs, ys, zorder=4, **mode_mark(group.mode, color))
        plot.explain_series(
            group, lines.Line2D([], [], color=color, marker=mark, markersize=5.5, linewidth=1.8)
        )
        for x, (value, fitted) in published.items():
            axes.add_line(published_mark(color, mark, fitted, (x, value)))
    if spec.ideal:
        shown += paint_ideal(plot, axes, points, places)
    plot.explain_extra(
        lambda index: lines.Line2D([], [], color=GRAY, linewidth=1.8, linestyle=dashes(index))
    )
    return shown


def paint_ideal(plot, axes, points, places):
    """What there would be without communication. Returns the values; nothing is drawn where y has
    no such value, or several at one x."""
    spec, ideal = plot.spec, {}
    for point in points:
        value = ideal_of(point, spec.y)
        if value:
            ideal.setdefault(places[point.value(spec.x)], []).append(value)
    if any(not math.isclose(min(ys), max(ys), rel_tol=1e-3) for ys in ideal.values()):
        return []  # Of several numbers of devices, say: there is no one such line.
    xs = sorted(ideal)
    ys = [ideal[x][0] for x in xs]
    if xs:
        (line,) = axes.plot(
            xs, ys, color="black", linestyle=(0, (1, 2.5)), linewidth=1.1, zorder=3.5
        )
        plot.legend["ideal"] = line
    return ys


def ideal_of(point, column):
    """Of a point without communication; None where nobody can say it."""
    if column == "iteration_seconds":
        return point.number("compute_seconds")
    value, efficiency = point.number(column), point.number("efficiency")
    return value / efficiency if column in report_plot.BY_SPEEDUP and value and efficiency else None


def slots(plot, points):
    """([(group, offset)], width) of bars around their place. Where the series is what is on the x
    axis, a place has one bar."""

    def key(group):
        return group.extra if plot.spec.series == plot.spec.x else (group.value, group.extra)

    groups = plot.groups(points)
    keys = list(dict.fromkeys(map(key, groups)))
    width = min(0.8 / len(keys), 0.5)
    return [
        (group, (keys.index(key(group)) - (len(keys) - 1) / 2) * width) for group in groups
    ], width


def room_for_numbers(plot, axes):
    """Whether bars of all panels are wide enough."""
    widths = (slots(plot, inside)[1] / len(plot.places(inside)) for _, inside in plot.panels())
    return min(widths) * style.inches(axes)[0] > LABELED_BAR


def paint_bars(plot, axes, points):
    """A group of bars an x; published values and other modes as marks on them."""
    spec, places = plot.spec, plot.places(points)
    shown, labels = [], []
    groups, width = slots(plot, points)
    for group, offset in groups:
        color, mark = plot.look(group)
        published = plot.published(group.points, places)
        for point in group.points:
            x, y = places[point.value(spec.x)], point.number(spec.y)
            value, fitted = published.get(x, (None, False))
            shown += [y] if value is None else [y, value]
            if group.mode == plot.modes[0]:
                draw_bar(axes, x + offset, y, width, (color, plot.extra_index(group.extra)))
                labels.append((x + offset, y, value))
            else:
                axes.plot(x + offset, y, zorder=4, **mode_mark(group.mode, "black"))
            if value is not None:
                mark_on_bar(axes, color, mark, fitted, (x + offset, value))
        plot.explain_series(group, patches.Patch(facecolor=color))
    plot.explain_extra(hatched)
    if len(plot.modes) == 1 and room_for_numbers(plot, axes):
        # In the axis' unit, which is chosen with the room for them in all panels.
        top = NUMBER_ROOM * max(point.number(spec.y) for point in plot.points)
        write_values(axes, labels, data.unit_of(spec.y, [top])[1])
        shown.append(NUMBER_ROOM * max(shown))
    return shown


def draw_bar(axes, x, y, width, look):
    """look: (color, index of the hatch)."""
    axes.bar(
        x, y, 0.9 * width, color=look[0], hatch=hatches(look[1]), edgecolor="white", linewidth=0
    )


def hatched(index):
    """For the legend."""
    return patches.Patch(facecolor=GRAY, edgecolor="white", linewidth=0, hatch=hatches(index))


def write_values(axes, labels, factor):
    """Numbers above bars, and above the marks of published values where those are higher.
    labels: (x, y, published value or None)."""
    for x, y, published in labels:
        beside = published is not None and published > 0.9 * y
        axes.annotate(
            data.plain(float(f"{y * factor:.3g}")),
            (x, max(y, published) if beside else y),
            (0, 8 if beside else 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            color="#333333",
        )


def paint_stacked(plot, axes, points):
    """The share of an iteration that a device computes, and above it the rest."""
    places = plot.places(points)
    numbers = room_for_numbers(plot, axes)
    groups, width = slots(plot, points)
    for group, offset in groups:
        if group.mode != plot.modes[0]:
            continue
        color, _ = plot.look(group)
        for point in group.points:
            x, busy = places[point.value(plot.spec.x)] + offset, point.number("gpu_busy")
            draw_bar(axes, x, busy, width, (color, plot.extra_index(group.extra)))
            axes.bar(
                x, max(0, 1 - busy), 0.9 * width, bottom=busy, color=color, alpha=0.22, linewidth=0
            )
            if numbers:
                write_share(axes, x, busy, color)
        plot.explain_series(group, patches.Patch(facecolor=color))
    plot.explain_extra(hatched)
    return [0, 1]


def write_share(axes, x, busy, color):
    """In the bar where there is room, else above it."""
    inside = busy > 0.12
    axes.annotate(
        f"{100 * busy:.0f}",
        (x, busy),
        (0, -3 if inside else 2),
        textcoords="offset points",
        ha="center",
        va="top" if inside else "bottom",
        fontsize=8,
        color=style.contrast(color) if inside else "#222222",
    )


def paint_losses(plot, axes, points):
    """Every iteration as a thin line, a moving mean as a thick one."""
    shown = []
    for group in plot.groups(points):
        color, _ = plot.look(group)
        index = plot.extra_index(group.extra) if plot.extras else plot.modes.index(group.mode)
        for point in group.points:
            losses = plot.results.losses(point)
            iterations = range(1, len(losses) + 1)
            shown += [loss for loss in losses if math.isfinite(loss)]
            axes.plot(iterations, losses, color=color, alpha=0.3, linewidth=0.6, zorder=2)
            axes.plot(
                iterations,
                moving_mean(losses, window(losses)),
                color=color,
                linestyle=dashes(index),
                linewidth=1.8,
                zorder=3,
            )
        plot.explain_series(group, lines.Line2D([], [], color=color, linewidth=1.8))
    plot.explain_extra(
        lambda index: lines.Line2D([], [], color=GRAY, linewidth=1.8, linestyle=dashes(index))
    )
    return shown


def window(losses):
    """Iterations over which a curve is smoothed."""
    return max(1, round(len(losses) * SMOOTH_PART))


def moving_mean(values, width):
    """Around each value as many as there are, up to width; what is not finite is left out."""
    numbers = numpy.array(values, dtype=float)
    finite = numpy.isfinite(numbers)
    around = numpy.ones(width)
    sums = numpy.convolve(numpy.where(finite, numbers, 0), around, "same")
    counts = numpy.convolve(finite.astype(float), around, "same")
    with numpy.errstate(invalid="ignore"):
        return sums / counts
