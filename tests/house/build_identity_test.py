"""What cmake/BuildIdentity.cmake makes: sources that differ have another identity, equal ones the same wherever
they lie, and where nothing has changed nothing is compiled anew.

  build_identity_test.py --cmake=PROGRAM
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = argparse.Namespace(cmake="cmake")

PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(identity VERSION 1.2.3 LANGUAGES NONE)
set(POSEIDON_ROOMS core worker)
include("{REPOSITORY}/cmake/BuildIdentity.cmake")
poseidon_build_identity(${{CMAKE_BINARY_DIR}}/identity.cc)
add_custom_target(all_of_it ALL DEPENDS ${{CMAKE_BINARY_DIR}}/identity.cc)
"""

TREE = {
    "CMakeLists.txt": PROJECT,
    "cmake/BuildIdentity.cmake": (REPOSITORY / "cmake/BuildIdentity.cmake").read_text("utf-8"),
    "core/CMakeLists.txt": "# a room\n",
    "core/deep/sum.cc": "float sum;\n",
    "core/deep/sum.h": "#pragma once\n",
    "worker/wire.proto": 'syntax = "proto3";\n',
    "python/poseidon_torch/__init__.py": "pass\n",
    # What programs are not made of.
    "docs/page.md": "a page\n",
    "tests/sum_test.cc": "int main() {}\n",
    "out/CMakeLists.txt": "# of somebody else\n",
}


class Tree:
    """A source tree, and its build."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder)
        for name, text in TREE.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    @property
    def made(self):
        return self.root / "build/identity.cc"

    def identity(self):
        build = self.root / "build"
        if not build.exists():
            self.run("-S", self.root, "-B", build)
        self.run("--build", build)
        return re.search(r'"(.*)"; }', self.made.read_text(encoding="utf-8"))[1]

    @staticmethod
    def run(*arguments):
        done = subprocess.run(
            [OPTIONS.cmake, *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


class BuildIdentityTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Tree(folder.name)

    def test_it_has_the_version_and_a_hash(self):
        self.assertRegex(self.tree.identity(), r"^1\.2\.3\+[0-9a-f]{12}$")

    def test_the_same_sources_have_the_same_one_elsewhere(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            self.assertEqual(self.tree.identity(), Tree(elsewhere).identity())

    def test_every_change_of_a_source_makes_another(self):
        identities = [self.tree.identity()]
        changed = [name for name in TREE if re.match(r"cmake/|core/|worker/|python/", name)]
        for name in changed:
            comment = "# changed\n" if name.endswith((".py", ".txt", ".cmake")) else "// changed\n"
            self.tree.write(name, TREE[name] + comment)
            identities.append(self.tree.identity())
        self.tree.write("worker/new.cc", "int added;\n")
        identities.append(self.tree.identity())
        self.assertEqual(len(set(identities)), len(changed) + 2, identities)

    def test_nothing_is_written_where_no_source_has_changed(self):
        before = self.tree.identity()
        written = self.tree.made.stat().st_mtime_ns
        for name in ("core/deep/sum.cc", "docs/page.md", "tests/sum_test.cc", "out/CMakeLists.txt"):
            (self.tree.root / name).touch()
        for name in ("docs/page.md", "tests/sum_test.cc", "out/CMakeLists.txt"):
            self.tree.write(name, TREE[name] + "\n")
        self.assertEqual(self.tree.identity(), before)
        self.assertEqual(self.tree.made.stat().st_mtime_ns, written)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--cmake", default=OPTIONS.cmake)
    _, rest = parser.parse_known_args(namespace=OPTIONS)
    unittest.main(argv=[sys.argv[0], *rest])
