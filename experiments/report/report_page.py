"""report.html of an experiment: what was asked, the figures, published values against ours, the
modes against each other, all results, and how they were made."""

import collections
import html
import os
import re
import urllib.parse

import report_data as data

STYLE = """
body { font: 16px/1.5 Georgia, 'DejaVu Serif', serif; color: #1a1a1a; max-width: 62rem;
       margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin-bottom: .4rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; border-bottom: 1px solid #ccc; }
p, figcaption { max-width: 48rem; }
figure { margin: 1.8rem 0; break-inside: avoid; }
figure img { max-width: 100%; height: auto; display: block; }
figcaption { font-size: .92rem; color: #333; margin-top: .5rem; }
.scroll { overflow: auto; max-height: 36rem; border: 1px solid #ddd; }
table { border-collapse: collapse; font: .82rem/1.35 system-ui, 'DejaVu Sans', sans-serif;
        font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .6rem; text-align: left; white-space: nowrap; }
th { border-bottom: 1.5px solid #444; vertical-align: bottom; background: #fff; position: sticky;
     top: 0; }
td { border-bottom: 1px solid #eee; }
.number { text-align: right; }
.wide { white-space: normal; min-width: 12rem; }
.off { background: #fbe3d6; font-weight: bold; }
.fitted td { color: #777; }
.note { color: #555; }
.summary { font-weight: bold; }
code { font-size: .9em; }
@media print {
  body { max-width: none; margin: 0; font-size: 10.5pt; }
  .scroll { overflow: visible; max-height: none; border: none; }
  table { font-size: 6.5pt; } th { position: static; } tr { break-inside: avoid; }
  th, td { padding: 1pt 3pt; }
  .off { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
# Above this, differences are marked.
PERCENT = round(100 * data.TOLERANCE)
# Of a row beside its values; longer texts of these wrap.
WIDE = ["source", "schemes"]
# No value for readers: points' hashes.
HIDDEN = ["point", "key"]

# How many points the whole experiment has, None if nobody said; and by each mode that was executed
# how many of them it can't execute.
Size = collections.namedtuple("Size", "planned left_out")


def escape(text):
    """For text and attributes."""
    return html.escape(str(text), quote=True)


def cell(text, *classes, tag="td"):
    """A cell of a table; text is not HTML."""
    names = " ".join(name for name in classes if name)
    return (
        f'<{tag} class="{names}">{escape(text)}</{tag}>'
        if names
        else (f"<{tag}>{escape(text)}</{tag}>")
    )


def table(titles, rows):
    """titles: (text, class); rows: (class, cells)."""
    lines = ['<div class="scroll"><table>', "<thead><tr>"]
    lines += [cell(text, name, tag="th") for text, name in titles]
    lines.append("</tr></thead><tbody>")
    for name, cells in rows:
        lines.append((f'<tr class="{name}">' if name else "<tr>") + "".join(cells) + "</tr>")
    lines.append("</tbody></table></div>")
    return "\n".join(lines)


def paragraph(text, name=""):
    """text is not HTML."""
    return f'<p class="{name}">{escape(text)}</p>' if name else f"<p>{escape(text)}</p>"


def percent(difference):
    """+3.1%"""
    return f"{100 * difference:+.1f}%".replace("-", "−")


def value_cell(point, column):
    """A value of a column whose heading has the unit."""
    if data.kind_of(column) == "text":
        return cell(point.text(column), "wide" if column in WIDE else "")
    value = point.number(column)
    if value is None:
        return cell(point.text(column), "number")
    unit = TABLE_UNITS.get(data.kind_of(column))
    text = data.plain(float(f"{value * unit[1]:.5g}")) if unit else data.shown(column, value)
    return cell(data.plain(value) if data.kind_of(column) == "si" else text, "number")


# One for all rows, so that a column can be read down.
TABLE_UNITS = {
    "seconds": ("ms", 1e3),
    "bytes": ("MB", 1e-6),
    "share": ("%", 100),
    "number": ("", 1),
}


def heading(column):
    """(text, class) of a column of results."""
    unit = TABLE_UNITS.get(data.kind_of(column), ("", 1))[0]
    return data.label_of(column, unit), "" if data.kind_of(column) == "text" else "number"


def headings(columns):
    """Of several columns."""
    return [heading(column) for column in columns]


def name_of(point, columns):
    """A point in a sentence."""
    return ", ".join(
        data.describe(column, point.value(column))
        for column in columns
        if point.value(column) not in (None, "")
    )


def speedup_text(speedup, point):
    """With the efficiency: 29.45 (92%)."""
    devices = (point.number("workers") or 0) * (point.number("devices") or 1)
    text = f"{speedup:,.2f}"
    return f"{text} ({100 * speedup / devices:.0f}%)" if devices else text


PUBLISHED_BASE = ["system", "model", "workers", "bandwidth_gbps"]


def published_section(results):
    """Published values against ours, also where ours are bad."""
    compared = data.comparisons(results)
    missing = data.without_point(results)
    if not compared and not missing:
        return []
    points = [one.point for one in compared]
    base = PUBLISHED_BASE + data.varying(
        points,
        PUBLISHED_BASE,
        ["devices", "condition", "mode", "latency_us", data.SPARE_SERVERS, "batch", "policy"],
    )
    if "devices" not in base and any(point.number("devices") != 1 for point in points):
        base.append("devices")
    rows = []
    for one in compared:
        off = "" if data.within(one.difference) else "off"
        rows.append(
            (
                "fitted" if one.point.fitted else "",
                [
                    *(value_cell(one.point, column) for column in base),
                    cell(speedup_text(one.published, one.point), "number"),
                    cell(speedup_text(one.ours, one.point), "number"),
                    cell(percent(one.difference), "number", off),
                    cell("yes" if one.point.fitted else "no"),
                    cell(one.point.text("source"), "wide"),
                ],
            )
        )
    rows += [("", missing_row(base, *one)) for one in missing]
    return [
        "<h2>Published against ours</h2>",
        *(paragraph(text, "summary") for text in published_summary(compared, missing)),
        table(
            [
                *headings(base),
                ("published", "number"),
                ("ours", "number"),
                ("difference", "number"),
                ("fitted", ""),
                ("source", ""),
            ],
            rows,
        ),
        paragraph(
            "Ours are speedups against one device that computes alone, without updates, "
            "in brackets per device; the difference is ours / published − 1. Differences over "
            f"{PERCENT}% are marked. Gray rows prove nothing: a parameter was fitted to "
            "them.",
            "note",
        ),
    ]


def missing_row(base, message, speedup, efficiency):
    """A published value for which we have nothing to compare."""
    rate = data.gigabits(data.text(message, "bandwidth"))
    known = {
        "system": data.text(message, "system"),
        "model": data.text(message, "net"),
        "workers": data.text(message, "workers"),
        "bandwidth_gbps": data.plain(rate) if rate else "",
        "devices": data.text(message, "devices_per_worker"),
    }
    value = f"{speedup:,.2f}" if speedup else f"({100 * efficiency:.0f}%)" if efficiency else ""
    return [
        *(cell(known.get(column, ""), heading(column)[1]) for column in base),
        cell(value, "number"),
        cell("no result yet", "number"),
        cell("", "number"),
        cell("yes" if data.flag(message, "fitted") else "no"),
        cell(data.text(message, "source"), "wide"),
    ]


def published_summary(compared, missing):
    """Sentences: how many agree, and the worst, in each mode."""
    proofs = [one for one in compared if not one.point.fitted]
    modes = data.modes_of([one.point for one in proofs])
    sentences = []
    for mode in modes:
        said = f"{data.DONE.get(mode, mode).capitalize()}: " if len(modes) > 1 else ""
        sentences.append(
            said + agreement([one for one in proofs if one.point.text("mode") == mode])
        )
    if compared and not proofs:
        sentences.append(
            "Something was fitted to every published value here, so that they prove nothing."
        )
    if missing:
        sentences.append(
            f"{len(missing)} published value{'s have' if len(missing) > 1 else ' has'}"
            " no result yet."
        )
    return sentences


def agreement(proofs):
    """Of one mode. A value that is for several points agrees if all of them do."""
    agrees = {}
    for one in proofs:
        agrees[one.entry] = agrees.get(one.entry, True) and data.within(one.difference)
    worst = max(proofs, key=lambda one: abs(one.difference))
    return (
        f"{sum(agrees.values())} of {len(agrees)} published values to which nothing was fitted are "
        f"within {PERCENT}%. The worst: {name_of(worst.point, PUBLISHED_BASE)}: "
        f"{percent(worst.difference)}."
    )


CHECK_BASE = ["system", "model", "workers", "servers", "bandwidth_gbps"]


def check_section(results):
    """Modes side by side."""
    groups = data.side_by_side(results.finished)
    modes = data.modes_of([point for group in groups for point in group.values()])
    if not groups:
        return []
    base = CHECK_BASE + data.varying(
        [next(iter(group.values())) for group in groups],
        CHECK_BASE,
        ["devices", "latency_us", "condition", "batch", "policy"],
    )
    columns = headings(base) + [(f"{data.DONE.get(mode, mode)} (ms)", "number") for mode in modes]
    for mode in modes[1:]:
        first, other = (data.DONE.get(name, name) for name in (modes[0], mode))
        columns += [(f"{first} against {other}", "number"), (f"bytes as {other}", "")]
    rows = [
        (
            "",
            [
                *(value_cell(next(iter(group.values())), column) for column in base),
                *check_cells(group, modes, results.trained(group)),
            ],
        )
        for group in groups
    ]
    return [
        "<h2>The modes against each other</h2>",
        *(
            paragraph(text, "summary")
            for mode in modes[1:]
            for text in check_summary(results, groups, modes[0], mode)
        ),
        table(columns, rows),
        paragraph(
            "Iteration times, and how far the first mode is from each other one, where no net was "
            "really trained; bytes sent and received by the busiest machine and by the mean one. "
            f"Differences over {PERCENT}% and unequal bytes are marked.",
            "note",
        ),
    ]


def check_cells(group, modes, trained):
    """Times, differences and bytes of one point."""
    cells = [
        value_cell(group[mode], "iteration_seconds") if mode in group else cell("", "number")
        for mode in modes
    ]
    for mode in modes[1:]:
        if mode not in group or modes[0] not in group:
            cells += [cell("", "number"), cell("")]
            continue
        difference = data.time_difference(group[modes[0]], group[mode])
        marked = "" if trained or data.within(difference) else "off"
        cells.append(cell("trained" if trained else percent(difference), "number", marked))
        cells.append(bytes_cell(group[modes[0]], group[mode]))
    return cells


def bytes_cell(one, other):
    """ "equal", or how they are not."""
    equal = data.same_bytes(one, other)
    if equal is not False:
        return cell("equal" if equal else "unknown")
    pairs = [
        (name, one.number(column), other.number(column))
        for name, column in [("out", "bytes_out"), ("in", "bytes_in"), ("mean", "bytes_mean")]
    ]
    return cell(
        "; ".join(
            f"{name} {data.plain(ours)} against {data.plain(theirs)}"
            for name, ours, theirs in pairs
            if ours != theirs
        ),
        "off",
    )


def check_summary(results, groups, base, mode):
    """Whether two modes agree; no sentence if no point has both."""
    both = [group for group in groups if base in group and mode in group]
    if not both:
        return []
    equal = all_of(sum(data.same_bytes(one[base], one[mode]) is True for one in both), len(both))
    timed = [group for group in both if not results.trained(group)]
    agreed, trained = f"{equal} agree exactly in bytes.", len(both) - len(timed)
    if timed:
        differences = [data.time_difference(group[base], group[mode]) for group in timed]
        worst = max(range(len(timed)), key=lambda index: abs(differences[index]))
        of_timed = f" of {len(timed)} that are compared" if trained else ""
        agreed = (
            f"{all_of(sum(map(data.within, differences)), len(timed))}{of_timed} agree to {PERCENT}% in "
            f"iteration time (the largest difference: {percent(differences[worst])}, "
            f"{name_of(timed[worst][mode], CHECK_BASE)}) and {equal} exactly in bytes."
        )
    if trained:
        agreed += f" Times of {all_of(trained, len(both))} are not compared: nets really trained."
    done, other = data.DONE.get(base, base), data.DONE.get(mode, mode)
    return [f"Of {len(both)} point{'s' if len(both) > 1 else ''} both {done} and {other}, {agreed}"]


def all_of(count, total):
    """A number of how many, in a sentence."""
    return "all" if count == total else "none" if count == 0 else f"{count}"


def results_section(results):
    """Every row, without columns that are empty in all of them."""
    columns = [
        column
        for column in data.COLUMNS
        if column not in HIDDEN and any(point.text(column) for point in results.points)
    ]
    if not columns:
        return ["<h2>All results</h2>", paragraph("There is no result yet.")]
    rows = [("", [value_cell(point, column) for column in columns]) for point in results.points]
    return ["<h2>All results</h2>", table(headings(columns), rows)]


def figures_section(pictures):
    """pictures: (title, report_figures.Drawn or None, why not)."""
    lines = ["<h2>Figures</h2>"] if pictures else []
    for number, (title, drawn, why) in enumerate(pictures, 1):
        name = escape(title)
        end = "" if re.search(r"[.?!]$", title) else "."
        if drawn is None:
            lines.append(
                f'<p class="note">Figure {number}: {name}{end} Not drawn: {escape(why)}.' "</p>"
            )
            continue
        lines.append(
            f'<figure><img src="{escape(urllib.parse.quote(drawn.file))}" alt="{name}" '
            f'width="{drawn.width}">'
            f"<figcaption><b>Figure {number}: {name}{end}</b> {escape(drawn.caption)}"
            "</figcaption></figure>"
        )
    return lines


def making_section(results, size):
    """Modes, files, numbers of points."""
    name = data.text(results.experiment, "name") or os.path.basename(
        os.path.abspath(results.directory)
    )
    lines = [
        "<h2>How it was made</h2>",
        f"<p>Experiment <code>{escape(name)}</code>: "
        '<a href="experiment.json">experiment.json</a> is what was asked, '
        '<a href="results.csv">results.csv</a> has the numbers above and '
        "<code>points/</code> those of each point.</p>",
    ]
    for text in made(results, size) + circumstances(results):
        lines.append(paragraph(text))
    return lines


def circumstances(results):
    """Sentences on what decides results and is no column: the programs' version, slow motion and
    hosts, as far as the points' files say it."""
    counts, hosts = collections.Counter(), {}
    for point in results.finished:
        record = results.record(point)
        mode = point.text("mode")
        said = f"by version {record['version']}" if "version" in record else ""
        if record.get("slow_motion", 1) != 1:
            said += f" in slow motion {record['slow_motion']}"
        key = mode, said.strip()
        counts[key] += 1
        hosts.setdefault(key, {}).update(dict.fromkeys(map(str, data.entries(record, "hosts"))))
    sentences = []
    for (mode, said), count in counts.items():
        where = f" on {', '.join(hosts[mode, said])}" if hosts[mode, said] else ""
        if said or where:
            sentences.append(f"{count} {data.DONE.get(mode, mode)} {said}".rstrip() + f"{where}.")
    return sentences


def made(results, size):
    """Sentences on how many points are there."""
    counts = {
        mode: sum(point.text("mode") == mode for point in results.finished)
        for mode in data.modes_of(results.points)
    }
    done = ", ".join(f"{count} {data.DONE.get(mode, mode)}" for mode, count in counts.items())
    sentences = [
        f"Points: {done or 'none'}"
        + (f", of {size.planned} that the experiment has." if size.planned is not None else ".")
    ]
    lacking = len(results.points) - len(results.finished)
    if lacking:
        sentences.append(
            f"{lacking} row{'s' if lacking > 1 else ''} of results.csv "
            f"{'have' if lacking > 1 else 'has'} no result."
        )
    modes = [*counts, *(mode for mode in size.left_out if mode not in counts)]
    for mode in modes:
        sentences += lacking_points(mode, counts.get(mode, 0), size)
    return sentences


def lacking_points(mode, there, size):
    """Sentences on the points that a mode can't execute, and on those that it has not yet."""
    sentences = []
    left_out = size.left_out.get(mode, 0)
    if left_out:
        sentences.append(
            f"{left_out} {'are' if left_out > 1 else 'is'} left out, as the mode {mode} can't "
            "execute them."
        )
    if size.planned is not None and there + left_out < size.planned:
        lacking = size.planned - there - left_out
        sentences.append(
            f"The experiment is not finished: {lacking} point{'s' if lacking > 1 else ''} that can "
            f"be {data.DONE.get(mode, mode)} {'lack' if lacking > 1 else 'lacks'} a result; the "
            f"verb with the same directory and --mode={mode} goes on with what is missing."
        )
    return sentences


def write(results, pictures, notes, size):
    """Writes report.html into the results directory, whole or not at all."""
    experiment = results.experiment
    title = data.text(experiment, "title") or data.text(experiment, "name") or "Experiment"
    body = [
        f"<h1>{escape(title)}</h1>",
        *(paragraph(text) for text in data.entries(experiment, "about")),
        *(paragraph(text, "note") for text in [made(results, size)[0], *notes]),
        *figures_section(pictures),
        *published_section(results),
        *check_section(results),
        *results_section(results),
        *making_section(results, size),
    ]
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )
    path = os.path.join(results.directory, "report.html")
    with data.whole_file(path) as part:
        with open(part, "w", encoding="utf-8") as file:
            file.write(page)
    return path
