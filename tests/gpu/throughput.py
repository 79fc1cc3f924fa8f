"""How fast a GPU trains ResNet-50 and VGG19 (batch 32, made-up images): one worker against plain
PyTorch, two workers that share the GPU by each scheme, and how much of copies and wire is hidden
behind computing. Prints a table, and fails if one worker is slower than plain PyTorch by over three
hundredths, which is the aim, or if something does not run.

    python3 tests/gpu/throughput.py --bin=DIR [--batch=N] [--iterations=N] [--nets=vgg19] [--precision=TF32]
                                  [--alone] [--json=FILE]

--json writes what the table has, and the machine, for other programs. With --device=CPU, where there
is no GPU, it only shows that it works.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Iterations that do not count: memory is found, kernels are loaded, connections are made.
WARM_UP = 5
# Of plain PyTorch's time, what one worker without a wire may take more: what its owners would accept.
MOST_MORE = 0.03
PRECISIONS = ("FLOAT32", "TF32", "FLOAT16", "BFLOAT16")

SOLVER = """net: "{net}" base_lr: 0.0001 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005
max_iter: 1000000 display: 0 random_seed: 1
"""
DATA = """layer {{ name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param {{
    shape {{ dim: {batch} dim: 3 dim: 224 dim: 224 }} shape {{ dim: {batch} }}
    data_filler {{ type: "constant" value: 0.5 }} data_filler {{ type: "constant" }}
  }} }}
"""
JOB = """cluster {{ workers: {workers} servers: 1 }}
communication {{ policy: {policy} lanes: 4 }}
training {{ solver: "{solver}" iterations: {iterations} device: {device} seed: 1 {training} }}
"""


def net_with_dummy_data(name, batch):
    """configs/models' net with one batch that is always there in the place of its data bases."""
    with open(f"{REPOSITORY}/configs/models/{name}/net.prototxt", encoding="utf-8") as file:
        blocks = re.split(r"^(?=layer \{)", file.read(), flags=re.MULTILINE)
    kept = [block for block in blocks if 'type: "Data"' not in block]
    assert len(kept) == len(blocks) - 2, "two data layers"
    return kept[0] + DATA.format(batch=batch) + "".join(kept[1:])


class Trainer:
    """Runs jobs in a directory of its own."""

    def __init__(self, options, directory):
        self.options = options
        self.directory = directory
        self.exposed_ms = 0  # that computing stood still in an iteration of the last job

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run(self, name, workers, policy, training=""):
        """Milliseconds of an iteration; the traces, if the job has any, are in out/."""
        net = self.write("net.prototxt", net_with_dummy_data(name, self.options.batch))
        solver = self.write("solver.prototxt", SOLVER.format(net=net))
        job = self.write(
            "job.prototxt",
            JOB.format(
                workers=workers,
                policy=policy,
                solver=solver,
                device=self.options.device,
                iterations=WARM_UP + self.options.iterations,
                training=training,
            ),
        )
        out = os.path.join(self.directory, "out")
        subprocess.run(
            [f"{self.options.bin}/poseidon", "run", f"--config={job}", f"--out={out}"],
            check=True,
            stdout=sys.stderr,
            cwd=REPOSITORY,
        )
        with open(f"{out}/summary.json", encoding="utf-8") as file:
            summary = json.load(file)
        self.exposed_ms = statistics.median(summary["exposed_ms"][WARM_UP:])
        return statistics.median(summary["duration_ms"][WARM_UP:])

    def plain(self, name):
        output = subprocess.run(
            [
                sys.executable,
                f"{REPOSITORY}/tests/gpu/plain_torch.py",
                name,
                str(self.options.batch),
                str(self.options.iterations),
                self.options.device.lower(),
                self.options.precision,
            ],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        return float(output)

    def spans(self, worker=0):
        """Of worker 0's trace, by what they are: sets of (begin, end) in microseconds."""
        with open(f"{self.directory}/out/worker-{worker}.trace.json", encoding="utf-8") as file:
            events = [event for event in json.load(file)["traceEvents"] if event["ph"] != "M"]
        found = {"compute": [], "copies": [], "wire": []}
        sent = {}
        for event in sorted(events, key=lambda event: event["ts"]):
            what, begin = event["cat"], event["ts"]
            layer, iteration = event["args"]["layer"], event["args"]["iteration"]
            if what in ("forward", "backward"):
                found["compute"].append((begin, begin + event["dur"]))
            elif what.startswith("copy to "):
                found["copies"].append((begin, begin + event["dur"]))
            elif what == "send":
                sent.setdefault((layer, iteration), begin)  # the first of a bucket's sends
            elif what == "fresh" and (layer, iteration - 1) in sent:
                found["wire"].append((sent[layer, iteration - 1], begin))
        return found


def union(spans):
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def hidden_share(spans, compute):
    """The share of the time that `spans` take together in which something is computed."""
    spans, compute = union(spans), union(compute)
    hidden = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in spans for b in compute)
    return hidden / sum(end - begin for begin, end in spans)


class Table:
    """What was measured of one net, printed line by line."""

    def __init__(self, name, batch):
        self.name, self.batch, self.plain = name, batch, None
        self.rows, self.hidden = [], {}

    def add(self, what, milliseconds, exposed_ms=None):
        row = {
            "what": what,
            "milliseconds": milliseconds,
            "images_per_second": 1000 * self.batch / milliseconds,  # of a worker
            "of_plain": self.plain and self.plain / milliseconds,
            "exposed_ms": exposed_ms,
        }
        self.rows.append(row)
        share = f"{row['of_plain']:8.3f}" if self.plain else ""
        still = "" if exposed_ms is None else f"  stands still {exposed_ms:.2f} ms"
        print(
            f"{self.name:10} {what:36} {milliseconds:9.2f} ms {row['images_per_second']:9.1f} "
            f"images/s a worker {share}{still}",
            flush=True,
        )

    def add_hidden(self, what, share):
        self.hidden[what] = share
        text = "there are none" if share is None else f"{100 * share:.0f}%"  # copies on a CPU
        print(f"{self.name:10} {what} hidden behind computing: {text}", flush=True)


def measure(trainer, name):
    training = f"precision: {trainer.options.precision}"
    table = Table(name, trainer.options.batch)

    def add(what, *job):
        milliseconds = trainer.run(name, *job, training)
        table.add(what, milliseconds, trainer.exposed_ms)
        return milliseconds

    if not trainer.options.no_plain:
        table.plain = trainer.plain(name)
        table.add("plain PyTorch", table.plain)
    alone = add("one worker, nothing on the wire", 1, "ALL_RING")
    add("one worker, a server", 1, "ALL_PS")
    for policy in () if trainer.options.alone else ("ALL_PS", "ALL_SFB", "ALL_RING"):
        add(f"two workers, {policy}", 2, policy)
    if not trainer.options.alone:
        # A trace makes each layer's work in a stream a little longer, so its times are of no use.
        trainer.run(name, 2, "ALL_PS", f"{training} trace: true")
        spans = trainer.spans()
        for what in ("copies", "wire"):
            share = hidden_share(spans[what], spans["compute"]) if spans[what] else None
            table.add_hidden(what, share)
    # How fast CPUs are is another matter (tests/bench/caffe_compare.py).
    judged = table.plain and trainer.options.device == "CUDA"
    met = not judged or alone <= (1 + MOST_MORE) * table.plain
    if not met:
        print(
            f"{name:10} MISSED: one worker takes {alone / table.plain:.3f} of plain PyTorch's time; "
            f"the aim is {1 + MOST_MORE}",
            flush=True,
        )
    return {"net": name, "rows": table.rows, "hidden": table.hidden, "aim_met": met}


def machine():
    """Of the first GPU, what nvidia-smi says, or nothing."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--nets", default="resnet50,vgg19")
    parser.add_argument("--device", choices=("CPU", "CUDA"), default="CUDA")
    parser.add_argument("--precision", choices=PRECISIONS, default="FLOAT32")
    parser.add_argument("--alone", action="store_true", help="one worker only")
    parser.add_argument("--no-plain", action="store_true", help="without PyTorch")
    parser.add_argument("--json", help="write what was measured to this file")
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    with tempfile.TemporaryDirectory() as directory:
        nets = [measure(Trainer(options, directory), name) for name in options.nets.split(",")]
    if options.json:
        found = {
            "machine": machine(),
            "device": options.device,
            "precision": options.precision,
            "batch": options.batch,
            "nets": nets,
        }
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    return 0 if all(net["aim_met"] for net in nets) else 1


if __name__ == "__main__":
    sys.exit(main())
