"""What parts of the batch by speed gain where one of four workers is half as fast as the others.

  stragglers.py --bin=DIR [--rounds=3] [--iterations=120] [--layers=8] [--milliseconds=5]

Replayed jobs of four workers and a server, whose layers take --milliseconds forward and twice that
backward; a replay sleeps, so four workers fit two cores. Worker 2 takes twice as long for all it does
(its daemon's --compute_factor). Each round runs three jobs in turns: with all workers alike, with the
slow worker and equal parts, and with the slow worker and `batch: BALANCED`. Images per second are those of
the last third of the iterations, when the parts have been changed; beside them, those of the whole job with
the 20 iterations before that. Shown are the medians with the least and the most, and the ratio of the medians.
The aim is a ratio of 1.5.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile

AIM = 1.5
WORKERS = 4
SLOW = 2
BATCH = 32


def free_port():
    """A port whose next one is free, too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
                return port
            except (OSError, OverflowError):
                continue


def job(options, balanced):
    rows = "\n".join(
        f'layers {{ name: "layer{i}" parameters: 50000 forward_ms: {options.milliseconds} '
        f"backward_ms: {2 * options.milliseconds} }}"
        for i in range(options.layers)
    )
    return f"""
        name: "stragglers"
        cluster {{ workers: {WORKERS} servers: 1 scheduler_port: {free_port()} }}
        communication {{ policy: ALL_PS }}
        training {{
          engine: REPLAY {"batch: BALANCED" if balanced else ""}
          replay {{ iterations: {options.iterations} batch: {BATCH} {rows} }}
        }}"""


def run(options, slow, balanced):
    """Images per second of the last third of the iterations and of all, and the job's stragglers."""
    with tempfile.TemporaryDirectory() as out:
        config = os.path.join(out, "job.prototxt")
        with open(config, "w", encoding="utf-8") as file:
            file.write(job(options, balanced))

        def start(program, *flags):
            log = open(os.path.join(out, "log"), "a", encoding="utf-8")
            return subprocess.Popen(
                [os.path.join(options.bin, program), f"--config={config}", *flags],
                stdout=log,
                stderr=log,
            )

        daemons = [start("poseidon_scheduler", f"--out={out}"), start("poseidon_server")]
        for rank in range(WORKERS):
            factor = 2 if slow and rank == SLOW else 1
            daemons.append(start("poseidon_worker", f"--rank={rank}", f"--compute_factor={factor}"))
        codes = [daemon.wait() for daemon in daemons]
        if any(codes):
            with open(os.path.join(out, "log"), encoding="utf-8") as log:
                sys.exit(f"the daemons ended with {codes}:\n{log.read()}")
        with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
    last = summary["duration_ms"][-(options.iterations // 3) :]
    return (
        1000 * WORKERS * BATCH / statistics.median(last),
        summary["images_per_second"],
        summary["stragglers"],
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bin", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=120)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--milliseconds", type=float, default=5)
    options = parser.parse_args()

    variants = {
        "all alike": (False, False),
        "one slow, equal parts": (True, False),
        "one slow, balanced": (True, True),
    }
    runs = {name: [] for name in variants}
    for _ in range(options.rounds):
        for name, (slow, balanced) in variants.items():
            runs[name].append(run(options, slow, balanced))
    medians = {}
    print(
        f"{'images/s, the last third':26}  {'median':>7}  {'least':>7}  {'most':>7}  {'whole job':>9}  named"
    )
    for name, results in runs.items():
        last = [result[0] for result in results]
        whole = statistics.median(result[1] for result in results)
        medians[name] = statistics.median(last)
        named = ", ".join(
            sorted({f"worker {s['worker']} ({s['part']})" for result in results for s in result[2]})
        )
        print(
            f"{name:26}  {medians[name]:7.0f}  {min(last):7.0f}  {max(last):7.0f}  {whole:9.0f}  {named}"
        )
    ratio = medians["one slow, balanced"] / medians["one slow, equal parts"]
    verdict = "reached" if ratio >= AIM else "missed"
    print(f"balanced / equal parts: {ratio:.2f}; the aim of {AIM} is {verdict}")


if __name__ == "__main__":
    main()
