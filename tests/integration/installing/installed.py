"""Poseidon as it is installed, for the tests of the install and of the packages: programs that are
built against it, first of all the examples that its headers open with.

An example is the code in a header's first comment: its lines are indented by three blanks more than
the prose, from the first #include on to the next prose.
"""

import os
import re
import subprocess

import cluster

# By header: in what its example is written.
HEADERS = {
    "communicator": "cc",
    "session": "cc",
    "rewound": "cc",
    "caffe_worker": "cc",
    "poseidon": "c",
}

CMAKE_PROJECT = """cmake_minimum_required(VERSION 3.22)
project(programs C CXX)
find_package(Poseidon 0.1 REQUIRED)
foreach(program {programs})
  file(GLOB source ${{program}}.c ${{program}}.cc)
  add_executable(${{program}} ${{source}})
  target_link_libraries(${{program}} PRIVATE Poseidon::poseidon)
endforeach()
"""

# Of who installs or makes packages: many an administrator has it.
STRICT_UMASK = 0o077

# Without libtorch, as a program brings its own arithmetic.
JOB = """name: "programs"
cluster {{ workers: {workers} servers: 1 join_deadline_seconds: 30 }}
communication {{ deterministic: true stall_deadline_seconds: 30 }}
training {{ trace: true }}
"""
RECOVERING_JOB = JOB + "recovery {{ mode: REPLACE }}\n"


def example_of(header):
    """The program that a header's first comment shows."""
    with open(header, encoding="utf-8") as file:
        comment = re.match(r"(?://.*\n)+", file.read())[0]
    lines = [line[2:] for line in comment.splitlines()]
    begin = next(i for i, line in enumerate(lines) if line.startswith("   #include"))
    prose = (i for i in range(begin, len(lines)) if re.match(r" \S", lines[i]))
    end = next(prose, len(lines))
    return "\n".join(line[3:] for line in lines[begin:end]).strip() + "\n"


def checked(command, seconds, **options):
    """What a command prints; AssertionError with it, and with its errors, if it fails."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=cluster.scaled(seconds),
        check=False,
        **options,
    )
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Installed:
    """A tree in which Poseidon is installed, and a folder for programs that use it."""

    def __init__(self, prefix, folder):
        self.prefix = prefix
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def file(self, name):
        return os.path.join(self.prefix, name)

    def library_directory(self):
        """lib, or Debian's lib/x86_64-linux-gnu."""
        for folder, _, files in os.walk(self.file("lib")):
            if "libposeidon.so" in files:
                return folder
        raise AssertionError(f"no libposeidon.so below {self.prefix}/lib")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def write_examples(self):
        """The examples of all headers, each as a program of its header's name."""
        for header, language in HEADERS.items():
            self.write(
                f"{header}.{language}", example_of(self.file(f"include/poseidon/{header}.h"))
            )

    def build_by_find_package(self, *programs):
        """Builds programs of the folder; returns where they are."""
        self.write("CMakeLists.txt", CMAKE_PROJECT.format(programs=" ".join(programs)))
        build = os.path.join(self.folder, "build")
        checked(
            [
                "cmake",
                "-S",
                self.folder,
                "-B",
                build,
                "-G",
                "Ninja",
                f"-DCMAKE_PREFIX_PATH={self.prefix}",
            ],
            120,
        )
        checked(["cmake", "--build", build], 300)
        return build

    def build_by_pkg_config(self, program):
        """Builds one program of the folder; returns its path."""
        folder = os.path.join(self.library_directory(), "pkgconfig")

        def said(*asked):
            return checked(
                ["pkg-config", *asked, "poseidon"],
                60,
                env={**os.environ, "PKG_CONFIG_PATH": folder},
            ).split()

        # As docs/programs.md has it for a prefix where the loader does not look.
        (library,) = said("--variable=libdir")
        out = os.path.join(self.folder, f"{program}_by_pkg_config")
        checked(
            [
                "c++",
                "-std=c++20",
                "-Wall",
                "-Wextra",
                "-Wshadow",
                "-Werror",
                os.path.join(self.folder, f"{program}.cc"),
                "-o",
                out,
                *said("--cflags", "--libs"),
                f"-Wl,-rpath,{library}",
            ],
            300,
        )
        return out


class InstalledTest(cluster.ClusterTest):
    """Base of tests that run what is installed; setUpClass makes `installed`."""

    installed = None

    def run_program(self, program, *arguments, workers=2, job=JOB):
        """`poseidon run -- PROGRAM` of the installed command in the test's directory, which is no
        repository; returns summary.json."""
        path = self.write("job.prototxt", job.format(workers=workers))
        run = self.spawn(
            "run",
            [
                self.installed.file("bin/poseidon"),
                "run",
                f"--config={path}",
                f"--out={self.path('out')}",
                "--",
                program,
                *arguments,
            ],
        )
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assert_nothing_left()
        return self.read_json("out/summary.json")

    def check_communicator(self, program):
        """Two ranks of the example print the sum of what both have."""
        first, second = cluster.free_port_pair(), cluster.free_port_pair()
        while second == first:
            second = cluster.free_port_pair()
        endpoints = [f"127.0.0.1:{first}", f"127.0.0.1:{second}"]
        ranks = [self.spawn(f"rank-{rank}", [program, str(rank), *endpoints]) for rank in range(2)]
        for rank in ranks:
            self.assertEqual(rank.wait(), cluster.SUCCESS)
            self.assertEqual(rank.output(), "3\n")

    def check_training(self, program, iterations, job=JOB):
        """Two workers of an example learn what there is to learn, and end with the same bits."""
        summary = self.run_program(program, job=job)
        self.assert_same_parameters(summary, 2)
        self.assertEqual(summary["iterations"], iterations)
        self.assertLess(summary["loss"][-1], 1e-3)
        for rank in range(2):
            self.assertTrue(self.read_json(f"out/worker-{rank}.trace.json")["traceEvents"])
