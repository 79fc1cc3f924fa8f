"""Overlap as real processes have it, from the traces of a replayed net.

A busy machine stumbles now and then: what must be seen is asked of most iterations, and what can't
be otherwise of all.
"""

import glob
import statistics

import cluster

ITERATIONS = 10
WORKERS = 2


class Events:
    """The events of all traces of a directory, each with its process and track; times in ms."""

    def __init__(self, test, directory):
        self.events = []
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
                    self.events.append(
                        {
                            "process": process,
                            "track": names["thread_name", event["tid"]],
                            "what": event["cat"],
                            "begin": begin,
                            "end": begin + event.get("dur", 0) / 1000,
                            **event["args"],
                        }
                    )

    def all(self, **wanted):
        return [
            event
            for event in self.events
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

    def assert_most(self, holds):
        self.assertGreaterEqual(statistics.mean(holds), 0.8, holds)

    def test_gradients_leave_during_backward(self):
        """A layer's first frame is at its server before the backward of the layer below ends."""
        # 50 ms: what is small on the wire arrives within, even if the machine is busy.
        sizes = {"conv1": 500, "conv2": 2000, "conv3": 20000, "fc": 200000}
        events = self.trace([(name, size, 50) for name, size in sizes.items()])
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
        # 40 MB a worker and direction take longer than the passes of the small layers.
        events = self.trace([("conv1", 500, 2), ("conv2", 2000, 2), ("fc", 10000000, 2)])
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


if __name__ == "__main__":
    cluster.main()
