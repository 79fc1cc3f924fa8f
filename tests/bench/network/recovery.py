"""What `recovery { mode: REPLACE }` costs while nobody dies, and how long it takes when somebody does.

    sudo python3 tests/bench/network/recovery.py [--part=cost|kill|spare|transfer] [--net=lenet|vgg19]
        [--rounds=5] [--quick]

Prints Markdown tables. `cost`: an iteration with recovery and without, of LeNet and of a net with a
sixteenth of VGG19's floats (stream.py), on four nodes at 1 Gb/s; the trainings take turns. `kill`: from
`kill -9` to the end of the next iteration of LeNet under `poseidon run`, which starts another process.
`spare`: the same of daemons that nobody starts again, from the moment at which the scheduler has noticed.
`transfer`: the same for a worker with as many floats as VGG19 over a link of 1 Gb/s, less what an iteration
takes; it needs 9 GB of memory. All of them need half an hour on two cores that do nothing else.
`cost` and `transfer` need root, ip and tc; without them the program says so and ends with 77."""

import argparse
import datetime
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import stream
import testbed

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from stragglers import free_port  # beside this folder

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
CONFIGS = os.path.join(REPOSITORY, "configs")
SKIPPED = 77
RECOVERY = "recovery { mode: REPLACE }"
# name: (fields of `communication`, fields of the job).
VARIANTS = {
    "on": ("", RECOVERY),
    "off, updates at workers": ("update_at: WORKERS", ""),
    "off, AUTOMATIC": ("", ""),
}
# The aim: with recovery, a job whose workers make the updates takes at most this many times as long.
AIM_COST = 1.01
# From the kill to the next iteration, of LeNet.
AIM_KILL_SECONDS = 3
# From the loss being noticed, where a spare waits.
AIM_SPARE_SECONDS = 2
SPARES = "recovery { mode: REPLACE spare_workers: 1 spare_servers: 1 }"
# The transfer's time, and what all else may take.
AIM_TRANSFER, AIM_TRANSFER_SECONDS = 1.2, 3
HEARTBEAT = "heartbeat_interval_seconds: 1 heartbeat_deadline_seconds: 10"


def median_range(values, unit=""):
    """ "median (least to most)"."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g}){unit}"


def print_verdict(seconds, aim):
    """Of values that the aim is for, each of them."""
    verdict = "met" if max(seconds) <= aim else "missed"
    print(f"\nAim: at most {aim:.3g} s, every time: {verdict}.", flush=True)


def percentile(values, share):
    """Of a sorted copy, the value below which the share of all is."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Lenet:
    """The demo's net and data, in a directory."""

    def __init__(self, programs, directory):
        self.programs = programs
        self.directory = directory
        subprocess.run(
            [
                os.path.join(programs, "poseidon"),
                "convert",
                "csv",
                f"--source={CONFIGS}/data/digits.csv",
                f"--out={directory}/digits",
                "--max_value=16",
                "--scale_height=28",
                "--scale_width=28",
                "--train_records=1500",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self._copy("net", "out/digits", f"{directory}/digits")
        self._copy("solver", "configs/models/lenet/net.prototxt", f"{directory}/net.prototxt")

    def _copy(self, name, old, new):
        with open(f"{CONFIGS}/models/lenet/{name}.prototxt", encoding="utf-8") as file:
            text = file.read().replace(old, new)
        # Each iteration is a line of worker 0's log, and none is a test.
        text = re.sub(r"(?m)^display:.*", "display: 1", text)
        text = re.sub(r"(?m)^test_(iter|interval):.*\n", "", text)
        with open(f"{self.directory}/{name}.prototxt", "w", encoding="utf-8") as file:
            file.write(text)

    def job(self, nodes, cluster, communication, more, iterations):
        """A job config."""
        return f"""name: "lenet"
{testbed.OPEN}
cluster {{ workers: {nodes} servers: {nodes} {cluster} }}
communication {{ policy: BYTES deterministic: true {HEARTBEAT} {communication} }}
training {{ solver: "{self.directory}/solver.prototxt" iterations: {iterations} threads: 1 seed: 1 }}
{more}
"""


class Cluster:
    """Daemons of jobs on a testbed: a scheduler on node 0, a worker on each node, and servers."""

    def __init__(self, programs, bed):
        self._programs = programs
        self._bed = bed
        self._runs = 0

    def start(self, config, workers, servers):
        """Returns the processes by name, and the job's directory."""
        self._runs += 1
        out = self._bed.path(f"job-{self._runs}")
        os.mkdir(out)
        path = os.path.join(out, "job.prototxt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)
        processes = {"scheduler": self.start_daemon("scheduler", 0, out)}
        for role, count in (("server", servers), ("worker", workers)):
            for rank in range(count):
                flags = (f"--incarnation={1000 * (role == 'worker') + rank + 1}",)
                processes[f"{role}-{rank}"] = self.start_daemon(role, rank, out, *flags)
        return processes, out

    def start_daemon(self, role, rank, out, *flags):
        """A server or worker is on the node of its rank."""
        command = [
            os.path.join(self._programs, f"poseidon_{role}"),
            f"--config={out}/job.prototxt",
            f"--out={out}",
        ]
        if role != "scheduler":
            command += [f"--rank={rank}", f"--host={self._bed.addresses[rank]}"]
        log = f"{os.path.basename(out)}-{role}-{rank}-{time.monotonic_ns()}.log"
        return self._bed.start(rank, [*command, *flags], log)

    def train(self, config, nodes, seconds):
        """To its end; returns the milliseconds of the iterations that count."""
        processes, out = self.start(config, nodes, nodes)
        self._bed.wait(list(processes.values()), seconds)
        with open(f"{out}/summary.json", encoding="utf-8") as file:
            return json.load(file)["duration_ms"][stream.WARM_UP :]


def report_cost(programs, nets, rounds, quick):
    """What recovery costs while nobody dies."""
    with testbed.Testbed(stream.NODES, stream.BITS_PER_SECOND) as bed:
        lenet = Lenet(programs, bed.directory)
        cluster = Cluster(programs, bed)
        address = bed.addresses[0]
        backward = 0.5 * stream.dense_wire_seconds()

        def lenet_job(communication, more):
            network = f'scheduler_host: "{address}"'
            return lenet.job(stream.NODES, network, communication, more, 20 if quick else 150)

        def vgg_job(communication, more):
            policy = f"policy: BYTES {HEARTBEAT} {communication}"
            return stream.job(address, policy, backward, 5 if quick else 20, True, more)

        jobs = {"lenet": ("LeNet", lenet_job), "vgg19": (f"VGG19 / {stream.SCALE}", vgg_job)}
        for name, job in (jobs[net] for net in nets):
            results = {variant: [] for variant in VARIANTS}
            for turn in range(rounds):
                # In another order each time, so that nobody is always the first.
                names = list(VARIANTS)[turn % 3 :] + list(VARIANTS)[: turn % 3]
                for variant in names:
                    results[variant].append(
                        cluster.train(job(*VARIANTS[variant]), stream.NODES, 600)
                    )
            print_cost(name, results)


def print_cost(name, results):
    """A Markdown table."""
    print(f"\n{name}, {stream.NODES} nodes, {stream.BITS_PER_SECOND / 1e9:g} Gb/s\n")
    print(
        "| recovery | iteration, min ms | median | p99 | median of on / this, by turn (least to most) |"
    )
    print("|---|---|---|---|---|")
    medians = {
        variant: [statistics.median(run) for run in runs] for variant, runs in results.items()
    }
    for variant, runs in results.items():
        pooled = [value for run in runs for value in run]
        ratios = [on / this for on, this in zip(medians["on"], medians[variant])]
        print(
            f"| {variant} | {min(pooled):.1f} | {statistics.median(pooled):.1f} | "
            f"{percentile(pooled, 0.99):.1f} | {median_range(ratios)} |"
        )
    ratios = [on / off for on, off in zip(medians["on"], medians["off, updates at workers"])]
    verdict = "met" if statistics.median(ratios) <= AIM_COST else "missed"
    print(
        f"\nAim: at most {AIM_COST} times as long as with updates at workers: {verdict}.",
        flush=True,
    )


def log_seconds(line):
    """The moment of a line of a log, in seconds of the wall clock."""
    text = " ".join(line.split()[:2])
    return datetime.datetime.strptime(text[1:], "%Y%m%d %H:%M:%S.%f").timestamp()


def iterations_of(path, went_on):
    """When worker 0 has done iterations, by its log; unless `went_on` those since it has gone back."""
    if not os.path.exists(path):
        return []
    moments = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file.read().split("\n")[:-1]:
            if "goes on from iteration" in line:
                went_on = True
            if went_on and re.search(r"\] Iteration \d+, loss", line):
                moments.append(log_seconds(line))
    return moments


def await_iterations(path, went_on, count):
    """The moment at which so many of them were done."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        moments = iterations_of(path, went_on)
        if len(moments) >= count:
            return moments[count - 1]
        time.sleep(0.005)
    raise RuntimeError(f"no iteration in {path}")


class KillRun:
    """LeNet on this machine under `poseidon run`; one daemon of it is killed."""

    def __init__(self, lenet, out):
        self._out = out
        config = f"{out}.prototxt"
        with open(config, "w", encoding="utf-8") as file:
            file.write(lenet.job(2, "", "", RECOVERY, 400))
        self._process = subprocess.Popen(
            [os.path.join(lenet.programs, "poseidon"), "run", f"--config={config}", f"--out={out}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self, role, rank):
        """Returns the seconds from the kill to the end of the next iteration."""
        await_iterations(f"{self._out}/logs/worker-0.log", True, 100)
        pid = self._pid_of(role, rank)
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        restarted = (role, rank) == ("worker", 0)
        log = "worker-0.restart-1" if restarted else "worker-0"
        done = await_iterations(f"{self._out}/logs/{log}.log", restarted, 1)
        if self._process.wait(300) != 0:
            raise RuntimeError(f"the job did not end well: {self._out}/logs")
        return done - killed

    def _pid_of(self, role, rank):
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/cmdline", encoding="utf-8") as file:
                    arguments = file.read().split("\0")
            except OSError:
                continue  # it has ended meanwhile
            ours = any(argument.startswith(f"--config={self._out}/") for argument in arguments)
            if ours and arguments[0].endswith(f"poseidon_{role}") and f"--rank={rank}" in arguments:
                return int(entry)
        raise RuntimeError(f"no {role} {rank} of {self._out} runs")


def report_kill(programs, rounds):
    """How long until LeNet's next iteration."""
    print("\nLeNet, 2 workers and 2 servers on this machine, `poseidon run`\n")
    print("| killed | from the kill to the end of the next iteration, median s (least to most) |")
    print("|---|---|")
    everything = []
    with tempfile.TemporaryDirectory(prefix="poseidon-recovery-") as directory:
        lenet = Lenet(programs, directory)
        victims = (("worker", 1), ("worker", 0), ("server", 0))
        seconds = {victim: [] for victim in victims}
        for turn in range(rounds):
            for role, rank in victims:
                run = KillRun(lenet, f"{directory}/{role}-{rank}-{turn}")
                seconds[role, rank].append(run.kill(role, rank))
        for (role, rank), values in seconds.items():
            print(f"| {role} {rank} | {median_range(values)} |")
            everything += values
    print_verdict(everything, AIM_KILL_SECONDS)


class SpareRun:
    """LeNet on this machine by daemons that nobody starts again, and a spare of each role."""

    def __init__(self, lenet, out):
        self._out = out
        self._programs = lenet.programs
        os.makedirs(out)
        with open(f"{out}/job.prototxt", "w", encoding="utf-8") as file:
            place = f'scheduler_host: "127.0.0.1" scheduler_port: {free_port()}'
            file.write(lenet.job(2, place, "", SPARES, 400))
        self._daemons = {"scheduler": self._start("scheduler")}
        for role in ("server", "worker"):
            for rank in range(2):
                self._daemons[f"{role}-{rank}"] = self._start(role, rank)
        self._await("scheduler", "all 4 nodes have joined")
        for role in ("server", "worker"):
            self._daemons[f"{role}-spare"] = self._start(role, "spare")

    def _start(self, role, rank=0):
        command = [f"{self._programs}/poseidon_{role}", f"--config={self._out}/job.prototxt"]
        command.append(f"--out={self._out}")
        if role != "scheduler" and rank != "spare":
            command.append(f"--rank={rank}")
        name = role if role == "scheduler" else f"{role}-{rank}"
        with open(f"{self._out}/{name}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        process.log = log.name
        return process

    def _await(self, name, pattern):
        return await_text(self._daemons[name], pattern)

    def kill(self, role, rank):
        """Seconds from the kill to its being noticed, and from then to the end of the next iteration."""
        for kind in ("server", "worker"):
            self._await("scheduler", rf"{kind} .* waits as a spare")
        await_iterations(f"{self._out}/worker-0.log", True, 100)
        killed = time.time()
        self._daemons[f"{role}-{rank}"].kill()
        noticed = log_seconds(
            self._await("scheduler", rf"W\S+ \S+ .*lost {role} {rank}.*").group(0)
        )
        done = await_iterations(f"{self._out}/worker-0.log", False, 1)
        for process in self._daemons.values():
            process.wait(300)
        if self._daemons["scheduler"].returncode != 0:
            raise RuntimeError(f"the job did not end well: {self._out}")
        return noticed - killed, done - noticed


def report_spare(programs, rounds):
    """How long until LeNet's next iteration where a spare takes the place."""
    print("\nLeNet, 2 workers and 2 servers on this machine, and a spare of each\n")
    print("| killed | until it is noticed, s | from then to the end of the next iteration, s |")
    print("|---|---|---|")
    everything = []
    with tempfile.TemporaryDirectory(prefix="poseidon-recovery-") as directory:
        lenet = Lenet(programs, directory)
        for role, rank in (("worker", 1), ("server", 0)):
            runs = [
                SpareRun(lenet, f"{directory}/{role}-{rank}-{turn}").kill(role, rank)
                for turn in range(rounds)
            ]
            noticed, done = zip(*runs)
            print(f"| {role} {rank} | {median_range(noticed)} | {median_range(done)} |")
            everything += done
    print_verdict(everything, AIM_SPARE_SECONDS)


LARGE_LAYERS, LARGE_LAYER_FLOATS = 10, 14366702  # VGG19's floats, in equal parts


def report_transfer(programs, rounds, quick):
    """How long until training goes on where a replacement needs much."""
    floats = LARGE_LAYER_FLOATS // (16 if quick else 1)
    layers = "".join(
        f'layers {{ name: "l{i}" parameters: {floats} forward_ms: 5 backward_ms: 10 }}\n'
        for i in range(LARGE_LAYERS)
    )
    # Values and momentum.
    transfer = 2 * LARGE_LAYERS * floats * 4 * 8 / stream.BITS_PER_SECOND
    seconds = []
    for _ in range(rounds):
        with testbed.Testbed(2, stream.BITS_PER_SECOND) as bed:
            config = f"""name: "large"
{testbed.OPEN}
cluster {{ workers: 2 servers: 2 scheduler_host: "{bed.addresses[0]}" }}
communication {{ policy: ALL_PS {HEARTBEAT} }}
{RECOVERY}
training {{ engine: REPLAY replay {{ iterations: 8 batch: 8 {layers} }} }}
"""
            seconds.append(replace_worker(Cluster(programs, bed), config))
    aim = AIM_TRANSFER * transfer + AIM_TRANSFER_SECONDS
    print(
        f"\n{4 * LARGE_LAYERS * floats / 1e6:.0f} MB of values, and as much of momentum, at 1 Gb/s\n"
    )
    print(
        "| transfer at line rate, s | from the kill to the end of the next iteration, less one iteration, "
        "median s (least to most) |"
    )
    print("|---|---|")
    print(f"| {transfer:.2f} | {median_range(seconds)} |")
    print_verdict(seconds, aim)


def replace_worker(cluster, config):
    """Kills worker 1 in its fourth iteration and starts another at once; the seconds until the next
    iteration has ended, less those that one takes undisturbed. What the new worker needs comes to it
    in that iteration, layer by layer, as its forward pass waits for it."""
    processes, out = cluster.start(config, 2, 2)
    scheduler = processes["scheduler"]
    await_text(scheduler, r"iteration 2/")  # of the first one it does not tell
    second = time.monotonic()
    await_text(scheduler, r"iteration 3/")
    killed = time.monotonic()
    iteration = killed - second
    processes["worker-1"].kill()
    processes["worker-1"].wait()
    cluster.start_daemon("worker", 1, out, "--incarnation=5000", "--replaces=1002")
    start = int(await_text(scheduler, r"goes on from iteration (\d+)").group(1))
    await_text(scheduler, rf"(?s)goes on from iteration.*iteration {start + 1}/")
    seconds = time.monotonic() - killed - iteration
    for process in processes.values():
        process.kill()
    return seconds


def await_text(process, pattern):
    """Until a process has said it; the match."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        with open(process.log, encoding="utf-8", errors="replace") as file:
            if match := re.search(pattern, file.read()):
                return match
        time.sleep(0.01)
    raise RuntimeError(f"the scheduler has not said {pattern}; see {process.log}")


def main():
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=os.path.join(REPOSITORY, "build", "bin"))
    parser.add_argument("--part", choices=("cost", "kill", "spare", "transfer"), action="append")
    parser.add_argument("--net", choices=("lenet", "vgg19"), action="append", help="of cost")
    parser.add_argument("--rounds", type=int, default=5, help="turns that the trainings take")
    parser.add_argument("--quick", action="store_true", help="does it work? Measures little")
    options = parser.parse_args()
    parts = options.part or ["cost", "kill", "spare", "transfer"]
    rounds = 1 if options.quick else options.rounds
    # As exceptions, so that namespaces are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    before = testbed.busy_seconds()
    time.sleep(1)
    busy = testbed.busy_seconds() - before
    print(f"{os.cpu_count()} cores, of which others use {busy:.2f} now", flush=True)
    try:
        if "kill" in parts:
            report_kill(options.bin, rounds)
        if "spare" in parts:
            report_spare(options.bin, rounds)
        if "cost" in parts:
            report_cost(options.bin, options.net or ["lenet", "vgg19"], rounds, options.quick)
        if "transfer" in parts:
            report_transfer(options.bin, rounds, options.quick)
    except testbed.Unavailable as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
