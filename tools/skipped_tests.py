"""Says how many cases of a ctest run were skipped, and why, by the log that ctest leaves in Testing/Temporary:

skipped_tests.py LastTest.log
"""

import collections
import re
import sys

TEST = re.compile(r"^\d+/\d+ Test: (\S+)$")
# GoogleTest says first where and why, then of which case.
GOOGLE_REASON = re.compile(r"^\S+:\d+: Skipped$")
GOOGLE_CASE = re.compile(r"^\[ +SKIPPED \] \S+.* \(\d+ ms\)$")
# unittest's, and what a program says that is skipped whole.
PYTHON_CASE = re.compile(r"(?:^|\.\.\. )skipped (['\"])(.*)\1$")
PROGRAM = re.compile(r"^skipped: (.*)$")

# Of a reason, in characters: what a terminal shows in a line.
SHOWN = 100


def read(lines):
    """[(reason, test)] of a log, for each case."""
    found = []
    test, reason = None, None
    lines = iter(lines)
    for line in lines:
        line = line.rstrip("\n")
        if match := TEST.match(line):
            test, reason = match[1], None
        elif GOOGLE_REASON.match(line):
            reason = next(lines, "").strip()
        elif GOOGLE_CASE.match(line):
            found.append((reason or "it does not say why", test))
        elif match := PYTHON_CASE.search(line):
            found.append((match[2], test))
        elif match := PROGRAM.match(line):
            found.append((match[1], test))
    return found


def summary(skipped):
    """Nothing where nothing was skipped, else how many were, and a line for each reason."""
    if not skipped:
        return []
    tests = collections.defaultdict(list)
    for reason, test in skipped:
        tests[reason].append(test)
    lines = [f"skipped, and so not tested here: {len(skipped)} case(s)"]
    for reason, of in sorted(tests.items(), key=lambda item: (-len(item[1]), item[0])):
        short = reason if len(reason) <= SHOWN else reason[: SHOWN - 3] + "..."
        lines.append(f"{len(of):6}  {short} ({', '.join(sorted(set(of)))})")
    return lines


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
            for line in summary(read(file)):
                print(line)
    except FileNotFoundError:
        sys.exit(f"{sys.argv[1]} is not there: no tests have been run; run tools/test first")


if __name__ == "__main__":
    main()
