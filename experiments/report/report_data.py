"""What an experiment's results directory holds: points, published values, modes side by side. Reads
and compares; draws and writes nothing."""

import collections
import contextlib
import csv
import json
import math
import os
import re

MODES = ["simulate", "emulate", "run"]
DONE = {"simulate": "simulated", "emulate": "emulated", "run": "run"}
# How far a prediction may be off.
TOLERANCE = 0.10
# Sizes and counts come through text, so equal ones differ by rounding at most.
ROUNDING = 1e-9

# No column of results.csv: the servers that are more than the workers.
SPARE_SERVERS = "spare_servers"
# What tells points apart that figures show: rows of one `point` have the same values here, in any
# mode. The order is the one in which figures tell lines apart that they were not asked to.
IDENTITY = [
    "system",
    "model",
    "bandwidth_gbps",
    "latency_us",
    "devices",
    "condition",
    "mtbf_hours",
    "workers",
    # Not servers, which are mostly as many as the workers: each number of workers would be a line
    # of its own where some points have more.
    SPARE_SERVERS,
    "batch",
    "policy",
    "parameters",
    "goodput_gbps",
    "message_cost_us",
    "flops",
    "reduction_rate",
    "update_rate",
    # The last: where points differ in what no column says, such as settings of communication.
    "sweep",
]

# Kinds of columns: text; number; si: a number written with k, M, G; share: shown in percent;
# seconds and bytes: shown in whatever unit suits the figure.
Column = collections.namedtuple("Column", "kind label template")
COLUMNS = {
    "system": Column("text", "system", "{}"),
    "model": Column("text", "model", "{}"),
    "workers": Column("number", "workers", "{} workers"),
    "servers": Column("number", "parameter servers", "{} servers"),
    SPARE_SERVERS: Column("number", "spare servers", "{} spare servers"),
    "devices": Column("number", "devices per worker", "{} devices per worker"),
    "gpus": Column("number", "GPUs", "{} GPUs"),
    "bandwidth_gbps": Column("number", "bandwidth (Gb/s)", "{} Gb/s"),
    "latency_us": Column("number", "latency (µs)", "{} µs latency"),
    "condition": Column("text", "condition", "{}"),
    "mtbf_hours": Column("number", "mean time until a node fails (h)", "a node lives {} h"),
    "sweep": Column("text", "sweep", "sweep {}"),
    "mode": Column("text", "mode", "{}"),
    "policy": Column("text", "policy", "policy {}"),
    "batch": Column("number", "batch of a worker (samples)", "{} samples per worker"),
    "parameters": Column("si", "parameters", "{} parameters"),
    "goodput_gbps": Column("number", "goodput (Gb/s)", "{} Gb/s goodput"),
    "message_cost_us": Column("number", "cost of a message (µs)", "{} µs a message"),
    "flops": Column("si", "operations/s of a device", "{} operations/s"),
    "reduction_rate": Column("si", "bytes/s added up", "{} bytes/s added up"),
    "update_rate": Column("si", "bytes/s updated", "{} bytes/s updated"),
    "iteration_seconds": Column("seconds", "iteration time", "iteration {}"),
    "compute_seconds": Column("seconds", "computing time", "computation {}"),
    "images_per_second": Column("number", "throughput (images/s)", "{} images/s"),
    "speedup": Column("number", "speedup", "speedup {}"),
    "efficiency": Column("share", "efficiency", "efficiency {}"),
    "gpu_busy": Column("share", "GPU busy", "GPU busy {}"),
    "bytes_out": Column("bytes", "sent by busiest machine", "{} sent"),
    "bytes_in": Column("bytes", "received by busiest machine", "{} received"),
    "bytes_mean": Column("bytes", "moved by mean machine", "{} moved"),
    "imbalance": Column("number", "busiest machine's traffic / mean", "imbalance {}"),
    "predicted_seconds": Column("seconds", "predicted iteration time", "predicted {}"),
    "schemes": Column("text", "schemes", "{}"),
    "accuracy": Column("share", "test accuracy", "accuracy {}"),
    "goodput": Column("share", "goodput", "goodput {}"),
    "published": Column("number", "published speedup", "published {}"),
    "difference": Column("share", "difference from published", "difference {}"),
    "fitted": Column("text", "fitted", "{}"),
    "source": Column("text", "source", "{}"),
    "point": Column("text", "point", "{}"),
    "key": Column("text", "key", "{}"),
}
# Of (least value, unit, factor), the first whose least value the largest shown reaches.
UNITS = {
    "seconds": [(10, "s", 1), (1e-3, "ms", 1e3), (0, "µs", 1e6)],
    "bytes": [(1e10, "GB", 1e-9), (1e6, "MB", 1e-6), (1e3, "kB", 1e-3), (0, "bytes", 1)],
    "share": [(0, "%", 100)],
}
SI = [(1e9, "G"), (1e6, "M"), (1e3, "k")]
BITS = {"": 1e-9, "K": 1e-6, "M": 1e-3, "G": 1, "T": 1e3}


class ReportError(Exception):
    """What the directory lacks; the text says what to do."""


class Point:
    """A row of results.csv."""

    def __init__(self, cells):
        self._cells = cells

    def text(self, column):
        """The cell, "" if there is none."""
        if column == SPARE_SERVERS:
            return self._spare_servers()
        return self._cells.get(column) or ""

    def _spare_servers(self):
        workers, servers = self.number("workers"), self.number("servers")
        return "" if None in (workers, servers) else str(servers - workers)

    def number(self, column):
        """None where the cell is empty or no finite number."""
        try:
            found = float(self.text(column))
        except ValueError:
            return None
        return found if math.isfinite(found) else None

    def value(self, column):
        """A number or None in a column of numbers, else text."""
        return self.text(column) if kind_of(column) == "text" else self.number(column)

    @property
    def identity(self):
        """What only the rows of the same point in several modes have in common. Of tables without
        the column `point`, what other columns say."""
        return self.text("point") or tuple(self.value(column) for column in IDENTITY)

    @property
    def fitted(self):
        """Whether a parameter was fitted to the published value."""
        return self.text("fitted").lower() in ("true", "1", "yes")


def kind_of(column):
    """Of a column that we don't know: text."""
    return COLUMNS[column].kind if column in COLUMNS else "text"


def plain(value):
    """Four digits or all of the integer, never an exponent."""
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1e-4 else f"{value:.6f}".rstrip("0").rstrip(".")


def prefixed(value):
    """25.6M."""
    for least, letter in SI:
        if abs(value) >= least:
            return f"{value / least:.4g}{letter}"
    return plain(value)


def unit_of(column, values):
    """(unit, factor) in which the values are best read; ("", 1) if the column has no choice."""
    units = UNITS.get(kind_of(column))
    if not units:
        return "", 1
    largest = max((abs(value) for value in values), default=1)
    return next(unit[1:] for unit in units if largest >= unit[0])


def label_of(column, unit=""):
    """For an axis or a heading."""
    label = COLUMNS[column].label if column in COLUMNS else column
    per = "/iteration" if kind_of(column) == "bytes" else ""
    return f"{label} ({unit}{per})" if unit else label


def describe(column, value):
    """A value as legends and captions say it, such as "10 Gb/s"."""
    if value is None or value == "":
        return f"no {label_of(column)}"
    if kind_of(column) == "text":
        return COLUMNS[column].template.format(value) if column in COLUMNS else str(value)
    said = COLUMNS[column].template.format(shown(column, value))
    return re.sub(r"s\b", "", said, count=1) if re.match(r"1 \w{2,}s\b", said) else said


def shown(column, value):
    """A number with its unit, if the unit is not the column's own."""
    if kind_of(column) == "si":
        return prefixed(value)
    unit, factor = unit_of(column, [value])
    return plain(float(f"{value * factor:.4g}")) + (f" {unit}" if unit else "")


class Results:
    """All of a directory. experiment: the Experiment message, {} if there is none."""

    def __init__(self, directory):
        self.directory = directory
        self.experiment = read_experiment(os.path.join(directory, "experiment.json"))
        self.points = read_points(os.path.join(directory, "results.csv"))
        self.finished = [
            point
            for point in self.points
            if point.number("iteration_seconds") is not None
            or point.number("predicted_seconds") is not None
        ]
        self._values = {}

    def values(self, column):
        """Different values of a column: numbers by size, texts as the experiment lists them."""
        if column not in self._values:
            found = {point.value(column): None for point in self.points}
            if kind_of(column) == "text":
                first = [name for name in self._listed(column) if name in found]
                ordered = list(dict.fromkeys([*first, *found]))
            else:
                ordered = sorted((value for value in found if value is not None))
            self._values[column] = ordered
        return self._values[column]

    def _listed(self, column):
        """Names of a column in the order of the experiment file."""
        sweeps = entries(self.experiment, "sweep")
        if column == "model":
            return [text(net, "name") for net in entries(self.experiment, "net")]
        if column == "system":
            return [name for sweep in sweeps for name in entries(sweep, "system")]
        if column == "sweep":
            return [text(sweep, "name", str(number + 1)) for number, sweep in enumerate(sweeps)]
        if column == "condition":
            return [
                "",
                *(
                    text(condition, "name")
                    for sweep in sweeps
                    for condition in entries(sweep, "condition")
                ),
            ]
        return MODES if column == "mode" else []

    def record(self, point):
        """What the point's own file says; {} if it is not there."""
        name = os.path.basename(point.text("key"))
        path = os.path.join(self.directory, "points", f"{name}.json")
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def losses(self, point):
        """By iteration; empty if nothing was trained or the file is not there."""
        losses = entries(self.record(point), "loss")
        return [loss if isinstance(loss, (int, float)) else math.nan for loss in losses]

    def trained(self, group):
        """Whether a point of side_by_side was really trained: how long that takes is the machines'
        own, and not as the experiment's cluster.flops have a simulated point compute."""
        return any(self.losses(point) for point in group.values())


@contextlib.contextmanager
def whole_file(path):
    """Another path to write to, which becomes `path` if nothing goes wrong and is removed else."""
    part = path + ".part"
    try:
        yield part
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def read_experiment(path):
    """The message as JSON; without the file, what results.csv says must do."""
    try:
        with open(path, encoding="utf-8") as file:
            experiment = json.load(file)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ReportError(f"{path} is no JSON: {error}") from error
    if not isinstance(experiment, dict):
        raise ReportError(f"{path} holds no Experiment message")
    return experiment


def read_points(path):
    """Rows of results.csv."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return [Point(row) for row in csv.DictReader(file)]
    except FileNotFoundError:
        raise ReportError(
            f"there is no {path}; `poseidon experiment FILE --mode=simulate "
            f"--out={os.path.dirname(path)}` writes it"
        ) from None


def entries(message, field):
    """A repeated field."""
    value = message.get(field) or []
    return value if isinstance(value, list) else [value]


def text(message, field, default=""):
    """A string or enum field."""
    return str(message.get(field) or default)


def number(message, field):
    """A numeric field (64-bit ones are strings in JSON), None if not set: 0 means nothing here."""
    try:
        return float(message.get(field) or 0) or None
    except ValueError:
        return None


def flag(message, field):
    """A bool field."""
    return message.get(field) in (True, "true")


def gigabits(rate):
    """Of "40Gbps"; None if it is no rate."""
    match = re.fullmatch(r"\s*([\d.eE+-]+)\s*([KMGT]?)bps\s*", rate)
    return float(match[1]) * BITS[match[2]] if match else None


# entry: the same of all points that the same published value is for.
Comparison = collections.namedtuple("Comparison", "point published ours difference entry")


def comparisons(results):
    """Of all points for which somebody has published a speedup, in the order of the rows."""
    compared = []
    for point in results.finished:
        published, ours = point.number("published"), point.number("speedup")
        if published and ours is not None:
            entry = published_entry(results, point)
            compared.append(Comparison(point, published, ours, ours / published - 1, entry))
    return compared


def published_entry(results, point):
    """The number of the experiment's published value that is for the point, as the table took it:
    the first. Of a table without its experiment, each point's is another one."""
    for number_in_file, message in enumerate(entries(results.experiment, "published")):
        if matches(message, point):
            return number_in_file
    return point.identity


def within(difference):
    """Whether a relative difference is small enough."""
    return abs(difference) <= TOLERANCE + ROUNDING


def without_point(results):
    """Published values of the experiment for which there is no finished point: (message, speedup
    or None, efficiency or None)."""
    missing = []
    for message in entries(results.experiment, "published"):
        if not any(matches(message, point) for point in results.finished):
            missing.append((message, number(message, "speedup"), number(message, "efficiency")))
    return missing


def matches(published, point):
    """Whether the point has all that is set in a Published message."""
    rate = gigabits(text(published, "bandwidth"))
    wanted = [
        ("model", text(published, "net") or None),
        ("system", text(published, "system") or None),
        ("workers", number(published, "workers")),
        ("bandwidth_gbps", rate),
        ("devices", number(published, "devices_per_worker")),
    ]
    return point.number("published") is not None and all(
        value is None or same(point.value(column), value) for column, value in wanted
    )


def same(one, other):
    """Equal, or numbers that differ by rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUNDING)
    return one == other


def modes_of(points):
    """In our order, then any that we don't know."""
    found = dict.fromkeys(point.text("mode") for point in points)
    return [mode for mode in MODES if mode in found] + [mode for mode in found if mode not in MODES]


def side_by_side(points):
    """[{mode: point}] of all points that are there in several modes."""
    groups = {}
    for point in points:
        if point.number("iteration_seconds") is not None:
            groups.setdefault(point.identity, {})[point.text("mode")] = point
    return [group for group in groups.values() if len(group) > 1]


def time_difference(one, other):
    """Relative, of one point's iteration from another's."""
    base = other.number("iteration_seconds")
    return one.number("iteration_seconds") / base - 1 if base else math.inf


def same_bytes(one, other):
    """Whether the two moved the same bytes; None where one does not say."""
    pairs = [
        (one.number(column), other.number(column))
        for column in ("bytes_out", "bytes_in", "bytes_mean")
    ]
    if any(None in pair for pair in pairs):
        return None
    return all(math.isclose(*pair, rel_tol=ROUNDING) for pair in pairs)


def varying(points, base, candidates):
    """Candidates in which points differ that agree in the base columns: what a table or legend
    must say beside the base to tell them apart. As few as will do."""
    chosen = []
    for column in candidates:
        groups = {}
        for point in points:
            key = tuple(point.value(other) for other in [*base, *chosen])
            groups.setdefault(key, set()).add(point.value(column))
        if any(len(values) > 1 for values in groups.values()):
            chosen.append(column)
    return chosen
