"""Keeps docs/ true: what they list is what the sources have.

  docs_test.py SOURCE_DIR

Job config fields with types and defaults, exit codes, messages of the wire, summary's keys, verbs and
daemons' flags, and links to files. Also that no line of prose, of pages and of configs, is too wide to read.
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path()


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def without_comments(source):
    return re.sub(r"//.*", "", source)


def block(source, opening):
    """The text between the braces that follow `opening`."""
    begin = source.index("{", source.index(opening)) + 1
    depth = 1
    for end in range(begin, len(source)):
        depth += {"{": 1, "}": -1}.get(source[end], 0)
        if depth == 0:
            return source[begin:end]
    raise ValueError(f"{opening} has no end")


def rows(markdown):
    """Cells of all table rows, the heading and its line included."""
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        for line in markdown.splitlines()
        if line.startswith("|")
    ]


def pages():
    """All that is written for readers."""
    names = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/golden/README.md"]
    return [
        *(ROOT / name for name in names),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "configs").rglob("*.md")),
    ]


def prose(markdown):
    """(number, line) of what is neither a row of a table, nor code, nor a link's definition."""
    fenced, indented, after_blank = False, False, True
    for number, line in enumerate(markdown.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        # Indented lines behind an empty one are code, up to the next that is indented less.
        indented = line.startswith("    ") and (indented or after_blank)
        after_blank = not line.strip()
        if not (fenced or indented or re.match(r"\s*\||\[[^\]]+\]: |```", line)):
            yield number, line


def prose_of_config(prototxt):
    """(number, line) of what ends with a comment, or has nothing but a text and its field's name."""
    text = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\''
    for number, line in enumerate(prototxt.splitlines(), 1):
        code = re.sub(text, '""', line)
        if "#" in code or re.fullmatch(r'\s*(\w+:\s*)?""\s*', code):
            yield number, line


class JobConfig(unittest.TestCase):
    FIELD = re.compile(
        r"(optional|repeated)\s+([\w.]+)\s+(\w+)\s*=\s*\d+(?:\s*\[default = ([^\]]+)\])?;"
    )

    def test_every_field_is_documented_with_type_and_default(self):
        schema = without_comments(text_of("proto/job.proto"))
        sections = dict(
            re.findall(r"^## (\w+)$(.*?)(?=^## |\Z)", text_of("docs/configuration.md"), re.M | re.S)
        )
        messages = re.findall(r"^message (\w+)", schema, re.M)
        self.assertEqual(list(sections), messages)
        for message in messages:
            fields = {}
            for label, kind, name, default in self.FIELD.findall(
                block(schema, f"message {message} ")
            ):
                repeated = ", repeated" if label == "repeated" else ""
                fields[f"`{name}`"] = (kind + repeated, default)
            documented = {
                row[0]: (row[1], row[2])
                for row in rows(sections[message])
                if row[0].startswith("`")
            }
            self.assertTrue(fields, message)
            for name, (kind, default) in fields.items():
                self.assertIn(name, documented, message)
                self.assertEqual(documented[name][0], kind, name)
                # A string without default is empty; the page may show that.
                self.assertIn(documented[name][1], {default, default or '""'}, name)
            self.assertLessEqual(documented.keys(), fields.keys(), message)

    def test_every_value_of_an_enum_is_documented(self):
        schema = without_comments(text_of("proto/job.proto"))
        page = text_of("docs/configuration.md")
        for enum in re.findall(r"enum (\w+)", schema):
            for value in re.findall(r"(\w+) = \d+;", block(schema, f"enum {enum} ")):
                self.assertIn(f"`{value}`:", page)


class DataCommands(unittest.TestCase):
    """The command that makes the digits is the same wherever it stands."""

    @staticmethod
    def command(text):
        """The flags of the first `convert csv` of a text, in one line."""
        text = text.replace('"$configs/data/digits.csv"', "configs/data/digits.csv")
        text = re.sub(r'\\\n|"\s*\n\s*"', " ", text)
        flags = re.search(r"convert csv((?: +--[\w=./]+)+)", text).group(1).split()
        return sorted(set(flags) - {"--replace"})

    def test_is_the_demos(self):
        demos = self.command(text_of("tools/train_digits"))
        self.assertGreater(len(demos), 4)
        for path in ["configs/lenet_digits.prototxt", "configs/data/README.md"]:
            self.assertEqual(self.command(text_of(path)), demos, path)


class ExperimentFile(unittest.TestCase):
    def test_every_field_is_documented_with_type_and_default(self):
        schema = without_comments(text_of("proto/experiment.proto"))
        page = text_of("docs/experiments.md")
        sections = dict(re.findall(r"^### (\w+)$(.*?)(?=^##|\Z)", page, re.M | re.S))
        for message in re.findall(r"^message (\w+)", schema, re.M):
            fields = {
                (f"`{name}`", kind + (", repeated" if label == "repeated" else ""), default)
                for label, kind, name, default in JobConfig.FIELD.findall(
                    block(schema, f"message {message} ")
                )
            }
            documented = {
                tuple(row[:3])
                for row in rows(sections[message])
                if row[0].startswith("`") and len(row) == 4
            }
            self.assertTrue(fields, message)
            self.assertEqual(documented, fields, message)

    def test_every_column_of_the_results_is_documented(self):
        source = text_of("experiments/result_columns.h")
        known = re.findall(r'"(\w+)"', source[source.index("kResultColumns[]") :])
        page = text_of("docs/experiments.md")
        section = page[page.index("### results.csv") : page.index("## The experiment file")]
        columns = [name for row in rows(section) for name in re.findall(r"`(\w+)`", row[0])]
        self.assertEqual(columns and set(columns), set(known))


class Messages(unittest.TestCase):
    def test_every_exit_code_is_documented(self):
        codes = re.findall(r"(k\w+) = (\d+)", without_comments(text_of("include/poseidon/error.h")))
        table = {(row[1].strip("`"), row[0]) for row in rows(text_of("docs/errors.md"))}
        self.assertTrue(codes)
        self.assertLessEqual(set(codes), table)

    def test_every_kind_that_crosses_the_wire_is_documented(self):
        kinds = re.findall(
            r"k(\w+) = (\d+)",
            block(without_comments(text_of("transport/envelope.h")), "enum class MessageKind"),
        )
        table = {
            (row[0].strip("`").replace(" ", ""), row[1])
            for row in rows(text_of("docs/protocol.md"))
            if len(row) == 5
        }
        # Numbers from 50 on stay within a node; 0 is none.
        wire = {(name.lower(), number) for name, number in kinds if 0 < int(number) < 50}
        self.assertGreater(len(wire), 10)
        self.assertEqual(wire, {(name, number) for name, number in table if number.isdigit()})


class Running(unittest.TestCase):
    def test_every_key_of_the_summary_is_documented(self):
        source = text_of("scheduler/report/job_report.cc")
        json = source[source.index("JobReport::Json") :]
        keys = set(re.findall(r'json\["(\w+)"\]', json)) | set(re.findall(r'{"(\w+)", ', json))
        page = text_of("docs/running.md")
        words = set(
            re.findall(r"[\w]+", page[page.index("## summary.json") : page.index("## On several")])
        )
        self.assertGreater(len(keys), 10)
        self.assertLessEqual(keys, words)

    def test_every_flag_of_the_daemons_is_documented(self):
        page = text_of("docs/running.md")
        for main in [
            "cli/scheduler_main.cc",
            "server/server_main.cc",
            "worker/worker_main.cc",
        ]:
            for flag in re.findall(r"DEFINE_\w+\((\w+)", text_of(main)):
                self.assertIn(f"`--{flag}`", page, main)


class CaffeLayers(unittest.TestCase):
    ENTRY = re.compile(
        r'^    (?:\{\.name = |(Neuron|Loss|Refused)\()"(\w+)"(.*?)(?=^    [{NLR]|^\};)', re.M | re.S
    )

    def setUp(self):
        source = text_of("caffe_adapter/net/layer_types.cc")
        self.entries = self.ENTRY.findall(source[source.index("kLayerTypes[]") :])
        self.sections = dict(
            re.findall(r"^## (\w+)$(.*?)(?=^## |\Z)", text_of("docs/caffe_layers.md"), re.M | re.S)
        )

    def test_every_layer_type_is_documented(self):
        for section, refused in [("Supported", False), ("Refused", True)]:
            expected = [name for kind, name, _ in self.entries if (kind == "Refused") == refused]
            listed = [row[0].strip("`") for row in rows(self.sections[section])[2:]]
            self.assertGreater(len(expected), 1)
            self.assertEqual(listed, expected)

    def test_what_may_work_in_place_is_documented(self):
        listed = [row[0].strip("`") for row in rows(self.sections["Supported"]) if row[1] == "yes"]
        self.assertEqual(
            listed,
            [
                name
                for kind, name, rest in self.entries
                if kind == "Neuron" or ".in_place = true" in rest
            ],
        )


class Architecture(unittest.TestCase):
    def test_the_rooms_stand_on_their_floors(self):
        floors = [
            line.split()
            for line in text_of("cmake/floors.txt").splitlines()
            if line and not line.startswith("#")
        ]
        table = [
            (row[0], row[1].strip("`/"))
            for row in rows(text_of("docs/architecture.md"))
            if row[0].isdigit()
        ]
        self.assertEqual(
            sorted(table),
            sorted((str(height), room) for height, floor in enumerate(floors, 1) for room in floor),
        )


class Links(unittest.TestCase):
    LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
    ROOMS = (pathlib.Path(__file__).resolve().parents[2] / "cmake" / "floors.txt").read_text(
        encoding="utf-8"
    )
    PATH = re.compile(
        r"(?<![\w./-])(?:docs|configs|cmake|tests|tools|"
        + "|".join(re.findall(r"\b[a-z_]+\b", re.sub(r"#.*", "", ROOMS)))
        + r")/[\w/.-]*\w"
    )

    def test_links_lead_to_files(self):
        for page in pages():
            for link in self.LINK.findall(page.read_text(encoding="utf-8")):
                if not link.startswith("http"):
                    self.assertTrue((page.parent / link).exists(), f"{page}: {link}")

    def test_links_lead_to_headings(self):
        for page in pages():
            for file, anchor in re.findall(
                r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")
            ):
                target = page.parent / file if file else page
                headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
                anchors = {
                    re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
                    for heading in headings
                }
                self.assertIn(anchor, anchors, f"{page}: {file}#{anchor}")

    def test_paths_that_are_named_exist(self):
        for page in pages():
            text = re.sub(
                r"`[^`\n]*=[^`\n]*`|out/\S*|configs/nets/\S*", "", page.read_text(encoding="utf-8")
            )
            for path in self.PATH.findall(text):
                # A file, a folder, or a name without its extension: planner/cost/cost_model.*
                found = (ROOT / path).exists() or any(ROOT.glob(path + ".*"))
                # The way of a gradient names rooms and their parts.
                part = any(ROOT.glob(path + "*"))
                self.assertTrue(found or part, f"{page}: {path}")


class ReadMe(unittest.TestCase):
    """Whoever begins there finds everything."""

    def test_every_page_is_linked(self):
        linked = set(re.findall(r"\]\((docs/\w+\.md)\)", text_of("README.md")))
        there = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
        self.assertEqual(there - linked, set())

    def test_its_program_is_that_of_the_header(self):
        """integration.install builds and runs the header's."""

        def program(path, prefix):
            lines = re.findall(f"^{prefix}(.*)$", text_of(path), re.M)
            begin = lines.index("#include <poseidon/session.h>")
            return lines[begin : lines.index("}", begin) + 1]

        of_header = program("include/poseidon/session.h", "//(?:   )?")
        self.assertGreater(len(of_header), 10)
        self.assertEqual(program("README.md", "(?:    )?"), of_header)

    def test_every_verb_is_listed(self):
        verbs = re.findall(r'^    \.name = "([\w ]+)",', text_of("cli/verbs.cc"), re.M)
        self.assertGreater(len(verbs), 10)
        first_cells = " ".join(row[0] for row in rows(text_of("README.md")))
        for verb in verbs:
            # What a verb of several words makes, as in `convert csv`, may be told in its row.
            self.assertRegex(first_cells, f"`{verb}`|`{verb.split()[0]}`")


class Layout(unittest.TestCase):
    def assert_not_wide(self, paths, prose_of):
        wide = [
            f"{path.relative_to(ROOT)}:{number}: {len(line)} columns"
            for path in paths
            for number, line in prose_of(path.read_text(encoding="utf-8"))
            if len(line) > 120
        ]
        if wide:
            self.fail("\n" + "\n".join(wide))

    def test_prose_is_at_most_120_columns_wide(self):
        self.assert_not_wide(pages(), prose)

    def test_comments_and_texts_of_configs_are_at_most_120_columns_wide(self):
        self.assert_not_wide(sorted((ROOT / "configs").rglob("*.prototxt")), prose_of_config)

    def test_what_counts_as_prose(self):
        page = (
            "text\n| row |\n\n    code\n\n    code\nmore\n- item\n    of it\n\n"
            "```\ncode\n```\n[a]: b\n"
        )
        lines = [line for _, line in prose(page) if line]
        self.assertEqual(lines, ["text", "more", "- item", "    of it"])

    def test_what_counts_as_prose_of_a_config(self):
        config = (
            '# comment\nabout: "a # b"\n  "more \\" text"\nnet { }  # why\n'
            'net { name: "# none" }\nworkers: 2\n'
        )
        numbers = [number for number, _ in prose_of_config(config)]
        self.assertEqual(numbers, [1, 2, 3, 4])


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv.pop(1))
    unittest.main()
