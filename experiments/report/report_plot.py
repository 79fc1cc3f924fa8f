"""What a figure of an experiment shows: which points, in which panels, told apart by which colors,
marks and dashes. report_painters and report_map draw it."""

import collections
import re

import report_data as data
import report_style as style

KINDS = ["LINES", "BARS", "STACKED", "MAP", "LOSSES"]
# A published speedup says what these would be, as they are in proportion to it.
BY_SPEEDUP = ["speedup", "efficiency", "images_per_second"]

Group = collections.namedtuple("Group", "value extra mode points")


class NothingToDraw(Exception):
    """Says why."""


class Spec:
    """A Figure message with its defaults."""

    def __init__(self, message, number):
        kind = message.get("kind") or "LINES"
        self.kind = KINDS[kind] if isinstance(kind, int) and kind < len(KINDS) else str(kind)
        self.file = re.sub(r"[^\w-]", "_", data.text(message, "name", f"figure-{number}")) + ".png"
        self.x = data.text(message, "x", "workers")
        self.y = "gpu_busy" if self.kind == "STACKED" else data.text(message, "y", "speedup")
        self.series = data.text(message, "series", "system")
        self.panel = data.text(message, "panel")
        self.color = data.text(message, "color", "schemes")
        self.log_x, self.log_y = data.flag(message, "log_x"), data.flag(message, "log_y")
        self.ideal = data.flag(message, "ideal")
        self._only = {
            "model": data.entries(message, "net"),
            "system": data.entries(message, "system"),
            "condition": data.entries(message, "condition"),
            "sweep": data.entries(message, "sweep"),
            "workers": [str(workers) for workers in data.entries(message, "workers")],
        }

    def columns(self):
        """That results.csv must have."""
        place = (
            [self.series]
            if self.kind == "LOSSES"
            else (
                [self.x, self.y, self.color]
                if self.kind == "MAP"
                else [self.x, self.y, self.series]
            )
        )
        return [column for column in [*place, self.panel] if column]

    def select(self, results):
        """The points that the figure shows; throws NothingToDraw."""
        if self.kind not in KINDS:
            raise NothingToDraw(f"there is no kind of figure {self.kind}")
        for column in self.columns():
            if column not in data.COLUMNS:
                raise NothingToDraw(f"results.csv has no column {column}")
        points = [
            point
            for point in results.finished
            if all(not names or point.text(column) in names for column, names in self._only.items())
        ]
        if self.kind == "LOSSES":
            points = [point for point in points if results.losses(point)]
        else:
            points = [
                point for point in points if None not in (point.value(self.x), point.value(self.y))
            ]
        if not points:
            raise NothingToDraw("none of its points is there yet")
        return points


class Plot:
    """What the panels of a figure have in common: how lines are told apart, and the legend."""

    def __init__(self, spec, results, styles, points):
        self.spec, self.results, self.styles, self.points = spec, results, styles, points
        self.modes = data.modes_of(points)
        x = [] if spec.kind == "LOSSES" else [spec.x]
        base = list(dict.fromkeys([*x, spec.series, "mode", *([spec.panel] if spec.panel else [])]))
        self.extras = data.varying(
            points, base, [column for column in data.IDENTITY if column not in base]
        )
        self._extra_values = sorted(
            {self.extra(point) for point in points},
            key=lambda values: [(str(type(one)), one) for one in values],
        )
        self.legend = {}
        # Whether published values were drawn that something was fitted to (True), or not (False).
        self.published_kinds = set()

    def extra(self, point):
        """Values of the columns that tell lines of one color apart."""
        return tuple(point.value(column) for column in self.extras)

    def extra_index(self, extra):
        """Selects its dashes or hatches."""
        return self._extra_values.index(extra)

    def groups(self, points):
        """Points of a line or of bars of one look, in the order of the legend."""
        groups = {}
        for point in points:
            key = point.value(self.spec.series), self.extra(point), point.text("mode")
            groups.setdefault(key, []).append(point)
        order = self.results.values(self.spec.series)
        ordered = sorted(
            groups,
            key=lambda key: (
                order.index(key[0]) if key[0] in order else -1,
                self.extra_index(key[1]),
                self.modes.index(key[2]),
            ),
        )
        return [Group(*key, groups[key]) for key in ordered]

    def look(self, group):
        """(color, mark)."""
        return (
            self.styles.color(self.spec.series, group.value),
            self.styles.mark(self.spec.series, group.value),
        )

    def places(self, points):
        """{value of x: place on the axis}: numbers where they are, names at 0, 1, ..."""
        here = {point.value(self.spec.x) for point in points}
        values = [value for value in self.results.values(self.spec.x) if value in here]
        if self.named_places:
            return {value: index for index, value in enumerate(values)}
        return {value: value for value in values}

    @property
    def named_places(self):
        """Whether the x axis has a name, or a number as a name, at each of 0, 1, ..."""
        return data.kind_of(self.spec.x) == "text" or self.spec.kind in ("BARS", "STACKED")

    def panels(self):
        """[(value, points)]."""
        panel = self.spec.panel
        if not panel:
            return [(None, self.points)]
        inside = [
            (value, [point for point in self.points if point.value(panel) == value])
            for value in self.results.values(panel)
        ]
        return [(value, points) for value, points in inside if points]

    def explain_series(self, group, handle):
        """Puts a series into the legend, if nothing else says what it is."""
        if self.spec.series not in (self.spec.panel, self.spec.x if self.named_places else None):
            self.legend.setdefault(style.name_of(self.spec.series, group.value), handle)

    def explain_extra(self, handle):
        """After all series: what dashes or hatches mean. handle: by index."""
        if len(self._extra_values) > 1:
            for index, extra in enumerate(self._extra_values):
                name = ", ".join(style.name_of(*item) for item in zip(self.extras, extra))
                self.legend.setdefault(name, handle(index))

    def published(self, points, places):
        """{place: (value, fitted)} of y, by the x of points with a published speedup."""
        found = {}
        for point in points if self.spec.y in BY_SPEEDUP else []:
            published, speedup = point.number("published"), point.number("speedup")
            if published and speedup:
                value = point.number(self.spec.y) * published / speedup
                found[places[point.value(self.spec.x)]] = value, point.fitted
                self.published_kinds.add(point.fitted)
        return found
