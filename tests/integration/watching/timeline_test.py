"""Overlap as real processes have it, from the traces of a replayed net, and all nodes' files in one.

A busy machine stumbles now and then: what must be seen is asked of most iterations, and what can't
be otherwise of all.
"""

import collections
import glob
import json
import math
import os
import re
import shutil
import statistics
import subprocess

import cluster

ITERATIONS = 10
WORKERS = 2


class Events:
    """The events of all traces of a directory, each with its process and track; times in ms."""

    def __init__(self, test, directory):
        self.events = collections.defaultdict(list)  # by what and layer: there are 100,000
        for path in glob.glob(test.path(directory) + "/*.trace.json"):
            trace = test.read_json(path)["traceEvents"]
            names = {
                (event["name"], event.get("tid")): event["args"]["name"]
                for event in trace
                if event["ph"] == "M"
            }
            process = names["process_name", None]
            for event in trace:
                if event["ph"] != "M":
                    begin = event["ts"] / 1000
                    key = event["cat"], event["args"].get("layer")
                    self.events[key].append(
                        {
                            "process": process,
                            "track": names["thread_name", event["tid"]],
                            "what": event["cat"],
                            "begin": begin,
                            "end": begin + event.get("dur", 0) / 1000,
                            **event["args"],
                        }
                    )

    def all(self, what, layer, **wanted):
        return [
            event
            for event in self.events[what, layer]
            if all(event[key] == value for key, value in wanted.items())
        ]

    def one(self, **wanted):
        found = self.all(**wanted)
        if len(found) != 1:
            raise AssertionError(f"{len(found)} events of {wanted}")
        return found[0]


class TimelineTest(cluster.ClusterTest):
    def trace(self, layers):
        self.run_job(
            cluster.replay_config(
                workers=WORKERS,
                servers=2,
                layers=layers,
                iterations=ITERATIONS,
                communication="policy: ALL_PS",
                training="trace: true",
            )
        )
        return Events(self, "out")

    def steps(self):
        """(process, iteration), the first iteration aside: then memory is touched for the first
        time."""
        return [
            (f"worker {worker}", iteration)
            for worker in range(WORKERS)
            for iteration in range(1, ITERATIONS)
        ]

    def test_a_trace_that_can_not_be_written_fails_nothing(self):
        names = ("worker-1", "server-0")
        config = cluster.replay_config(
            workers=WORKERS, servers=2, iterations=ITERATIONS, training="trace: true"
        )
        for name in names:
            os.makedirs(self.path(f"out/{name}.trace.json"))
        self.assertEqual(self.run_job(config)["exit_code"], cluster.SUCCESS)
        for name in names:
            with open(self.path(f"out/logs/{name}.log"), encoding="utf-8") as log:
                self.assertRegex(
                    log.read(), f"there is no trace of {name}: can't write .*: it is a directory"
                )

    def test_what_an_earlier_job_has_left_is_removed(self):
        for workers in (3, 1):
            self.run_job(
                cluster.replay_config(
                    workers=workers, servers=1, iterations=ITERATIONS, training="trace: true"
                )
            )
            traces = glob.glob("*.trace.json", root_dir=self.path("out"))
            names = [f"worker-{rank}.trace.json" for rank in range(workers)]
            self.assertEqual(sorted(traces), ["server-0.trace.json", *names])
            self.assertNotIn("worker-0.restart-1.log", os.listdir(self.path("out/logs")))
            self.write("out/logs/worker-0.restart-1.log", "of a process that was started again")

    def assert_most(self, holds):
        self.assertGreaterEqual(statistics.mean(holds), 0.8, holds)

    def test_gradients_leave_during_backward(self):
        """A layer's first frame is at its server before the backward of the layer below ends."""
        # 100 ms: what is small on the wire arrives within, even if the machine is busy.
        sizes = {"conv1": 500, "conv2": 2000, "conv3": 20000, "fc": 200000}
        events = self.trace([(name, size, 100) for name, size in sizes.items()])
        names = list(sizes)
        for below, layer in zip(names, names[1:]):
            with self.subTest(layer):
                holds = []
                for worker, iteration in self.steps():
                    here = {"process": worker, "iteration": iteration, "what": "backward"}
                    arrived = min(
                        event["begin"]
                        for event in events.all(
                            what="gradient arrived",
                            track=f"from {worker}",
                            layer=layer,
                            iteration=iteration,
                        )
                    )
                    self.assertGreaterEqual(arrived, events.one(layer=layer, **here)["end"])
                    holds.append(arrived < events.one(layer=below, **here)["end"])
                self.assert_most(holds)

    def test_forward_starts_while_deep_layers_arrive(self):
        """The first layer's values overtake the last layer's, which were sent before, and its
        forward starts while those still arrive."""
        # 80 MB a worker and direction take longer than the passes of the small layers, also where a
        # busy machine lets them wait.
        events = self.trace([("conv1", 500, 2), ("conv2", 2000, 2), ("fc", 20000000, 2)])
        holds = []
        for worker, iteration in self.steps():
            here = {"process": worker, "iteration": iteration}
            start = events.one(what="forward", layer="conv1", **here)["begin"]
            deep = events.all(what="arrived", layer="fc", **here)
            self.assertGreater(len(deep), 100)
            holds.append(sum(event["begin"] > start for event in deep) > len(deep) / 2)
            for event in events.all(what="send", layer="fc", **here):
                self.assertGreater(event["end"], event["begin"])
                self.assertGreater(event["bytes"], 0)
            for layer in ("conv1", "conv2", "fc"):
                self.assertGreaterEqual(
                    events.one(what="forward", layer=layer, **here)["begin"],
                    max(event["begin"] for event in events.all(what="fresh", layer=layer, **here)),
                )
        self.assert_most(holds)


class Merged:
    """What `poseidon timeline` has written of a job; times in microseconds."""

    def __init__(self, test):
        command = test.start("poseidon", "timeline", test.path("out"))
        test.assertEqual(command.wait(), cluster.SUCCESS, command.output())
        self.said = command.output()
        merged = test.read_json("out/timeline.json")
        self.other = merged["otherData"]
        self.phases = collections.defaultdict(list)
        for event in merged["traceEvents"]:
            self.phases[event["ph"]].append(event)
        self.processes = {
            event["pid"]: event["args"]["name"]
            for event in self.phases["M"]
            if event["name"] == "process_name"
        }

    def arrows(self):
        """The start and the end of each arrow, which no other has."""
        starts = {event["id"]: event for event in self.phases["s"]}
        ends = {event["id"]: event for event in self.phases["f"]}
        once = len(starts) == len(self.phases["s"]) and len(ends) == len(self.phases["f"])
        if not once or starts.keys() != ends.keys():
            raise AssertionError("an arrow has not one start and one end")
        return [(start, ends[number]) for number, start in starts.items()]

    def counters(self):
        """By process and name, the times and values of each counter, in the order of the file."""
        counters = collections.defaultdict(list)
        for event in self.phases["C"]:
            key = self.processes[event["pid"]], event["name"]
            counters[key].append((event["ts"], event["args"]["bytes"]))
        return counters

    def spans_by_row(self):
        rows = collections.defaultdict(list)
        for event in self.phases["X"]:
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        return rows


class MergedTest(cluster.ClusterTest):
    """`poseidon timeline` on the directory of a real job."""

    NODES = {"the scheduler", "server 0", "worker 0", "worker 1"}

    def setUp(self):
        super().setUp()
        self.run_job(
            cluster.replay_config(
                workers=WORKERS,
                servers=1,
                iterations=ITERATIONS,
                communication="policy: ALL_PS",
                training="trace: true",
            )
        )

    def assert_format(self, merged):
        """What Chrome's trace format demands, and what Perfetto needs to draw it."""
        self.assertLessEqual(set(merged.phases), set("MXisfC"))
        self.assertEqual(sorted(merged.processes.values()), sorted(self.NODES))
        for phase, events in merged.phases.items():
            for event in events:
                self.assertIn(event["pid"], merged.processes)
                self.assertIsInstance(event["name"], str)
                if phase != "M":
                    self.assertGreaterEqual(event["ts"], 0)
        rows = {
            (event["pid"], event["tid"])
            for event in merged.phases["M"]
            if event["name"] == "thread_name"
        }
        spans = merged.spans_by_row()
        self.assertLessEqual(set(spans), rows)
        self.assertEqual({process for process, _ in spans}, set(merged.processes))
        # Traces have the wall clock's microseconds, of which a double keeps so much; and nanoseconds
        # are rounded where a clock is turned to another.
        rounding = round(1000 * math.ulp(merged.other["begin_ns"] / 1000)) + 1
        for row in spans.values():
            in_nanoseconds = [(round(1000 * begin), round(1000 * end)) for begin, end in row]
            self.assert_nested(in_nanoseconds, rounding)

    def assert_nested(self, spans, rounding):
        """Perfetto drops a span of which another of its row has a part only."""
        around = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            self.assertGreaterEqual(end, begin)
            while around and around[-1] <= begin + rounding:
                around.pop()
            if around:
                self.assertLessEqual(end, around[-1] + rounding)
            around.append(end)

    def assert_arrows(self, merged, error):
        """Each leads from a node's send to another's arrival, forward but for the clocks' error."""
        arrows = merged.arrows()
        self.assertIn(f": {len(self.NODES)} processes, {len(arrows)} frames from", merged.said)
        moments = {
            (*row, begin) for row, spans in merged.spans_by_row().items() for begin, _ in spans
        }
        gradients = set()
        for start, end in arrows:
            for event in (start, end):
                self.assertIn((event["pid"], event["tid"], event["ts"]), moments)
            self.assertNotEqual(start["pid"], end["pid"])
            self.assertGreaterEqual(end["ts"], start["ts"] - error, (start, end))
            if start["name"] == "gradient":
                gradients.add((merged.processes[start["pid"]], merged.processes[end["pid"]]))
        self.assertEqual(gradients, {("worker 0", "server 0"), ("worker 1", "server 0")})

    def assert_counters(self, merged):
        """All that is on its way arrives."""
        counters = merged.counters()
        for worker in ("worker 0", "worker 1"):
            self.assertIn((worker, "bytes in flight to server 0"), counters)
            self.assertIn(("server 0", f"bytes in flight to {worker}"), counters)
        for name, values in counters.items():
            with self.subTest(name):
                self.assertEqual(values, sorted(values, key=lambda value: value[0]))
                self.assertGreater(max(count for _, count in values), 0)
                self.assertGreaterEqual(min(count for _, count in values), 0)
                self.assertEqual(values[-1][1], 0)

    def assert_opens(self, merged):
        """Perfetto's own reader finds as many processes and arrows."""
        with self.subTest("trace_processor"):
            program = shutil.which("trace_processor") or shutil.which("trace_processor_shell")
            if program is None:
                self.skipTest("there is no trace_processor, which is a part of Perfetto")
            nodes = ", ".join(f"'{name}'" for name in sorted(self.NODES))
            query = self.write(
                "query.sql",
                f"select (select count(*) from process where name in ({nodes})) as nodes, "
                "(select count(*) from flow) as arrows;\n",
            )
            told = subprocess.run(
                [program, "-q", query, self.path("out/timeline.json")],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            self.assertIn(f"{len(self.NODES)},{len(merged.arrows())}", told)

    def test_nodes_of_one_machine_have_one_clock(self):
        """All nodes have its clock, so nothing is said of clocks, and no arrow leads back."""
        merged = Merged(self)
        self.assertNotIn("clock of", merged.said)
        self.assertNotIn("left out", merged.said)
        self.assert_format(merged)
        self.assert_arrows(merged, error=0)
        self.assert_counters(merged)
        self.assert_opens(merged)

    def move_to_another_machine(self):
        """Worker 1's files as if its machine had been started seven hours before, and had a wall clock
        that is a quarter of a second ahead; returns by how much it then is, in milliseconds."""
        earlier, ahead = 7 * 3600 * 10**9, 250 * 10**6
        events = self.read_json("out/worker-1.events.json")
        for lane in events["lanes"]:
            for row in lane["events"]:
                row[events["columns"].index("time_ns")] += earlier
        events["written_ns"] += earlier
        events["clock"] = "another"
        events["wall_clock_ns"] += ahead - earlier
        self.write("out/worker-1.events.json", json.dumps(events))

        trace = self.read_json("out/worker-1.trace.json")
        for event in trace["traceEvents"]:
            if "ts" in event:
                event["ts"] += ahead / 1000
        trace["otherData"]["clock"] = "another"
        trace["otherData"]["wall_clock_ns"] += ahead - earlier
        self.write("out/worker-1.trace.json", json.dumps(trace))
        # Each process has looked at both clocks by itself.
        here = self.read_json("out/scheduler.events.json")["wall_clock_ns"]
        return (events["wall_clock_ns"] + earlier - here) / 10**6

    def test_clocks_of_two_machines_are_estimated(self):
        """The frames tell how far the clocks differ, and how sure that is."""
        truth = self.move_to_another_machine()
        merged = Merged(self)
        (clock,) = merged.other["clocks"]
        self.assertIn(f"  clock of {clock}\n", merged.said)
        pattern = (
            r"worker 1: (\d+\.\d{3}) ms ahead of the scheduler's machine, "
            r"off by at most (\d+\.\d{3}) ms"
        )
        self.assertRegex(clock, f"^{pattern}$")
        ahead, error = map(float, re.match(pattern, clock).groups())
        self.assertLessEqual(abs(ahead - truth), error + 0.001)  # each was rounded
        self.assert_format(merged)
        self.assert_arrows(merged, error=1000 * error)
        self.assert_counters(merged)


if __name__ == "__main__":
    cluster.main()
