"""Poseidon beside Gloo and OpenMPI on networks of this machine's own (namespaces, a bridge, tc
tbf).

    sudo python3 tests/bench/network/run.py [--part=link|all-reduce|stream|choice|all-to-all]
        [--quick]

Prints Markdown tables. The full run takes about nine minutes on two cores that do nothing else;
watch the processor's share. Needs root, ip and tc; without them it says so and ends with 77.
Systems whose programs are not built (libgloo-dev, libopenmpi-dev) are left out."""

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import time

import all_reduce
import all_to_all
import stream
import testbed

SKIPPED = 77
GIGABIT = 10**9
# Of each system the all-reduce first, then what other parts need of it.
PROGRAMS = {
    "Poseidon": (
        "bench_network_poseidon",
        "poseidon_scheduler",
        "poseidon_server",
        "poseidon_worker",
    ),
    "Gloo": ("bench_network_gloo", "bench_network_gloo_stream"),
    "OpenMPI": ("bench_network_mpi",),
}
REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))


def programs(directory):
    """{system: path of its all-reduce}, of those that are built."""
    found = {}
    for system, names in PROGRAMS.items():
        paths = [os.path.join(directory, name) for name in names]
        missing = [path for path in paths if not os.path.exists(path)]
        if missing:
            print(f"without {system}: there is no {missing[0]}")
        elif system == "OpenMPI" and shutil.which("mpirun") is None:
            print("without OpenMPI: there is no mpirun")
        else:
            found[system] = paths[0]
    if "Poseidon" not in found:
        sys.exit("build it first: cmake --build build --target all benchmarks")
    return found


def report_link(seconds):
    """What one TCP connection gets through a shaped link, by iperf3."""
    if shutil.which("iperf3") is None:
        print("without the link's goodput: there is no iperf3")
        return
    with testbed.Testbed(2, GIGABIT) as bed:
        server = bed.start(1, ["iperf3", "--server", "--one-off"], "server.log")
        time.sleep(0.5)  # it says nothing when it listens
        client = bed.start(
            0,
            ["iperf3", "--client", bed.addresses[1], "--time", str(seconds), "--json"],
            "client.log",
        )
        bed.wait([client, server], seconds + 20)
        with open(client.log, encoding="ascii") as file:
            received = json.load(file)["end"]["sum_received"]["bits_per_second"]
        print(
            f"\nOne connection at {GIGABIT / 1e9:g} Gb/s ({testbed.CONGESTION_CONTROL}, tbf with "
            f"a burst of {testbed.BURST_BYTES} bytes): goodput {received / 1e6:.0f} Mb/s",
            flush=True,
        )


def report_load():
    """How busy the machine is with other things."""
    before = testbed.busy_seconds()
    time.sleep(1)
    busy = testbed.busy_seconds() - before
    print(
        f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, of which others use "
        f"{busy:.2f} now",
        flush=True,
    )


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--bin", default=os.path.join(REPOSITORY, "build", "bin"), help="where the programs are"
    )
    parser.add_argument(
        "--part",
        choices=("link", "all-reduce", "stream", "choice", "all-to-all"),
        action="append",
        help="only this part; may be repeated",
    )
    parser.add_argument("--quick", action="store_true", help="does it work? Measures little")
    parser.add_argument("--rounds", type=int, help="turns that the systems take")
    parser.add_argument("--ranks", type=int, action="append", help="all-reduce: only so many ranks")
    parser.add_argument(
        "--details", action="store_true", help="all-reduce: every algorithm's medians"
    )
    options = parser.parse_args()
    options.part = options.part or ["link", "all-reduce", "stream"]
    return options


def run(options):
    """All parts."""
    report_load()
    if options.part == ["all-to-all"]:  # which needs none of the programs
        all_to_all.report(all_to_all.CASES[: 2 if options.quick else None], options.rounds or 10)
        return
    found = programs(options.bin)
    if options.quick:
        all_reduce.report(found, [(4, GIGABIT)], (64 * all_reduce.KIB, all_reduce.MIB), 1, False)
        stream.report(options.bin, "Gloo" in found, 3, 1, True)
        return
    if "link" in options.part:
        report_link(5)
    if "all-reduce" in options.part:
        shapes = [(ranks, rate) for rate in (GIGABIT, None) for ranks in options.ranks or (2, 4)]
        all_reduce.report(found, shapes, all_reduce.SIZES, options.rounds or 2, options.details)
    if "choice" in options.part:
        shapes = [(ranks, rate) for rate in (GIGABIT, None) for ranks in options.ranks or (4, 8)]
        all_reduce.report_choice(
            found["Poseidon"], shapes, all_reduce.CHOICE_SIZES, options.rounds or 5
        )
    if "all-to-all" in options.part:
        all_to_all.report(all_to_all.CASES, options.rounds or 10)
    if "stream" in options.part:
        stream.report(options.bin, "Gloo" in found, 12, options.rounds or 1, False)


def main():
    """The exit code."""
    # As exceptions, so that namespaces are removed; a shell's background jobs ignore Ctrl-C by
    # default.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run(parse())
    except testbed.Unavailable as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
