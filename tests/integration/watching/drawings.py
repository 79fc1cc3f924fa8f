"""Reads the drawings of the monitor's page as a person does: what a position on the screen means is said by the texts
of the axes, and what a color means by the legend.

  position_of = axis([(180.0, 0), (480.0, 100)])  # of 50: 330.0
"""

import re

# By so much rounding to whole pixels moves a position.
PIXEL = 0.5

# An expression of the page's script: where all that is drawn stands, in pixels of the screen.
SEEN = """(() => {
  const boxOf = (element) => {
    const {left, right, top, bottom} = element.getBoundingClientRect();
    const color = getComputedStyle(element).fill;
    return {left, right, top, bottom, color, text: element.textContent};
  };
  const seen = (id) => {
    const svg = document.querySelector(`#${id} svg`);
    const boxes = (name) => [...svg.querySelectorAll(name)].map(boxOf);
    const onScreen = (point) => {
      const drawn = new DOMPoint(...point.split(' ').map(Number));
      const {x, y} = drawn.matrixTransform(svg.getScreenCTM());
      return [x, y];
    };
    const curves = [...svg.querySelectorAll('path')].map((path) =>
      path.getAttribute('d').slice(1).split('L').map(onScreen));
    return {frame: boxOf(svg), texts: boxes('text'), lines: boxes('line'), bars: boxes('rect'),
      curves};
  };
  const legend = [...document.querySelectorAll('#timeline_note .entry')].map((entry) =>
    [getComputedStyle(entry.querySelector('.swatch')).backgroundColor, entry.textContent]);
  return {loss: seen('loss_chart'), images_per_second: seen('throughput_chart'),
    timeline: seen('timeline'), legend: Object.fromEntries(legend),
    note: document.getElementById('timeline_note').textContent};
})()"""


def number(text):
    return float(re.search(r"-?\d[\d,]*(\.\d+)?", text)[0].replace(",", ""))


def middle(box, one="top", other="bottom"):
    return (box[one] + box[other]) / 2


def across(box):
    return middle(box, "left", "right")


def axis(marks):
    """The position of a value, by the marks [position, value] of an axis."""
    (begin, least), (end, most) = marks[0], marks[-1]
    assert least < most, f"the texts of an axis' ends are no different: {marks}"

    def position_of(value):
        return begin + (value - least) / (most - least) * (end - begin)

    for position, value in marks:
        assert abs(position - position_of(value)) <= PIXEL, marks
    return position_of


def only(boxes):
    assert len(boxes) == 1, boxes
    return boxes[0]


def axes_of_curve(drawing):
    """The positions of an iteration and of a value."""
    levels, others = [], list(drawing["texts"])
    for line in drawing["lines"]:
        text = only([t for t in others if t["top"] < middle(line) < t["bottom"]])
        others.remove(text)
        levels.append((middle(line), number(text["text"])))
    # The first iteration is where its text begins, the last one where its text ends.
    first, last = others
    ends = [(first["left"], number(first["text"])), (last["right"], number(last["text"]))]
    return axis(ends), axis(levels)


def points_of_history(drawing, iterations, values):
    """Where the curve's points belong."""
    across_of, height_of = axes_of_curve(drawing)
    known = [(x, y) for x, y in zip(iterations, values) if y is not None]
    return [(across_of(x), height_of(y)) for x, y in known]


def bars_of(drawing, legend):
    """The bars that are seen: (row, what its color stands for, left, right, text)."""
    rows = [text for text in drawing["texts"] if not text["text"].endswith(" ms")]
    bars = []
    for bar in drawing["bars"]:
        row = only([text for text in rows if text["top"] < middle(bar) < text["bottom"]])
        kind = legend[bar["color"]]
        bars.append((row["text"], kind, bar["left"], bar["right"], bar["text"]))
    return sorted(bars)


def spans_of(timeline):
    """What there is to see of an iteration: (row, what, begin, end in ms, text before and after the time)."""
    spans = []
    for bucket in timeline["buckets"]:
        span = bucket["ready_ms"], bucket["fresh_ms"], f"{bucket['name']}: ", ""
        spans.append((bucket["name"], "exchange, ready to fresh", *span))
    computed = 0
    for wait in timeline["waits"]:
        span = wait["begin_ms"], wait["end_ms"], "", f" waiting for {wait['layer']}"
        spans.append(("computing", "computing stands still", *span))
        if computed < wait["begin_ms"]:
            spans.append(
                ("computing", "computing", computed, wait["begin_ms"], "", " of computing")
            )
        computed = max(computed, wait["end_ms"])
    end = max([timeline["duration_ms"]] + [span[3] for span in spans])
    if computed < end:
        spans.append(("computing", "computing", computed, end, "", " of computing"))
    return sorted(spans)


def bars_of_timeline(drawing, timeline):
    """The bars that belong there, as bars_of() has them, but for the text: (ms, what is before and after them)."""
    ticks = [text for text in drawing["texts"] if text["text"].endswith(" ms")]
    marks = []
    for line in drawing["lines"]:
        tick = only([text for text in ticks if abs(across(text) - across(line)) <= PIXEL])
        marks.append((across(line), number(tick["text"])))
    position_of = axis(marks)
    bars = []
    for row, kind, begin, end, *around in spans_of(timeline):
        # What takes next to no time is seen, too.
        left, right = position_of(begin), max(position_of(end), position_of(begin) + 1)
        bars.append((row, kind, left, right, (end - begin, *around)))
    return bars


def texts_beyond_the_edge(drawing):
    frame = drawing["frame"]
    return [
        text["text"]
        for text in drawing["texts"]
        if text["left"] < frame["left"] or text["right"] > frame["right"]
    ]
