"""The check of headers (cmake/HeaderCheck.cmake) finds what it is for: a project of three headers, of which
one does not compile alone and one may not be included twice, is refused for these two.

  header_check_test.py --cmake=PROGRAM --compiler=PROGRAM
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = argparse.Namespace(cmake="cmake", compiler="c++")

PROJECT = f"""cmake_minimum_required(VERSION 3.22)
project(headers LANGUAGES CXX)
include({REPOSITORY}/cmake/HeaderCheck.cmake)
poseidon_headers_without_source(headers ${{CMAKE_SOURCE_DIR}} room)
message(STATUS "checked: ${{headers}}")
poseidon_header_check(header_check ROOT ${{CMAKE_SOURCE_DIR}} HEADERS ${{headers}})
"""

TREE = {
    "CMakeLists.txt": PROJECT,
    # What comes before in one source must not help those that come behind.
    "room/good.h": "#pragma once\n#include <string>\nstruct Good {};\n",
    "room/inner/needs_another.h": "#pragma once\ninline std::string Name() { return {}; }\n",
    "room/twice.h": "struct Twice {};\n",
    "room/has_source.h": "#pragma once\nunknown is_proved_elsewhere;\n",
    "room/has_source.cc": '#include "room/has_source.h"\n',
}


class HeaderCheckTest(unittest.TestCase):
    def run_cmake(self, *arguments):
        return subprocess.run(
            [OPTIONS.cmake, *arguments], capture_output=True, text=True, check=False
        )

    def test_finds_what_does_not_stand_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in TREE.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            configured = self.run_cmake(
                "-S",
                folder,
                "-B",
                f"{folder}/build",
                "-G",
                "Ninja",
                "-DCMAKE_UNITY_BUILD=ON",
                f"-DCMAKE_CXX_COMPILER={OPTIONS.compiler}",
            )
            self.assertEqual(configured.returncode, 0, configured.stderr)
            self.assertIn(
                "checked: room/good.h;room/inner/needs_another.h;room/twice.h", configured.stdout
            )
            built = self.run_cmake(
                "--build", f"{folder}/build", "--target", "header_check", "--", "-k", "0"
            )
            self.assertNotEqual(built.returncode, 0)
            failed = {
                line.strip().rpartition("header_check/")[2].removesuffix(".cc.o")
                for line in built.stdout.splitlines()
                if line.startswith("FAILED: ")
            }
            self.assertEqual(failed, {"room/inner/needs_another.h", "room/twice.h"}, built.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--cmake", default=OPTIONS.cmake)
    parser.add_argument("--compiler", default=OPTIONS.compiler)
    _, rest = parser.parse_known_args(namespace=OPTIONS)
    unittest.main(argv=[sys.argv[0], *rest])
