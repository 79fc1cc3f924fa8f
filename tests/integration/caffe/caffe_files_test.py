"""CMake finds a BVLC Caffe wherever it was built or installed (cmake/CaffeFiles.cmake), and says what
is missing where it does not. The trees are made up: empty files at the places where Caffe's own build
has them."""

import os
import pathlib
import subprocess
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
FOUND = ["POSEIDON_CAFFE_INCLUDE", "POSEIDON_CAFFE_PROTO_INCLUDE", "POSEIDON_CAFFE_LIBRARY"]


class CaffeFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.script = self.write(
            "print.cmake",
            f'include("{REPOSITORY}/cmake/CaffeFiles.cmake")\n'
            + "".join(f'message("{name}=${{{name}}}")\n' for name in FOUND),
        )

    def write(self, name, text=""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def look(self, *definitions):
        done = subprocess.run(
            ["cmake", *definitions, "-P", self.script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stderr

    def assert_found(self, include, proto, library, *definitions):
        code, said = self.look(*definitions)
        self.assertEqual(code, 0, said)
        found = dict(line.split("=") for line in said.splitlines())
        self.assertEqual(
            [os.path.realpath(found[name]) for name in FOUND],
            [str(self.root / path) for path in (include, proto, library)],
        )

    def test_a_build_outside_the_sources(self):
        self.write("source/include/caffe/caffe.hpp")
        self.write("elsewhere/include/caffe/proto/caffe.pb.h")
        self.write("elsewhere/lib/libcaffe.so")
        self.write(
            "elsewhere/CMakeCache.txt", f"CMAKE_HOME_DIRECTORY:INTERNAL={self.root}/source\n"
        )
        self.assert_found(
            "source/include",
            "elsewhere/include",
            "elsewhere/lib/libcaffe.so",
            f"-DCaffe_DIR={self.root}/elsewhere",
        )

    def test_a_build_whose_config_names_the_headers(self):
        self.write("source/include/caffe/caffe.hpp")
        self.write("elsewhere/include/caffe/proto/caffe.pb.h")
        self.write("elsewhere/lib/libcaffe.so")
        for file, line in (
            ("CaffeConfig.cmake", 'set(Caffe_INCLUDE_DIRS "/usr/include;{}/source/include")'),
            (
                "CaffeTargets.cmake",
                '  INTERFACE_INCLUDE_DIRECTORIES "/usr/include;{}/source/include"',
            ),
        ):
            config = self.write(f"elsewhere/{file}", line.format(self.root) + "\n")
            self.assert_found(
                "source/include",
                "elsewhere/include",
                "elsewhere/lib/libcaffe.so",
                f"-DCaffe_DIR={self.root}/elsewhere",
            )
            config.unlink()

    def test_an_install(self):
        self.write("usr/include/caffe/caffe.hpp")
        self.write("usr/include/caffe/proto/caffe.pb.h")
        self.write("usr/lib/libcaffe.so")
        self.write("usr/share/Caffe/CaffeConfig.cmake")
        self.assert_found(
            "usr/include",
            "usr/include",
            "usr/lib/libcaffe.so",
            f"-DCaffe_DIR={self.root}/usr/share/Caffe",
        )
        self.assert_found(
            "usr/include",
            "usr/include",
            "usr/lib/libcaffe.so",
            f"-DPOSEIDON_CAFFE_ROOT={self.root}/usr",
        )

    def test_a_tree_built_in_place_by_make(self):
        self.write("caffe/include/caffe/caffe.hpp")
        self.write("caffe/.build_release/src/caffe/proto/caffe.pb.h")
        self.write("caffe/.build_release/lib/libcaffe.so")
        self.assert_found(
            "caffe/include",
            "caffe/.build_release/src",
            "caffe/.build_release/lib/libcaffe.so",
            f"-DPOSEIDON_CAFFE_ROOT={self.root}/caffe",
        )

    def test_what_is_missing_is_named_with_an_advice(self):
        self.write("source/include/caffe/caffe.hpp")
        self.write(
            "elsewhere/CMakeCache.txt", f"CMAKE_HOME_DIRECTORY:INTERNAL={self.root}/source\n"
        )
        code, said = self.look(f"-DCaffe_DIR={self.root}/elsewhere")
        self.assertNotEqual(code, 0)
        words = " ".join(said.split())
        self.assertIn("there is no caffe/proto/caffe.pb.h", words)
        self.assertIn("libcaffe.so (or say -DPOSEIDON_CAFFE_LIBRARY=FILE)", words)
        self.assertNotIn("no caffe/caffe.hpp", words)
        self.assertIn("has it run?", words)
        self.assertIn(f"{self.root}/source", words)


if __name__ == "__main__":
    unittest.main()
