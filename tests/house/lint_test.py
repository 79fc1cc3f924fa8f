"""tools/lint: which sources it looks at again, with which arguments, and what it finds in groups. And that
tools/setup installs what it and others of tools/ run.

lint_test.py SOURCE_DIR
"""

import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path()


def load():
    sys.dont_write_bytecode = True  # the sources stay as they are
    loader = importlib.machinery.SourceFileLoader("lint", str(ROOT / "tools" / "lint"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("lint", loader))
    loader.exec_module(module)
    return module


class Tree(unittest.TestCase):
    """A small tree of sources instead of the project's."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.lint = load()
        self.lint.ROOT = pathlib.Path(folder.name)
        self.lint.CACHE = self.lint.ROOT / "cache"
        self.lint.CACHE.mkdir()
        for name, text in {
            ".clang-tidy": "Checks: '-*'",
            "tests/.clang-tidy": "InheritParentConfig: true",
            "core/a.cc": '#include "core/a.h"\n#include "proto/job.pb.h"\n',
            "core/a.h": '#include "core/b.h"\n',
            "core/b.h": "",
            "core/other.cc": "",
            "proto/job.proto": "",
        }.items():
            self.write(name, text)
        self.commands = {"core/a.cc": ["c++", "core/a.cc"], "core/other.cc": ["c++"]}

    def write(self, name, text):
        path = self.lint.ROOT / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


class Known(Tree):
    def key(self):
        return self.lint.Tidy(self.commands).key("core/a.cc")

    def test_a_source_is_looked_at_again_when_something_that_it_depends_on_changes(self):
        for name in [
            "core/a.cc",
            "core/b.h",
            "proto/job.proto",
            ".clang-tidy",
            "tests/.clang-tidy",
        ]:
            before = self.key()
            self.assertEqual(self.key(), before)
            path = self.lint.ROOT / name
            self.write(name, path.read_text(encoding="utf-8") + "\n# changed\n")
            self.assertNotEqual(self.key(), before, name)
        before = self.key()
        self.write("core/other.cc", "int x;\n")
        self.assertEqual(self.key(), before)
        self.commands["core/a.cc"].append("-DX")
        self.assertNotEqual(self.key(), before)

    def test_a_source_that_was_found_clean_is_known(self):
        tidy = self.lint.Tidy(self.commands)
        self.assertFalse(tidy.is_known("core/a.cc"))
        self.write("cache/core__a.cc.clean", tidy.key("core/a.cc"))
        self.assertTrue(tidy.is_known("core/a.cc"))

    def test_changed_sources_and_users_of_changed_headers_come_first(self):
        tidy = self.lint.Tidy(self.commands)
        self.assertEqual(tidy.in_order({"core/b.h"}), (["core/a.cc"], ["core/other.cc"]))
        self.assertEqual(tidy.in_order({"core/other.cc"}), (["core/other.cc"], ["core/a.cc"]))
        self.assertEqual(tidy.in_order({"README.md"})[0], [])

    def test_sources_that_are_compiled_together_are_looked_at_alone(self):
        together = self.lint.ROOT / "Unity" / "unity_0.cxx"
        self.write("Unity/unity_0.cxx", '/* 1 */\n#include "/x/a.cc"\n\n#include "/x/b.cc"\n')
        self.assertEqual(self.lint.sources_of(str(together)), ["/x/a.cc", "/x/b.cc"])
        self.assertEqual(self.lint.sources_of("/x/a.cc"), ["/x/a.cc"])

    def test_nothing_is_looked_at_after_the_deadline(self):
        self.assertIsNone(self.lint.Tidy(self.commands).look_at("core/a.cc", 0))

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_where_git_refuses_its_words_are_said(self):
        """As in a tree of another user's; without names the programs would read standard input."""
        with mock.patch.dict(os.environ, GIT_DIR="nowhere"):
            with self.assertRaisesRegex(SystemExit, "not a git repository: 'nowhere'"):
                self.lint.sources()


class ShellScripts(unittest.TestCase):
    def test_those_of_packages_are_among_them(self):
        paths = ["packaging/make_manual", "packaging/bash_completion", "packaging/symbols.map"]
        paths += ["deploy/kubernetes/node.sh", "tools/demo", "tools/lint", ".ci/run", "README.md"]
        self.assertEqual(
            sorted(load().shell_scripts(paths)),
            sorted({*paths} - {"packaging/symbols.map", "tools/lint", "README.md"}),
        )


@unittest.skipUnless(shutil.which("clang-tidy"), "clang-tidy is not installed")
class Together(Tree):
    """Sources that clang-tidy looks at together, with the project's own .clang-tidy."""

    MISTAKES = {
        "bugprone-integer-division": "double Half(int a) { return a / 2; }\n",
        "clang-analyzer-core.NullDereference": "int Null(int* p) { return p ? 1 : *p; }\n",
        "misc-unused-using-decls": "namespace a { class B; }\nusing a::B;\n",
        "misc-unused-alias-decls": "namespace a {}\nnamespace b = a;\n",
    }

    def setUp(self):
        super().setUp()
        self.lint.BUILD = self.lint.ROOT
        for name in [".clang-tidy", "tests/.clang-tidy"]:
            self.write(name, (ROOT / name).read_text(encoding="utf-8"))

    def look_at(self, **texts):
        """{source without folder and ending: what is found}"""
        commands = {}
        for name, text in texts.items():
            path = f"core/{name}.cc"
            self.write(path, text)
            commands[path] = ["c++", "-std=c++20", "-c", str(self.lint.ROOT / path)]
        self.lint.write_database(
            self.lint.CACHE,
            {arguments[-1]: arguments for arguments in commands.values()},
        )
        self.tidy = self.lint.Tidy(commands)
        ((*group,),) = self.tidy.groups(commands)
        found = self.tidy.look_at_together(group)
        return {pathlib.PurePath(path).stem: text for path, text in found.items()}

    def known(self, *names):
        return [name for name in names if self.tidy.is_known(f"core/{name}.cc")]

    def test_each_mistake_is_named_and_the_sources_beside_it_are_clean(self):
        for check, text in self.MISTAKES.items():
            with self.subTest(check):
                found = self.look_at(a="int a;\n", b=text, c="int c;\n")
                self.assertIn(check, found["b"])
                self.assertEqual((found["a"], found["c"]), ("", ""))
                self.assertEqual(self.known("a", "b", "c"), ["a", "c"])

    def test_sources_that_use_one_name_for_two_things_are_looked_at_apart(self):
        found = self.look_at(
            a="static int x;\n",
            b="static double x;\n" + self.MISTAKES["bugprone-integer-division"],
            c="static char x;\n",
            d="int d;\n",
        )
        self.assertIn("bugprone-integer-division", found["b"])
        self.assertEqual(self.known("a", "b", "c", "d"), ["a", "c", "d"])

    def test_a_mistake_in_a_header_is_found(self):
        self.write("core/h.h", "#pragma once\n" + self.MISTAKES["bugprone-integer-division"])
        header = f'#include "{self.lint.ROOT}/core/h.h"\n'
        found = self.look_at(a=header, b=header, c="int c;\n")
        self.assertIn("core/h.h:2:", found["a"])
        self.assertIn("core/h.h:2:", found["b"])
        self.assertEqual(found["c"], "")


class Arguments(unittest.TestCase):
    def test_precompiled_headers_are_gccs_alone(self):
        arguments = "c++ -include x/cmake_pch.hxx -Winvalid-pch -Werror -O3 -c a.cc".split()
        self.assertEqual(
            load().for_clang(arguments),
            ["c++", "-Wno-unknown-warning-option", "-O3", "-c", "a.cc"],
        )


class Setup(unittest.TestCase):
    """What tools/setup installs on a machine that has nothing."""

    def packages(self, *flags):
        with tempfile.TemporaryDirectory() as folder:
            installed = pathlib.Path(folder, "installed")
            for name, does in {
                "dpkg-query": "exit 1",
                "apt-get": f'echo "$@" >> {installed}',
                "sudo": 'exec "$@"',
            }.items():
                program = pathlib.Path(folder, name)
                program.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
                program.chmod(0o755)
            subprocess.run(
                [ROOT / "tools" / "setup", *flags],
                env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
                stdout=subprocess.DEVNULL,
                check=True,
            )
            return set(installed.read_text(encoding="utf-8").split())

    def test_all_that_lint_runs_is_installed(self):
        self.assertLessEqual(set(load().PROGRAMS), self.packages("--lint"))

    def test_an_environment_can_be_made_for_the_wheel(self):
        self.assertIn("python3-venv", self.packages())


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
