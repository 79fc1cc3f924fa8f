"""Keeps the house: the rules of docs/architecture.md that a compiler does not know.

  house_test.py SOURCE_DIR    checks the tree; prints each violation as file:line: what; exits 1 if any
  house_test.py --self-test   checks the checks, on small trees that break one rule each

Rules: a room includes only rooms on lower floors (cmake/floors.txt), by path from the root; a source
includes its own header first, which proves that it compiles alone; a header begins with #pragma once;
no circles between files, folders or rooms; no source or header over 500 lines; no folder of a room
with over 30 sources and headers; no note of work left undone; spelling is American; the headers of include/ include each
other and the standard library only; what git ignores no image gets; clang-tidy looks at every room's headers.
"""

import pathlib
import re
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def floors():
    """The rooms of each floor, lowest first: cmake/floors.txt."""
    text = (REPOSITORY / "cmake" / "floors.txt").read_text(encoding="utf-8")
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


# What each room may include beside itself. A room may use any room on a lower floor; rooms of one
# floor do not know each other.
FLOORS = floors()
ALLOWED = {
    room: {lower for floor in FLOORS[:height] for lower in floor}
    for height, floor in enumerate(FLOORS)
    for room in floor
}

# Not rooms, but ours: they may include any room.
BESIDE = ["tests"]

# Folders whose headers clang-tidy looks at, as .clang-tidy lists them; the last is the build's.
WITH_HEADERS = {"include/poseidon", *ALLOWED, *BESIDE, "header_check"} - {"include"}

SOURCES = {".h", ".cc", ".cu", ".cuh", ".proto"}
# A schema is read as a table, so it may be long.
LINES_COUNTED = {".h", ".cc", ".cu", ".cuh", ".py"}
MAX_LINES = 500
# What a reader still sees at a glance.
MAX_FILES = 30

TEXTS = SOURCES | {".py", ".cmake", ".txt", ".md", ".prototxt", ".sh", ""}
TEXT_FOLDERS = [*ALLOWED, *BESIDE, "cmake", "configs", "deploy", "docs", "packaging", "tools"]
# In two pieces, or this file would break its own rule.
UNDONE = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")

# Spelling is American (docs/STYLE.md).
BRITISH = re.compile(
    r"(?i)(colo"
    r"ur|neighbo"
    r"ur|behavio"
    r"ur|cent"
    r"re|labell"
    r"(?:ed|ing)|judge"
    r"ment"
    r"|cancel"
    r"led|licen"
    r"ce|(?:serial|synchron|normal|vector|initial|optim|minim|maxim)is"
    r"(?:e|ing|ation))"
)

INCLUDE = re.compile(r'^\s*(?:#\s*include\s*[<"]([^>"]+)[>"]|import\s+(?:public\s+)?"([^"]+)")')


def files(root, folders, suffixes):
    """Files with one of the suffixes in the folders, as paths relative to the root."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts:
                yield path.relative_to(root).as_posix()


def lines_of(root, file):
    content = (root / file).read_bytes()
    return [] if b"\0" in content else content.decode("utf-8").splitlines()  # data has no lines


def room_of(file):
    return file.split("/")[0]


def includes(root, file):
    """(line number, included path) of everything of ours that a file includes or imports.

    A generated header stands for its schema. Ours is what is quoted, or in a folder named like a
    room; the rest are libraries.
    """
    for number, line in enumerate(lines_of(root, file), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        path = re.sub(r"\.pb\.h$", ".proto", match[1] or match[2])
        path = re.sub(
            r"^poseidon/", "include/poseidon/", path
        )  # as other people's programs have it
        quoted = '"' in line
        library = path.startswith("google/protobuf/")
        if room_of(path) in ALLOWED or (quoted and not library):
            yield number, path


def check_includes(root):
    for file in files(root, [*ALLOWED, *BESIDE], SOURCES):
        room = room_of(file)
        for number, path in includes(root, file):
            target = room_of(path)
            if not (root / path).is_file():
                yield f"{file}:{number}: no {path} in the source tree; include by path from the root"
            elif room in ALLOWED and target != room and target not in ALLOWED[room]:
                allowed = ", ".join(sorted(ALLOWED[room])) or "no other room"
                yield f"{file}:{number}: {room} must not include {path} ({room} may use: {allowed})"


def check_own_header(root):
    for file in files(root, ALLOWED, {".cc"}):
        header = file.removesuffix(".cc") + ".h"
        if not (root / header).is_file():
            continue
        number, first = next(
            (
                (number, match[1])
                for number, line in enumerate(lines_of(root, file), 1)
                if (match := INCLUDE.match(line))
            ),
            (1, "nothing"),
        )
        if first != header:
            yield f"{file}:{number}: includes {first} first; {header} would prove that it stands alone"


def check_pragma_once(root):
    for file in files(root, [*ALLOWED, *BESIDE], {".h", ".cuh"}):
        code = (line for line in lines_of(root, file) if line and not line.startswith("//"))
        if next(code, "") != "#pragma once":
            yield f"{file}:1: the first line after its comment is not #pragma once"


def find_circle(graph):
    """A circle of a graph {node: {neighbor: where}} as a list of nodes, or None."""
    done = set()
    for start in graph:
        path, stack = [], [(start, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                path.pop()
                done.add(node)
            elif node in path:
                return path[path.index(node) :]
            elif node not in done:
                path.append(node)
                stack.append((node, True))
                stack.extend((neighbor, False) for neighbor in graph.get(node, {}))
    return None


def folder_of(file):
    return file.rpartition("/")[0]


def check_circles(root):
    by_file, by_folder, by_room = {}, {}, {}
    for file in files(root, ALLOWED, SOURCES):
        for number, path in includes(root, file):
            where = f"{file}:{number}"
            by_file.setdefault(file, {}).setdefault(path, where)
            for part_of, graph in [(folder_of, by_folder), (room_of, by_room)]:
                if part_of(path) != part_of(file):
                    graph.setdefault(part_of(file), {}).setdefault(part_of(path), where)
    for kind, graph in [("files", by_file), ("folders", by_folder), ("rooms", by_room)]:
        circle = find_circle(graph)
        if circle:
            where = graph[circle[0]][circle[1 % len(circle)]]
            yield f"{where}: a circle of {kind}: {' -> '.join([*circle, circle[0]])}"


def check_folders(root):
    counts = {}
    for file in files(root, ALLOWED, LINES_COUNTED - {".py"}):
        counts[folder_of(file)] = counts.get(folder_of(file), 0) + 1
    for folder, count in counts.items():
        if count > MAX_FILES:
            yield f"{folder}: {count} sources and headers, over {MAX_FILES}; is there a room within it?"


def check_front_door(root):
    allowed = re.compile(r'\s*#include (<[a-z_]+>|<stdint\.h>|"poseidon/[a-z_]+\.h")')
    for file in files(root, ["include"], SOURCES):
        for number, line in enumerate(lines_of(root, file), 1):
            match = INCLUDE.match(line)
            if match and not allowed.fullmatch(line):
                yield (
                    f"{file}:{number}: include/ must not include {match[1] or match[2]}, only its "
                    "own headers and the standard library's"
                )


def check_lengths(root):
    for file in files(root, [*ALLOWED, *BESIDE], LINES_COUNTED):
        count = len(lines_of(root, file))
        if count > MAX_LINES:
            yield f"{file}:{count}: {count} lines, over {MAX_LINES}; split it by subject"


def check_images(root):
    """Keys, and what was built for this machine, stay out of images: .dockerignore, whose paths begin at the root."""
    if not (root / ".gitignore").is_file():
        return
    ignored = lines_of(root, ".gitignore")
    paths = [
        line.strip("/") if line.startswith("/") else f"**/{line.strip('/')}" for line in ignored
    ]
    file = root / ".dockerignore"
    kept_out = lines_of(root, ".dockerignore") if file.is_file() else []
    for path in [".git", *filter(None, paths)]:
        if path not in kept_out:
            yield f".dockerignore: lacks {path}, which an image would get (.gitignore)"


def check_tidy(root):
    if not (root / ".clang-tidy").is_file():
        return
    for number, line in enumerate(lines_of(root, ".clang-tidy"), 1):
        match = re.match(r"HeaderFilterRegex: '\(([^)]*)\)/", line)
        if not match:
            continue
        listed = set(match[1].split("|"))
        for folder in sorted(WITH_HEADERS - listed):
            yield f".clang-tidy:{number}: HeaderFilterRegex lacks {folder} (cmake/floors.txt)"
        for folder in sorted(listed - WITH_HEADERS):
            yield f".clang-tidy:{number}: HeaderFilterRegex has {folder}, which is no room"
        return
    yield ".clang-tidy: has no HeaderFilterRegex with a list of the rooms"


def check_undone(root):
    for file in files(root, TEXT_FOLDERS, TEXTS):
        for number, line in enumerate(lines_of(root, file), 1):
            match = UNDONE.search(line)
            if match:
                yield f"{file}:{number}: {match[0]}: do it, or open an issue"


def check_spelling(root):
    for file in files(root, TEXT_FOLDERS, TEXTS):
        for number, line in enumerate(lines_of(root, file), 1):
            match = BRITISH.search(line)
            if match:
                yield f"{file}:{number}: {match[0]}: spelling is American (docs/STYLE.md)"


CHECKS = [
    check_includes,
    check_own_header,
    check_pragma_once,
    check_circles,
    check_lengths,
    check_folders,
    check_images,
    check_tidy,
    check_undone,
    check_spelling,
    check_front_door,
]


def check(root, checks=CHECKS):
    return [violation for one in checks for violation in one(root)]


class HouseTest(unittest.TestCase):
    """Each test is a tree that breaks a rule once; what is found must be that and no more."""

    # Headers of these trees are as short as can be; one test is about their first line.
    OTHERS = [one for one in CHECKS if one is not check_pragma_once]

    def check(self, tree, checks=OTHERS):
        with tempfile.TemporaryDirectory() as folder:
            for file, text in tree.items():
                path = pathlib.Path(folder, file)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return check(pathlib.Path(folder), checks)

    def assert_one(self, tree, expected, checks=OTHERS):
        violations = self.check(tree, checks)
        self.assertEqual(len(violations), 1, violations)
        self.assertTrue(violations[0].startswith(expected), violations[0])

    def test_a_good_tree(self):
        self.assertEqual(
            self.check(
                {
                    "core/error.h": "#include <string>\n",
                    "core/error.cc": '#include "core/error.h"\n',
                    "proto/wire.proto": 'import "google/protobuf/any.proto";\nimport "proto/model.proto";\n',
                    "proto/model.proto": "",
                    "client/session.cc": '#include "client/session.h"\n#include "proto/wire.pb.h"\n'
                    "#include <torch/torch.h>\n",
                    "simulation/cluster.cc": '#include "client/session.h"\n#include "server/shard.h"\n',
                    "client/sync/syncer.h": '#include "core/error.h"\n',
                    "client/sessions.cc": '#include "client/sync/syncer.h"\n',
                    "client/session.h": "",
                    "server/shard.h": "",
                    "tests/unit/all_test.cc": '#include "client/session.h"\n#include "server/shard.h"\n',
                }
            ),
            [],
        )

    def test_upwards(self):
        self.assert_one(
            {"core/arithmetic/sum.h": '\n#include "proto/wire.pb.h"\n', "proto/wire.proto": ""},
            "core/arithmetic/sum.h:2: core must not include proto/wire.proto",
        )
        self.assert_one(
            {"proto/a.proto": 'import public "worker/b.proto";', "worker/b.proto": ""},
            "proto/a.proto:1: proto must not include worker/b.proto",
        )
        self.assert_one(
            {"planner/a.cc": "#  include <worker/b.h>", "worker/b.h": ""},
            "planner/a.cc:1: planner must not include worker/b.h",
        )

    def test_between_rooms_of_one_floor(self):
        for floor in FLOORS:
            for room in floor:
                for other in set(floor) - {room}:
                    self.assert_one(
                        {f"{room}/a.h": f'#include "{other}/b.h"', f"{other}/b.h": ""},
                        f"{room}/a.h:1: {room} must not include {other}/b.h",
                    )

    def test_a_room_uses_no_test(self):
        self.assert_one(
            {"core/a.cc": '#include "tests/b.h"', "tests/b.h": ""},
            "core/a.cc:1: core must not include tests/b.h",
        )

    def test_not_by_path_from_the_root(self):
        self.assert_one(
            {"core/b.cc": '#include "a.h"', "core/a.h": ""},
            "core/b.cc:1: no a.h in the source tree",
        )
        self.assert_one(
            {"tests/unit/a.cc": '#include "core/gone.h"'},
            "tests/unit/a.cc:1: no core/gone.h in the source tree",
        )

    def test_a_source_includes_its_own_header_first(self):
        header = {"core/a.h": "", "core/b.h": ""}
        self.assertEqual(
            self.check({**header, "core/a.cc": '// About it.\n\n#include "core/a.h"\n'}), []
        )
        self.assert_one(
            {**header, "core/a.cc": '#include "core/b.h"\n#include "core/a.h"\n'},
            "core/a.cc:1: includes core/b.h first; core/a.h would prove",
        )
        self.assert_one({**header, "core/a.cc": "\n#include <string>\n"}, "core/a.cc:2: includes")

    def test_a_header_begins_with_pragma_once(self):
        self.assertEqual(self.check({"core/a.h": "// About it.\n\n#pragma once\n"}, CHECKS), [])
        for text in ("", "int a;\n#pragma once\n", "// #pragma once\n"):
            self.assert_one({"core/a.h": text}, "core/a.h:1: the first line after", CHECKS)

    def test_circle_of_files(self):
        self.assert_one(
            {
                "core/a.h": '#include "core/b.h"',
                "core/b.h": '\n#include "core/c.h"',
                "core/c.h": '#include "core/b.h"',
            },
            "core/b.h:2: a circle of files: core/b.h -> core/c.h -> core/b.h",
        )
        self.assert_one(
            {"core/a.h": '#include "core/a.h"'},
            "core/a.h:1: a circle of files: core/a.h -> core/a.h",
        )

    def test_circle_of_folders(self):
        self.assert_one(
            {
                "client/session.h": '#include "client/sync/syncer.h"',
                "client/timer.h": "",
                "client/sync/lane.h": '#include "client/timer.h"',
                "client/sync/syncer.h": "",
            },
            "client/session.h:1: a circle of folders: client -> client/sync -> client",
        )

    def test_circle_of_rooms(self):
        violations = self.check(
            {
                "core/a.h": '#include "proto/b.h"',
                "core/c.h": "",
                "proto/b.h": "",
                "proto/d.h": '#include "core/c.h"',
            }
        )
        self.assertIn("core/a.h:1: a circle of rooms: core -> proto -> core", violations)

    def test_front_door(self):
        good = {
            "include/poseidon/error.h": "#include <string>\n",
            "include/poseidon/session.h": '#include "poseidon/error.h"\n',
            "core/error.h": '#include "poseidon/error.h"\n',
        }
        self.assertEqual(self.check(good), [])
        for header in ["zmq.hpp", "glog/logging.h", "unistd.h"]:
            self.assert_one(
                {"include/poseidon/a.h": f"\n#include <{header}>\n"},
                f"include/poseidon/a.h:2: include/ must not include {header}",
            )
        self.assert_one(
            {"core/a.cc": '#include "poseidon/gone.h"'},
            "core/a.cc:1: no include/poseidon/gone.h in the source tree",
        )

    def test_length(self):
        self.assertEqual(self.check({"core/a.h": "\n" * MAX_LINES}), [])
        self.assert_one(
            {"tests/unit/a.cc": "\n" * (MAX_LINES + 1)},
            f"tests/unit/a.cc:{MAX_LINES + 1}: {MAX_LINES + 1} lines",
        )

    def test_files_of_a_folder(self):
        tree = {f"core/a{number}.h": "" for number in range(MAX_FILES)}
        self.assertEqual(self.check({**tree, "core/codec/b.h": ""}), [])
        self.assert_one({**tree, "core/b.cc": ""}, f"core: {MAX_FILES + 1} sources and headers")

    def test_what_git_ignores_no_image_gets(self):
        tree = {".gitignore": "/keys/\n*.pyc\n", ".dockerignore": ".git\nkeys\n**/*.pyc\n"}
        self.assertEqual(self.check(tree), [])
        for line in (".git", "keys", "**/*.pyc"):
            lacking = tree[".dockerignore"].replace(f"{line}\n", "")
            self.assert_one({**tree, ".dockerignore": lacking}, f".dockerignore: lacks {line},")
        del tree[".dockerignore"]
        self.assertEqual(len(self.check(tree)), 3)

    def test_clang_tidy_looks_at_the_headers_of_each_room(self):
        listed = sorted(WITH_HEADERS)

        def tree(names):
            return {
                ".clang-tidy": f"Checks: '*'\nHeaderFilterRegex: '({'|'.join(names)})/.*\\.h$'\n"
            }

        self.assertEqual(self.check(tree(listed)), [])
        for name in listed:
            lacking = [other for other in listed if other != name]
            self.assert_one(tree(lacking), f".clang-tidy:2: HeaderFilterRegex lacks {name}")
        self.assert_one(tree([*listed, "attic"]), ".clang-tidy:2: HeaderFilterRegex has attic")
        self.assert_one({".clang-tidy": ""}, ".clang-tidy: has no HeaderFilterRegex")

    def test_undone(self):
        for word in ["TO" "DO", "FIX" "ME", "XX" "X"]:
            self.assert_one({"docs/a.md": f"\n\nsee {word}(me): more\n"}, f"docs/a.md:3: {word}")
        self.assertEqual(self.check({"docs/a.md": "mkstemp wants XX" "XXXX"}), [])

    def test_spelling(self):
        for word in [
            "Neighbo" "urs",
            "Recolo" "ured",
            "serialis" "es",
            "cent" "re",
            "cancell" "ed",
        ]:
            self.assertRegex(
                self.check({"docs/a.md": f"\nof {word}\n"})[0], "docs/a.md:2: .*American"
            )
        self.assertEqual(
            self.check({"docs/a.md": "Neighbors, a center, to optimize, optimism"}), []
        )


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        unittest.main(argv=sys.argv[:1])
    root = pathlib.Path(sys.argv[1])
    if not (root / "core").is_dir():
        sys.exit(f"{root} is not the source directory: it has no core/")
    violations = check(root)
    print("\n".join(violations) or "the house is in order")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
