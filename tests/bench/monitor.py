"""What a job's monitor costs: the time of an iteration and the processor time of the whole job.

  monitor.py --bin=DIR [--rounds=10] [--iterations=100] [--layers=24] [--milliseconds=1]

A replayed job of two workers and a server, whose layers take --milliseconds forward and twice that
backward, leaves the cores free most of the time, so that its processor time says what is done and not
what else the machine does. It takes turns: without the monitor, with it, and with it while one client
follows /api/events and another reads /metrics every second. Shown are min, median and max over the
rounds, and the median of each round's ratio to the run without.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

VARIANTS = ("without", "with", "followed")


def job(iterations, layers, milliseconds):
    rows = "\n".join(
        f'    layers {{ name: "layer{i}" parameters: 50000 forward_ms: {milliseconds} backward_ms: {2 * milliseconds} }}'
        for i in range(layers)
    )
    return (
        'name: "monitored"\n'
        "cluster { workers: 2 servers: 1 }\n"
        "communication { policy: BYTES }\n"
        f"training {{ engine: REPLAY replay {{\n    iterations: {iterations}\n    batch: 8\n{rows}\n  }}\n}}\n"
    )


def follow(url, stop):
    """Reads all that /api/events sends until the job ends."""
    try:
        with urllib.request.urlopen(url + "api/events", timeout=60) as stream:
            while not stop.is_set() and stream.readline():
                pass
    except OSError:
        pass  # the job has ended


def scrape(url, stop):
    while not stop.wait(1.0):
        try:
            urllib.request.urlopen(url + "metrics", timeout=10).read()
        except OSError:
            return


def run(program, config, out, variant):
    """(milliseconds an iteration, processor seconds of all the job's processes)"""
    command = [program, "run", f"--config={config}", f"--out={out}"]
    command += ["--nomonitor"] if variant == "without" else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    stop = threading.Event()
    threads = []
    for line in process.stdout:
        address = re.match(r"monitor: (http\S+)", line)
        if address and variant == "followed":
            for target in (follow, scrape):
                threads.append(threading.Thread(target=target, args=(address[1], stop)))
                threads[-1].start()
    _, status, usage = os.wait4(process.pid, 0)
    stop.set()
    for thread in threads:
        thread.join()
    if status != 0:
        raise SystemExit(f"{' '.join(command)} ended with status {status}; see {out}/logs")
    with open(f"{out}/summary.json", encoding="utf-8") as file:
        summary = json.load(file)
    return iteration_ms(summary), usage.ru_utime + usage.ru_stime


def iteration_ms(summary):
    """The mean over all but the first tenth of the iterations."""
    durations = summary["duration_ms"]
    return statistics.mean(durations[len(durations) // 10 :])


def show(name, unit, values, base):
    ratio = statistics.median(value / other for value, other in zip(values, base))
    print(
        f"{name:10} {min(values):9.3f} {statistics.median(values):9.3f} {max(values):9.3f} {unit:10} "
        f"{100 * (ratio - 1):+7.2f} %"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bin", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--milliseconds", type=float, default=1.0)
    options = parser.parse_args()
    program = os.path.join(os.path.abspath(options.bin), "poseidon")
    results = {variant: [] for variant in VARIANTS}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        config = os.path.join(directory, "job.prototxt")
        with open(config, "w", encoding="utf-8") as file:
            file.write(job(options.iterations, options.layers, options.milliseconds))
        for number in range(options.rounds):
            # Whoever is first in one round is last in another.
            for step in range(len(VARIANTS)):
                variant = VARIANTS[(number + step) % len(VARIANTS)]
                out = os.path.join(directory, f"{variant}-{number}")
                results[variant].append(run(program, config, out, variant))
            print(f"round {number + 1} of {options.rounds}: {time.monotonic() - begin:.0f} s")
    print(f"{'':10} {'min':>9} {'median':>9} {'max':>9} {'':10} against without")
    for index, unit in enumerate(("ms", "CPU-s")):
        base = [result[index] for result in results["without"]]
        for variant in VARIANTS:
            show(variant, unit, [result[index] for result in results[variant]], base)


if __name__ == "__main__":
    main()
