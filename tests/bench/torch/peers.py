#!/usr/bin/env python3
"""poseidon_torch beside DistributedDataParallel over gloo, on four machines of this one's own
(namespaces, a bridge, tc).

    sudo tests/torch/in_environment.py tests/bench/torch/peers.py [--net=vgg19,resnet50,gpt2_small]
        [--ratio=0.3,1,3] [--only="TEXT;..."] [--iterations=8] [--out=FILE.json]

Trains nets with the layers of VGG19 (143.7 million parameters), ResNet-50 (25.6) and GPT-2 small (124.4)
whose passes sleep, and whose gradients are real. Both sides of all weights are divided, by 6, 2.5 and 6, so
that an iteration takes a fraction of a second (nets.py); DDP's buckets and ours are not divided, but several
sizes are measured. A ratio is compute to communication: the passes' time by the time in which an all-reduce's
payload passes the link.

Prints Markdown tables: milliseconds of an iteration on rank 0, of fewer than a hundred iterations the greatest
instead of the 99th percentile; the exposed share, which is the median less
that of the net without exchange, by the payload's time; megabytes a rank sends in an iteration, headers
included; processor seconds of all ranks and daemons in an iteration; and the median of DDP's best by this
one's, of equal bytes ("dense": 32 bits a float, "half": 16). Net "many" (200 layers of
64 floats) shows what a layer costs the thread that trains. torchft takes part where Python finds it
(`pip install torchft`, or PYTHONPATH). It takes half an hour on two cores that do nothing
else. Needs root, ip and tc; without them it says so and ends with 77."""

import argparse
import json
import os
import pathlib
import signal
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
sys.path.insert(0, str(HERE.parent / "network"))

import all_reduce
import nets
import testbed
import variants as ways

SKIPPED = 77
NODES = 4
PORT = 21000
# The start of ranks and daemons, and how much longer a training may take than its passes and its payload.
START_SECONDS = 60
PATIENCE = 3
# Ours goes over to the plan with measured times after a dozen iterations.
WARM_UP = 18


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", default="vgg19,resnet50,gpt2_small", help="also: many")
    parser.add_argument("--ratio", default="0.3,1,3", help="compute to communication")
    parser.add_argument(
        "--only", default="", help="variants whose names contain one of these, apart by ';'"
    )
    parser.add_argument("--iterations", type=int, default=8, help="that are timed, a round")
    parser.add_argument("--rounds", type=int, default=1, help="of all variants, in turns")
    parser.add_argument("--side", type=float, default=1, help="divide weights' sides further")
    parser.add_argument("--gigabits", type=float, default=1, help="a second, of every link")
    parser.add_argument("--out", help="file for all that was measured, as JSON")
    parser.add_argument("--quick", action="store_true", help="check this program, in seconds")
    return parser.parse_args()


class Point:
    """A net at a ratio of compute to communication."""

    def __init__(self, net: str, ratio: float, options: argparse.Namespace):
        made = nets.NETS[net]()
        self.net = net
        self.ratio = ratio
        self.side = made.side * options.side
        self.floats = nets.floats_of(made.scaled(self.side))
        self.wire = all_reduce.wire_seconds(NODES, 4 * self.floats, options.gigabits * 1e9)
        link = f"{options.gigabits * 1000:.0f}Mbps"
        patterns = [pattern for pattern in options.only.split(";") if pattern]
        self.variants = ways.chosen(link, patterns, net)
        self.results = [[] for _ in self.variants]

    @property
    def title(self) -> str:
        return (
            f"{self.net}, {4e-6 * self.floats:.1f} MB, compute to communication {self.ratio:g}: "
            f"passes {1e3 * self.ratio * self.wire:.0f} ms, payload {1e3 * self.wire:.0f} ms"
        )

    def measure(self, bed: testbed.Testbed, iterations: int) -> None:
        """One round of all variants."""
        job = bed.path("job.json")
        pathlib.Path(job).write_text(
            json.dumps(
                {
                    "net": self.net,
                    "side": self.side,
                    "seconds": self.ratio * self.wire,
                    "warm_up": WARM_UP,
                    "iterations": iterations,
                    "variants": ways.as_json(self.variants),
                }
            ),
            encoding="utf-8",
        )
        outs = [bed.path(f"result-{rank}.json") for rank in range(NODES)]
        processes = [start(bed, rank, job, out) for rank, out in enumerate(outs)]
        training = (WARM_UP + 1 + iterations) * (1 + self.ratio) * self.wire
        bed.wait(processes, (START_SECONDS + PATIENCE * training) * len(self.variants))
        of_ranks = [json.loads(pathlib.Path(out).read_text(encoding="utf-8")) for out in outs]
        for kept, *results in zip(self.results, *of_ranks):
            kept.append(results)

    def rows(self) -> list:
        """Of each variant what the table says."""
        rows = []
        for variant, rounds in zip(self.variants, self.results):
            times = sorted(1e3 * one for ranks in rounds for one in ranks[0]["seconds"])
            all_ranks = [one for ranks in rounds for one in ranks]
            rows.append(
                {
                    "name": variant.name,
                    "system": variant.system,
                    "bytes": variant.bytes,
                    "median": statistics.median(times),
                    "min": times[0],
                    "max": times[-1],
                    "p99": all_reduce.tail(times, digits=0),
                    "megabytes": statistics.mean(one["bytes"] for one in all_ranks) / 1e6,
                    "cpu": sum(one["cpu_seconds"] for one in all_ranks) / len(rounds),
                    "thread_us": 1e6
                    * statistics.median(one["thread_seconds"] for one in all_ranks)
                    / all_ranks[0]["layers"],
                }
            )
        compute = rows[0]["median"]
        for row in rows:
            row["exposed"] = (row["median"] - compute) / (1e3 * self.wire)
            peers = [
                one["median"]
                for one in rows
                if one["system"] == "ddp" and one["bytes"] == row["bytes"]
            ]
            row["ratio"] = min(peers) / row["median"] if peers else None
        return rows


def start(bed: testbed.Testbed, rank: int, job: str, out: str):
    """A rank in its namespace."""
    environment = {
        "RANK": rank,
        "LOCAL_RANK": 0,
        "WORLD_SIZE": NODES,
        "LOCAL_WORLD_SIZE": 1,
        "MASTER_ADDR": bed.addresses[0],
        "MASTER_PORT": PORT,
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": 1,
        # What the caller has put there stays: torchft, for one, need not be in the environment.
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "python"), *filter(None, [os.getenv("PYTHONPATH")])]
        ),
        "PYTHONUNBUFFERED": 1,
        "TMPDIR": bed.directory,
    }
    assignments = [f"{name}={value}" for name, value in environment.items()]
    command = ["env", *assignments, sys.executable, str(HERE / "rank.py"), job, out]
    return bed.start(rank, command, f"rank-{rank}.log")


def print_table(point: Point, rows: list) -> None:
    """Markdown."""
    print(f"\n{point.title}\n")
    print(
        "| variant | median ms | min | p99 | exposed | MB | CPU s | us a layer | DDP's best / it |"
    )
    print("|---" * 9 + "|")
    for row in rows:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f} ({row['bytes']})"
        print(
            f"| {row['name']} | {row['median']:.0f} | {row['min']:.0f} | {row['p99']} | "
            f"{row['exposed']:.2f} | {row['megabytes']:.1f} | {row['cpu']:.2f} | "
            f"{row['thread_us']:.0f} | {ratio} |"
        )
    sys.stdout.flush()


def self_check(point: Point, rows: list) -> None:
    """That every number is one, and that what was compared did exchange what it should. Ranks have
    checked the means."""
    by_name = {row["name"]: row for row in rows}
    dense = [row for row in rows if row["bytes"] == "dense"]
    assert {row["system"] for row in dense} == {"ddp", "poseidon"}, by_name.keys()
    for row in rows:
        assert 0 < row["min"] <= row["median"] <= row["max"], row
    alone = by_name["no exchange"]
    for row in dense:
        # A shaped link lets a little more than its rate pass in so short a time.
        assert row["median"] > 0.8e3 * point.wire, (row, point.wire)
        assert row["megabytes"] > 10 * alone["megabytes"] and row["ratio"] > 0, (row, alone)
    # A ring's payload and headers are the same whoever sends it.
    sent = [row["megabytes"] for row in dense]
    assert max(sent) < 1.3 * min(sent), sent


def main() -> int:
    options = arguments()
    if options.quick:
        options.net, options.ratio, options.side = "vgg19", "0.5", 3
        options.iterations, options.only = 4, "DDP, buckets of 1 MiB;ours, backward, default"
    # By a signal, too, the namespaces are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    done = []
    try:
        with testbed.Testbed(NODES, options.gigabits * 1e9) as bed:
            for net in options.net.split(","):
                for ratio in map(float, options.ratio.split(",")):
                    point = Point(net, ratio, options)
                    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
                    for _ in range(options.rounds):
                        point.measure(bed, options.iterations)
                    rows = point.rows()
                    print_table(point, rows)
                    done.append({"net": net, "ratio": ratio, "rows": rows, "raw": point.results})
                    if options.out:
                        pathlib.Path(options.out).write_text(json.dumps(done), encoding="utf-8")
                    if options.quick:
                        self_check(point, rows)
    except testbed.Unavailable as why:
        print(f"skipped: {why}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
