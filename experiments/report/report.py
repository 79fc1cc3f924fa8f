"""The report of an experiment: figures and report.html, from what `poseidon experiment` has left in
a directory.

    python3 experiments/report/report.py DIR [--points=N] [--left_out=MODE:M]...

Reads DIR/experiment.json (the Experiment message of proto/experiment.proto as JSON),
DIR/results.csv and the losses in DIR/points/*.json; writes DIR/NAME.png for each figure and
DIR/report.html. --points: how many the whole experiment has; --left_out: how many of them a mode
can't execute. Figures need Matplotlib (Debian: python3-matplotlib); without it the report
has tables only. Ends with 1 if DIR has no results."""

import argparse
import os
import sys

import report_data
import report_page

# Debian's packages are for this one, which need not be the first in the PATH.
DEBIAN_PYTHON = "/usr/bin/python3"
ADVICE = (
    "there is no Matplotlib, so the report has tables only; install the package "
    "python3-matplotlib for the figures"
)


def counted(number, thing):
    """counted(1, "point") is "1 point"."""
    return f"{number} {thing}" + ("" if number == 1 else "s")


def say(line):
    """Shows a line. Where nobody reads any more (`| head -1`) that is no failure, and the report is made."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def count_of_mode(argument):
    """("emulate", 3) of "emulate:3"."""
    mode, count = argument.split(":")
    return mode, int(count)


def figures_module():
    """report_figures, or None without Matplotlib. Goes on in Debian's interpreter if this is
    another one, and does not return then."""
    try:
        # Only here is it known whether it can be imported.
        import report_figures  # pylint: disable=import-outside-toplevel

        return report_figures
    except ImportError:
        if sys.executable != DEBIAN_PYTHON and os.access(DEBIAN_PYTHON, os.X_OK):
            sys.stdout.flush()
            os.execv(DEBIAN_PYTHON, [DEBIAN_PYTHON, os.path.abspath(__file__), *sys.argv[1:]])
        return None


def draw(results, figures):
    """[(title, Drawn or None, why not)] of the experiment's figures."""
    if figures is None:
        return []
    pictures = []
    styles = figures.Styles(results)
    for number, message in enumerate(report_data.entries(results.experiment, "figure"), 1):
        title = report_data.text(message, "title") or report_data.text(message, "name", "figure")
        try:
            pictures.append((title, figures.draw(results, styles, message, number), ""))
        except figures.NothingToDraw as reason:
            say(f"figure {title!r} is not drawn: {reason}")
            pictures.append((title, None, str(reason)))
    return pictures


def main():
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("--points", type=int, metavar="N")
    parser.add_argument(
        "--left_out", type=count_of_mode, metavar="MODE:M", action="append", default=[]
    )
    arguments = parser.parse_args()
    figures = figures_module()
    try:
        results = report_data.Results(arguments.directory)
    except report_data.ReportError as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    notes = [] if figures else [ADVICE[0].upper() + ADVICE[1:] + "."]
    if figures is None:
        say(f"report.py: {ADVICE}")
    pictures = draw(results, figures)
    size = report_page.Size(arguments.points, dict(arguments.left_out))
    path = report_page.write(results, pictures, notes, size)
    drawn = sum(picture[1] is not None for picture in pictures)
    say(f"{path}: {counted(len(results.finished), 'point')}, {counted(drawn, 'figure')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
