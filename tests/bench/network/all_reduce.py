"""All-reduce by Poseidon, Gloo and OpenMPI, in turns on one testbed; every system with each of its
algorithms."""

import json
import os
import statistics

import testbed

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)

# Around where the automatic choice changes from halving and doubling to the ring.
CHOICE_SIZES = (16 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB)

# Names as the programs know them, with what to call them.
POSEIDON = {"automatic": "automatic", "ring": "ring", "halving_doubling": "halving-doubling"}
GLOO = {
    "ring": "ring",
    "ring_chunked": "ring_chunked",
    "halving_doubling": "halving_doubling",
    "new_ring": "allreduce(RING)",
    "new_bcube": "allreduce(BCUBE)",
}
# By the numbers of coll_tuned_allreduce_algorithm; without 1, linear, which nobody would use.
OPENMPI = {
    "automatic": "automatic",
    "2": "nonoverlapping",
    "3": "recursive doubling",
    "4": "ring",
    "5": "segmented ring",
    "6": "Rabenseifner",
}
SYSTEMS = {"Poseidon": POSEIDON, "Gloo": GLOO, "OpenMPI": OPENMPI}

# Of the first round's algorithms those that were slower than their system's best by more than this
# are not measured again at that size, but for the automatic choice.
HOPELESS = 1.1
# Those that send a whole buffer in each step are not measured at all beyond this size, where others
# need half or a quarter of the bytes: (system, algorithm).
WASTEFUL = {("Gloo", "ring"), ("OpenMPI", "2"), ("OpenMPI", "3")}
WASTEFUL_SIZE = 4 * MIB
# What a round spends on one algorithm at one size; a call that takes longer is done MINIMUM_CALLS
# times.
CELL_SECONDS = 0.25
MINIMUM_CALLS = 2
MAXIMUM_CALLS = 200
DEADLINE = 120
# To guess the number of calls without a shaped link: what two cores that do everything pass on.
UNSHAPED_BYTES_PER_SECOND = 5e8
CALL_SECONDS = 3e-4


def wire_seconds(ranks, size, bits_per_second):
    """The least that an all-reduce's payload takes on links of this rate."""
    return 2 * (ranks - 1) / ranks * size * 8 / bits_per_second


def human(size):
    """ "4 MiB"."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


class Runner:
    """Starts the ranks of one system on a testbed."""

    def __init__(self, programs, bed):
        self._programs = programs
        self._bed = bed
        self._ranks = len(bed.addresses)
        self._runs = 0

    def run(self, system, cells):
        """cells: (algorithm, bytes, untimed calls, timed calls). Returns {(algorithm, bytes):
        (seconds of every call on rank 0, processor seconds of all ranks)}."""
        self._runs += 1
        files = self._bed.path(f"{system}-{self._runs}-")
        text = ",".join(":".join(map(str, cell)) for cell in cells)
        start = {
            "Poseidon": self._start_poseidon,
            "Gloo": self._start_gloo,
            "OpenMPI": self._start_openmpi,
        }[system]
        self._bed.wait(start(f"--cells={text}", files), DEADLINE)
        results = []
        for rank in range(self._ranks):
            with open(f"{files}{rank}", encoding="ascii") as file:
                results.append(json.load(file))
        return {
            (of_ranks[0]["algorithm"], of_ranks[0]["bytes"]): (
                of_ranks[0]["seconds"],
                sum(one["cpu_seconds"] for one in of_ranks),
            )
            for of_ranks in zip(*results)
        }

    def _start_poseidon(self, cells, files):
        endpoints = ",".join(f"{address}:5000" for address in self._bed.addresses)
        return [
            self._bed.start(
                rank,
                [
                    self._programs["Poseidon"],
                    cells,
                    f"--out={files}{rank}",
                    f"--rank={rank}",
                    f"--endpoints={endpoints}",
                ],
                f"rank-{rank}.log",
            )
            for rank in range(self._ranks)
        ]

    def _start_gloo(self, cells, files):
        store = self._bed.path(f"store-{self._runs}")
        os.mkdir(store)
        return [
            self._bed.start(
                rank,
                [
                    self._programs["Gloo"],
                    cells,
                    f"--out={files}{rank}",
                    f"--rank={rank}",
                    f"--ranks={self._ranks}",
                    f"--host={address}",
                    f"--store={store}",
                ],
                f"rank-{rank}.log",
            )
            for rank, address in enumerate(self._bed.addresses)
        ]

    def _start_openmpi(self, cells, files):
        """mpirun in the first namespace; each of the others is a machine to it, which it enters by
        the script that stands in for ssh."""
        agent = self._bed.path("agent")
        with open(agent, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nhost=$1\nshift\ncase $host in\n")
            for rank, address in enumerate(self._bed.addresses):
                file.write(f'{address}) set -- {self._bed.namespace(rank)} {rank} "$*" ;;\n')
            file.write(
                'esac\nexec ip netns exec "$1" unshare --uts ' 'sh -c "hostname node$2; exec $3"\n'
            )
        os.chmod(agent, 0o755)
        options = {
            "btl": "tcp,self",
            "btl_tcp_if_include": "eth0",
            "oob_tcp_if_include": "eth0",
            "plm_rsh_agent": agent,
            "coll_tuned_use_dynamic_rules": "1",
            # What OpenMPI's own rules choose for large all-reduces.
            "coll_tuned_allreduce_algorithm_segmentsize": str(MIB),
            "mpi_yield_when_idle": "1",
            "hwloc_base_binding_policy": "none",
        }
        command = [
            "mpirun",
            "--allow-run-as-root",
            "-np",
            str(self._ranks),
            "--host",
            ",".join(self._bed.addresses),
            "--map-by",
            "node",
        ]
        for name, value in options.items():
            command += ["--mca", name, value]
        command += [self._programs["OpenMPI"], cells, f"--out={files}"]
        return [self._bed.start(0, command, "mpirun.log")]


def tail(values, digits=2):
    """The 99th percentile, as text. Fewer than a hundred values have none: of these the greatest."""
    ordered = sorted(values)
    if len(ordered) < 100:
        return f"{ordered[-1]:.{digits}f} (max of {len(ordered)})"
    return f"{ordered[len(ordered) * 99 // 100]:.{digits}f}"


class Samples:
    """All that was measured of one system, algorithm and size."""

    def __init__(self, size):
        self._size = size
        self._seconds = []
        self._cpu = 0.0

    def add(self, seconds, cpu):
        """One round's."""
        self._seconds += seconds
        self._cpu += cpu

    @property
    def median(self):
        """Seconds."""
        return statistics.median(self._seconds)

    @property
    def milliseconds(self):
        """Minimum, median, 99th percentile, as text."""
        return [
            f"{1e3 * min(self._seconds):.2f}",
            f"{1e3 * self.median:.2f}",
            tail(1e3 * second for second in self._seconds),
        ]

    @property
    def cpu_per_gigabyte(self):
        """Processor seconds of all ranks per 10^9 bytes of one rank's floats."""
        return self._cpu / (1e-9 * self._size * len(self._seconds))


def calls(ranks, size, bits_per_second):
    """(untimed, timed) calls of a round; the same for all systems."""
    if bits_per_second:
        guess = wire_seconds(ranks, size, bits_per_second) + CALL_SECONDS
    else:
        guess = CALL_SECONDS + 2 * (ranks - 1) * size / UNSHAPED_BYTES_PER_SECOND
    timed = round(max(MINIMUM_CALLS, min(MAXIMUM_CALLS, CELL_SECONDS / guess)))
    return 1 + timed // 5, timed


def measure(bed, programs, sizes, rounds):
    """{(system, algorithm, bytes): Samples}."""
    runner = Runner(programs, bed)
    counts = {size: calls(len(bed.addresses), size, bed.bits_per_second) for size in sizes}
    samples = {}
    for number in range(rounds):
        for system in programs:
            chosen = [
                (algorithm, size)
                for size in sizes
                for algorithm in SYSTEMS[system]
                if (
                    hopeful(samples, system, algorithm, size)
                    if number
                    else size <= WASTEFUL_SIZE or (system, algorithm) not in WASTEFUL
                )
            ]
            cells = [(algorithm, size, *counts[size]) for algorithm, size in chosen]
            for (algorithm, size), result in runner.run(system, cells).items():
                samples.setdefault((system, algorithm, size), Samples(size)).add(*result)
    return samples


def hopeful(samples, system, algorithm, size):
    """Whether the algorithm may be its system's best, or the table shows it anyway."""
    if algorithm == "automatic":
        return True
    key = system, algorithm, size
    if key not in samples:
        return False
    return samples[key].median <= HOPELESS * best(samples, system, size)[1].median


def best(samples, system, size):
    """(algorithm, Samples) with the least median."""
    of_system = [
        (algorithm, one)
        for (name, algorithm, bytes_), one in samples.items()
        if (name, bytes_) == (system, size)
    ]
    return min(of_system, key=lambda item: item[1].median)


def table(bed, samples, sizes, systems):
    """Rows of a Markdown table: our automatic choice and our best against everybody's best."""
    ranks = len(bed.addresses)
    others = [system for system in systems if system != "Poseidon"]
    lines = [
        "| bytes | system, algorithm | min | median | p99 ms | of the bound | "
        "Poseidon to it | CPU s/GB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size in sizes:
        ours = samples["Poseidon", "automatic", size]
        rows = [("Poseidon, automatic", ours)]
        for system in systems:
            algorithm, one = best(samples, system, size)
            rows.append((f"{system}, best: {SYSTEMS[system][algorithm]}", one))
        for name, one in rows:
            bound = (
                ""
                if not bed.bits_per_second
                else (f"{one.median / wire_seconds(ranks, size, bed.bits_per_second):.3f}")
            )
            ratio = f"{ours.median / one.median:.2f}" if name.split(",")[0] in others else ""
            minimum, median, p99 = one.milliseconds
            lines.append(
                f"| {human(size)} | {name} | {minimum} | {median} | {p99} | "
                f"{bound} | {ratio} | {one.cpu_per_gigabyte:.2f} |"
            )
    return lines


def report_choice(program, shapes, sizes, rounds):
    """Ring against halving and doubling, in turns of new processes: what the automatic choice goes
    by. Prints milliseconds: the median of all calls, the 90th and the 99th percentile, and the
    least and the greatest median of a turn."""
    for ranks, bits_per_second in shapes:
        with testbed.Testbed(ranks, bits_per_second) as bed:
            runner = Runner({"Poseidon": program}, bed)
            turns = {}
            for _ in range(rounds):
                for size in sizes:
                    count = calls(ranks, size, bed.bits_per_second)
                    cells = [
                        (algorithm, size, *count) for algorithm in ("ring", "halving_doubling")
                    ]
                    for key, (seconds, _) in runner.run("Poseidon", cells).items():
                        turns.setdefault(key, []).append(sorted(seconds))
        link = f"{bits_per_second / 1e9:g} Gb/s" if bits_per_second else "unshaped"
        print(f"\n{ranks} ranks, {link}, {rounds} turns\n")
        print("| bytes | algorithm | median ms | p90 | p99 | turns' medians |")
        print("|---|---|---|---|---|---|")
        for (algorithm, size), of_turns in sorted(turns.items(), key=lambda item: item[0][1]):
            every = sorted(second for turn in of_turns for second in turn)
            medians = [1e3 * statistics.median(turn) for turn in of_turns]
            percentiles = " | ".join(
                f"{1e3 * every[min(len(every) - 1, len(every) * percent // 100)]:.2f}"
                for percent in (50, 90, 99)
            )
            print(
                f"| {human(size)} | {POSEIDON[algorithm]} | {percentiles} | "
                f"{min(medians):.2f} to {max(medians):.2f} |",
                flush=True,
            )


def all_medians(samples, sizes):
    """Rows of a Markdown table: medians of everything that was measured, in milliseconds."""
    lines = [
        "| algorithm | " + " | ".join(human(size) for size in sizes) + " |",
        "|---" * (len(sizes) + 1) + "|",
    ]
    names = {(system, algorithm): None for system, algorithm, _ in samples}
    for system, algorithm in names:
        medians = [
            f"{1e3 * samples[system, algorithm, size].median:.2f}"
            if (system, algorithm, size) in samples
            else ""
            for size in sizes
        ]
        lines.append(f"| {system}, {SYSTEMS[system][algorithm]} | " + " | ".join(medians) + " |")
    return lines


def report(programs, shapes, sizes, rounds, details):
    """Measures and prints. shapes: (ranks, bits per second or None)."""
    for ranks, bits_per_second in shapes:
        with testbed.Testbed(ranks, bits_per_second) as bed:
            samples = measure(bed, programs, sizes, rounds)
            link = f"{bits_per_second / 1e9:g} Gb/s" if bits_per_second else "unshaped"
            print(f"\nAll-reduce, {ranks} ranks, {link}, {testbed.CONGESTION_CONTROL}\n")
            print("\n".join(table(bed, samples, sizes, list(programs))))
            if details:
                print()
                print("\n".join(all_medians(samples, sizes)))
            print(flush=True)
