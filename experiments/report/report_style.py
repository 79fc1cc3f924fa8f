"""How the figures of a report look: a color and a mark for every system, the same in all of them;
axes with plain numbers at the points."""

import matplotlib
from matplotlib import colors, ticker

import report_data as data

# Okabe and Ito's colors, which all kinds of color vision tell apart, and some of Paul Tol's. The
# first four are the systems that every experiment knows, in any report.
PALETTE = [
    "#E69F00",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#332288",
    "#999933",
    "#882255",
    "#44AA99",
    "#000000",
    "#AA4499",
]
MARKS = ["s", "^", "o", "D", "v", "p", "<", "h", ">", "d", "8"]
KNOWN = {
    "system": ["ps", "wfbp", "poseidon", "time"],
    "schemes": ["PS", "SFB", "ring", "halving-doubling", "torus", "Adam"],
}
# Paul Tol's light ones are not taken for those of systems, and black is read on all of them.
LIGHT = [
    "#77AADD",
    "#EE8866",
    "#EEDD88",
    "#44BB99",
    "#FFAABB",
    "#AAAA00",
    "#99DDFF",
    "#BBCC33",
    "#DDDDDD",
]
# Of lines and bars that have the same color.
DASHES = ["-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (8, 3))]
HATCHES = ["", "///", "...", "xxx", "---", "ooo"]
# Points that are neither simulated nor the figure's only ones.
MODE_MARKS = {"emulate": "+", "run": "x"}
GRAY = "#666666"

# Inches. A page is about nine wide, where two panels stand side by side.
PANEL = (4.7, 3.3)
ALONE = (6.2, 3.9)
DIGIT = 0.085
LETTER = 0.08
GAP = 0.03
# An axis begins at 0 if its smallest value is at most this part of the largest.
NEAR_ZERO = 0.2
# Of the height that values need.
HEADROOM = 1.05
RC = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "axes.linewidth": 0.8,
    "axes.edgecolor": "#444444",
    "xtick.color": "#222222",
    "ytick.color": "#222222",
    "legend.frameon": False,
    "hatch.linewidth": 0.7,
    "hatch.color": "#ffffff",
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "savefig.dpi": 160,
}


class Styles:
    """Colors and marks by value of a column. Made once a report."""

    def __init__(self, results):
        self._results = results
        self._places = {}

    def place(self, column, value):
        """Its number among all values of the column in the report."""
        if column not in self._places:
            known = KNOWN.get(column, [])
            others = [other for other in self._results.values(column) if other not in known]
            self._places[column] = {name: index for index, name in enumerate([*known, *others])}
        places = self._places[column]
        return places.setdefault(value, len(places))

    def color(self, column, value):
        """As #rrggbb."""
        if data.kind_of(column) != "text":  # from dark to light; the lightest is too light
            count = max(1, len(self._results.values(column)) - 1)
            return colors.to_hex(
                matplotlib.colormaps["viridis"](0.88 * self.place(column, value) / count)
            )
        palette = LIGHT if column == "schemes" else PALETTE
        return palette[self.place(column, value) % len(palette)]

    def mark(self, column, value):
        """Of Matplotlib; the two lists' lengths have no common factor, so pairs repeat late."""
        return MARKS[self.place(column, value) % len(MARKS)]


def context():
    """Within which all figures are drawn."""
    return matplotlib.rc_context(RC)


def name_of(column, value):
    """For legends, which leave out names with a leading underscore."""
    name = data.describe(column, value)
    return " " + name if name.startswith("_") else name


def contrast(color):
    """Black or white, whichever is read better on the color."""
    red, green, blue = colors.to_rgb(color)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else "white"


def inches(axes):
    """(width, height) of the axes, about: what labels leave."""
    grid = axes.get_subplotspec().get_gridspec()
    return (
        axes.figure.get_figwidth() / grid.ncols - 0.9,
        axes.figure.get_figheight() / grid.nrows - 0.9,
    )


def tick_text(column, value, factor):
    """Without a unit: that is the axis'."""
    if data.kind_of(column) == "si":
        return data.prefixed(float(f"{value:.3g}"))
    return data.plain(float(f"{value * factor:.5g}"))


def far_enough(axis, values, sizes, length):
    """Those of the values, from the largest, whose texts do not touch. sizes of texts, and the
    axis' length, in inches."""
    transform = axis.get_transform()
    low, high = sorted(transform.transform(list(axis.get_view_interval())))
    scale = length / (high - low) if high > low else 0
    kept = []
    for value, size in sorted(zip(values, sizes), reverse=True):
        place = scale * float(transform.transform([value])[0])
        if not kept or kept[-1][0] - place >= (size + kept[-1][1]) / 2 + GAP:
            kept.append((place, size, value))
    return [value for _, _, value in kept]


def number_axis(axes, which, column, values, log):
    """Makes x or y an axis of numbers with a tick at the values, as far as there is room."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    unit, factor = data.unit_of(column, values)
    axis.set_label_text(data.label_of(column, unit))
    if log and min(values) > 0:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    elif which == "x" and axes.get_autoscalex_on() and 0 <= min(values) <= NEAR_ZERO * max(values):
        axes.set_xlim(left=0 if min(values) > 0 else None)
    texts = {value: tick_text(column, value, factor) for value in values}
    sizes = [DIGIT * len(text) if which == "x" else 2 * DIGIT for text in texts.values()]
    ticks = far_enough(axis, values, sizes, inches(axes)[which == "y"])
    axis.set_major_locator(ticker.FixedLocator(ticks))
    axis.set_major_formatter(ticker.FixedFormatter([texts[value] for value in ticks]))
    axis.set_minor_locator(ticker.NullLocator())


def category_axis(axes, which, column, values):
    """Makes x or y an axis of names at 0, 1, ..."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    text = data.kind_of(column) == "text"
    unit, factor = ("", 1) if text else data.unit_of(column, values)
    names = [
        (str(value) or "none") if text else tick_text(column, value, factor) for value in values
    ]
    axis.set_label_text(data.label_of(column, unit))
    axis.set_major_locator(ticker.FixedLocator(range(len(values))))
    axis.set_major_formatter(ticker.FixedFormatter(names))
    axis.grid(False)
    if which == "x" and (max(map(len, names)) + 1) * len(names) * LETTER > inches(axes)[0]:
        axes.tick_params(axis="x", rotation=25)
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def count_axis(axes, label, log):
    """Makes x an axis of integers."""
    axes.set_xlabel(label)
    if log:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
        axes.margins(x=0.02)
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: data.plain(value)))


def value_axis(axes, column, values, everything, log):
    """Makes y an axis of results: round ticks, from 0 up if they are not logarithmic. values are
    this axis', everything those of all panels, which have one unit."""
    unit, factor = data.unit_of(column, everything)
    axes.yaxis.set_label_text("training loss" if column == "loss" else data.label_of(column, unit))
    positive = [value for value in values if value > 0]
    if log and positive:
        log_axis(axes, column, min(positive), max(positive))
    else:
        axes.yaxis.set_major_locator(Steps(factor))
        if min(values, default=0) >= 0 and max(values, default=0) > 0:
            axes.set_ylim(0, HEADROOM * max(values))
    axes.yaxis.set_major_formatter(
        ticker.FuncFormatter(lambda value, _: data.plain(float(f"{value * factor:.6g}")))
    )


def log_axis(axes, column, low, high):
    """Ticks at powers of two for speedups, else as many round ones as there is room for."""
    if high < 2 * low:  # or small differences would look large
        low, high = low / 1.5, high * 1.5
    margin = max(1.1, (high / low) ** 0.04)
    axes.set_yscale("log")
    axes.set_ylim(low / margin, high * margin)
    base = 2 if column == "speedup" and high / low < 2**12 else 10
    steps = (
        [1]
        if base == 2 or high > 1e4 * low
        else ([1, 2, 5] if high > 8 * low else [1, 1.5, 2, 3, 4, 5, 7])
    )
    axes.yaxis.set_major_locator(ticker.LogLocator(base=base, subs=steps, numticks=20))
    axes.yaxis.set_minor_locator(ticker.NullLocator())


class Steps(ticker.MaxNLocator):
    """Ticks that are round in the axis' unit."""

    def __init__(self, factor):
        super().__init__(nbins=7, steps=[1, 2, 5, 10])
        self._factor = factor

    def tick_values(self, vmin, vmax):
        """In the data's unit."""
        return super().tick_values(vmin * self._factor, vmax * self._factor) / self._factor
