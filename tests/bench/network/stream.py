"""Trainings of a net shaped like VGG19, replayed on four nodes: Poseidon's daemons with several
policies, and Gloo as data-parallel programs use it. Forward and backward passes sleep; gradients
are real.

Layers have a sixteenth of VGG19's floats: inner-product layers a quarter of its inputs and of
its outputs, so that factors shrink alike with a quarter of the batch of 32. Backward time is
shared out in proportion to multiply-adds; a forward pass takes half as long."""

import json
import os
import statistics

import all_reduce
import testbed

SCALE = 16
BATCH = 8
NODES = 4
BITS_PER_SECOND = 10**9
# Floats and multiply-adds of VGG19, layer by layer.
CONVOLUTIONS = (
    ("conv1_1", 1792, 86704128),
    ("conv1_2", 36928, 1849688064),
    ("conv2_1", 73856, 924844032),
    ("conv2_2", 147584, 1849688064),
    ("conv3_1", 295168, 924844032),
    ("conv3_2", 590080, 1849688064),
    ("conv3_3", 590080, 1849688064),
    ("conv3_4", 590080, 1849688064),
    ("conv4_1", 1180160, 924844032),
    ("conv4_2", 2359808, 1849688064),
    ("conv4_3", 2359808, 1849688064),
    ("conv4_4", 2359808, 1849688064),
    ("conv5_1", 2359808, 462422016),
    ("conv5_2", 2359808, 462422016),
    ("conv5_3", 2359808, 462422016),
    ("conv5_4", 2359808, 462422016),
)
# Inputs and outputs.
INNER_PRODUCTS = (("fc6", 25088, 4096), ("fc7", 4096, 4096), ("classifier", 4096, 1000))

# PyTorch's DistributedDataParallel gathers gradients in buckets of 25 MiB.
BUCKET_BYTES = 25 * (1 << 20) // SCALE
# KV pairs are of 2 MiB by default, the window of 4 MiB.
KV_PAIR_BYTES = (2 << 20) // SCALE
WINDOW_BYTES = (4 << 20) // SCALE
# Of packets between two of the testbed's nodes, with what programs add to it.
LATENCY = "50us"

DEADLINE = 120
# Iterations that are not counted: memory is touched, connections open, windows grow.
WARM_UP = 3


class Layer:
    """A layer of the scaled net, with its times for a backward pass of all layers of one second."""

    def __init__(self, name, floats, share, product=None):
        self.name = name
        self.floats = floats
        self.share = share
        self.product = product  # (inputs, outputs)


def layers():
    """In forward order."""
    total = sum(macs for _, _, macs in CONVOLUTIONS) + sum(m * n for _, m, n in INNER_PRODUCTS)
    found = [Layer(name, floats // SCALE, macs / total) for name, floats, macs in CONVOLUTIONS]
    for name, inputs, outputs in INNER_PRODUCTS:
        product = (inputs // 4, outputs // 4)
        found.append(Layer(name, (product[0] + 1) * product[1], inputs * outputs / total, product))
    return found


def dense_wire_seconds():
    """What every node's link needs for an iteration's payload: all-reduce, or PS with a server on
    each node."""
    size = 4 * sum(layer.floats for layer in layers())
    return all_reduce.wire_seconds(NODES, size, BITS_PER_SECOND)


def job(address, communication, backward, iterations, factors, more=""):
    """A job config. `factors`: inner-product layers may use them. `more`: fields of the job."""
    text = ""
    for layer in layers():
        if layer.product and factors:
            what = f'type: "InnerProduct" inputs: {layer.product[0]} outputs: {layer.product[1]}'
        else:
            what = f"parameters: {layer.floats}"
        milliseconds = 1e3 * backward * layer.share
        text += (
            f'layers {{ name: "{layer.name}" {what} forward_ms: {milliseconds / 2:.4f} '
            f"backward_ms: {milliseconds:.4f} }}\n"
        )
    return f"""name: "stream"
{testbed.OPEN}
cluster {{ workers: {NODES} servers: {NODES} scheduler_host: "{address}"
  network {{ bandwidth: "{BITS_PER_SECOND // 10 ** 6}Mbps" latency: "{LATENCY}" }} }}
communication {{ kv_pair_bytes: {KV_PAIR_BYTES} window_bytes: {WINDOW_BYTES} {communication} }}
training {{ engine: REPLAY trace: true
  replay {{ iterations: {iterations} batch: {BATCH}
{text} }} }}
{more}
"""


class Runner:
    """Runs trainings on a testbed; each run returns the seconds between iterations' begins on node
    0, and processor seconds of all programs."""

    def __init__(self, directory, bed, iterations):
        self._directory = directory
        self._bed = bed
        self._iterations = iterations
        self._runs = 0

    def poseidon(self, communication, backward, factors=False):
        """Scheduler on node 0, a server and a worker on each node."""
        self._runs += 1
        out = self._bed.path(f"job-{self._runs}")
        os.mkdir(out)
        config = os.path.join(out, "job.prototxt")
        with open(config, "w", encoding="ascii") as file:
            file.write(
                job(self._bed.addresses[0], communication, backward, self._iterations, factors)
            )
        processes = [self._daemon("scheduler", 0, config, out)]
        for role in ("server", "worker"):
            for node, address in enumerate(self._bed.addresses):
                processes.append(
                    self._daemon(role, node, config, out, f"--rank={node}", f"--host={address}")
                )
        cpu = self._bed.wait(processes, DEADLINE)
        with open(os.path.join(out, "worker-0.trace.json"), encoding="ascii") as file:
            events = json.load(file)["traceEvents"]
        first = layers()[0].name
        begins = sorted(
            event["ts"] / 1e6
            for event in events
            if event.get("cat") == "forward" and event["args"].get("layer") == first
        )
        return self._intervals(begins), cpu

    def _daemon(self, role, node, config, out, *flags):
        program = os.path.join(self._directory, f"poseidon_{role}")
        return self._bed.start(
            node, [program, f"--config={config}", f"--out={out}", *flags], f"{role}-{node}.log"
        )

    def gloo(self, algorithm, bucket_bytes, backward):
        """A rank on each node."""
        self._runs += 1
        store = self._bed.path(f"store-{self._runs}")
        os.mkdir(store)
        text = ",".join(
            f"{layer.floats}:{500 * backward * layer.share:.4f}:"
            f"{1000 * backward * layer.share:.4f}"
            for layer in layers()
        )
        out = self._bed.path(f"gloo-{self._runs}-")
        program = os.path.join(self._directory, "bench_network_gloo_stream")
        processes = [
            self._bed.start(
                rank,
                [
                    program,
                    f"--rank={rank}",
                    f"--ranks={NODES}",
                    f"--host={address}",
                    f"--store={store}",
                    f"--algorithm={algorithm}",
                    f"--layers={text}",
                    f"--bucket_bytes={bucket_bytes}",
                    f"--iterations={self._iterations}",
                    f"--out={out}{rank}",
                ],
                f"gloo-{rank}.log",
            )
            for rank, address in enumerate(self._bed.addresses)
        ]
        cpu = self._bed.wait(processes, DEADLINE)
        with open(f"{out}0", encoding="ascii") as file:
            return self._intervals(json.load(file)["begins"]), cpu

    def _intervals(self, begins):
        intervals = [end - begin for begin, end in zip(begins, begins[1:])]
        return intervals[min(WARM_UP, len(intervals) - 1) :]


def variants(runner, has_gloo, quick):
    """(name, run of a backward time)."""
    found = []

    def add(name, communication, factors=False):
        found.append(
            (
                f"Poseidon, {name}",
                lambda backward: runner.poseidon(communication, backward, factors),
            )
        )

    for policy in () if quick else ("TIME", "ALL_PS", "ALL_RING"):
        add(policy, f"policy: {policy}")
        add(f"{policy}, FIFO", f"policy: {policy} by_priority: false")
        add(f"{policy}, no overlap", f"policy: {policy} overlap: false")
    for policy in ("TIME", "BYTES"):
        add(f"{policy}, with factors", f"policy: {policy}", factors=True)
    if has_gloo:
        # What PyTorch uses.
        for name, bucket_bytes in (("one all-reduce a layer", 0), ("buckets", BUCKET_BYTES)):
            found.append(
                (
                    f"Gloo, {name}",
                    lambda backward, bucket_bytes=bucket_bytes: runner.gloo(
                        "new_ring", bucket_bytes, backward
                    ),
                )
            )
    return found


def report(directory, has_gloo, iterations, rounds, quick):
    """Measures and prints."""
    wire = dense_wire_seconds()
    with testbed.Testbed(NODES, BITS_PER_SECOND) as bed:
        runner = Runner(directory, bed, iterations)
        for share in (0.5,) if quick else (1, 0.5):
            found = variants(runner, has_gloo, quick)
            results = {name: ([], []) for name, _ in found}
            for _ in range(rounds):
                for name, run in found:
                    intervals, cpu = run(share * wire)
                    results[name][0].extend(intervals)
                    results[name][1].append(cpu / iterations)
            print_table(wire, share * wire, results)


def print_table(wire, backward, results):
    """A Markdown table."""
    compute = 1.5 * backward
    bound = max(compute, wire)
    print(
        f"\nVGG19 / {SCALE}, {NODES} nodes, {BITS_PER_SECOND / 1e9:g} Gb/s, "
        f"{testbed.CONGESTION_CONTROL}: backward {1e3 * backward:.0f} ms, forward "
        f"{500 * backward:.0f} ms, dense payload at line rate {1e3 * wire:.0f} ms\n"
    )
    print("| system | iteration, median ms | min | max | of max(compute, bytes/B) | CPU share |")
    print("|---|---|---|---|---|---|")
    for name, (intervals, cpus) in results.items():
        median = statistics.median(intervals)
        share = statistics.median(cpus) / (median * os.cpu_count())
        print(
            f"| {name} | {1e3 * median:.0f} | {1e3 * min(intervals):.0f} | "
            f"{1e3 * max(intervals):.0f} | {median / bound:.3f} | {100 * share:.0f}% |",
            flush=True,
        )
