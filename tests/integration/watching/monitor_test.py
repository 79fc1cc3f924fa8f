"""The monitor of a training: what it serves, what its page shows, and `poseidon status`."""

import json
import os
import re
import shutil
import signal
import sys
import time
import unittest
import urllib.request

import cluster
import drawings
import lenet

WORKERS, SERVERS, BATCH = 2, 1, 8
# Of a desk's screen, and of a phone's.
WIDTHS = (1000, 390)

needs_browser = unittest.skipUnless(
    shutil.which("chromedriver") and shutil.which("chromium"),
    "there is no browser: install Debian's chromium and chromium-driver",
)

# Passes on each connection to PORT of this machine to the port TARGET, until it is killed.
RELAY = """
import asyncio, sys
async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def serve(reader, writer):
    there = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer), return_exceptions=True)
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    print("relays", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def ask(url, path=""):
    with urllib.request.urlopen(url + path, timeout=cluster.scaled(20)) as answer:
        return answer.read().decode()


def wait_for(condition, what, seconds=60.0):
    """Until condition() is true; returns it."""
    deadline = time.monotonic() + cluster.scaled(seconds)
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"in {cluster.scaled(seconds)} s there was no {what}")
        time.sleep(0.05)


class Browser:
    """Headless Chromium, driven over WebDriver's HTTP."""

    def __init__(self, test):
        self.url = f"http://127.0.0.1:{cluster.free_port_pair()}"
        profile = os.path.join(test.directory, "browser")
        test.spawn("chromedriver", ["chromedriver", f"--port={self.url.rpartition(':')[2]}"])
        wait_for(self._is_ready, "chromedriver")
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options = {"args": [*arguments, f"--user-data-dir={profile}"]}
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self._call("", {"capabilities": {"alwaysMatch": capabilities}})
        self.url += f"/session/{session['sessionId']}"
        test.addCleanup(self._call, "", None, "DELETE")

    def _is_ready(self):
        try:
            return json.loads(ask(self.url, "/status"))["value"]["ready"]
        except OSError:
            return False

    def _call(self, path, body, method="POST"):
        request = urllib.request.Request(
            self.url + (path if "/session/" in self.url else "/session"),
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=cluster.scaled(60)) as answer:
            return json.load(answer)["value"]

    def open(self, url):
        self._call("/url", {"url": url})

    def evaluate(self, expression):
        return self._call("/execute/sync", {"script": f"return {expression}", "args": []})

    def command(self, name, **parameters):
        """A command of Chromium's own, as its developer tools give them."""
        return self._call("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def set_width(self, width):
        self.command(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def text(self, element):
        return self.evaluate(f"document.getElementById('{element}').textContent")

    def rows(self, table):
        """The cells of a table's rows, without its head."""
        return self.evaluate(
            f"[...document.querySelectorAll('#{table} tr')].slice(1)"
            ".map((row) => [...row.children].map((cell) => cell.textContent))"
        )

    def script_errors(self):
        """All but requests without an answer, which the page tells of itself."""
        entries = self._call("/se/log", {"type": "browser"})
        return [entry for entry in entries if entry["source"] != "network"]


class MonitoredTest(cluster.ClusterTest):
    """A training whose monitor is looked at."""

    def status(self, url):
        return json.loads(ask(url, "api/job"))

    def await_timeline(self, url):
        """The status of a job that trains, and has a timeline; it may pause for another plan."""

        def training():
            job = self.status(url)
            return job["phase"] == "training" and job["timeline"] and job

        return wait_for(training, "timeline of an iteration")

    def seen_and_served(self, browser, url, expression):
        """What the page has for an expression, and what the API served of the same version."""
        served = {}

        def same_version():
            job = self.status(url)
            served[job["version"]] = job
            version, seen = browser.evaluate(f"[shown.version, {expression}]")
            return version in served and (seen, served[version])

        return wait_for(same_version, "version that page and API both had")

    def check_drawings(self, browser, url):
        """Curves and timeline are where the axes' texts say that what the API serves belongs."""
        # A curve begins with the second point.
        drawn = "document.querySelectorAll('#loss_chart svg, #throughput_chart svg, #timeline svg')"
        wait_for(lambda: browser.evaluate(f"{drawn}.length") == 3, "drawings")
        for width in WIDTHS:
            browser.set_width(width)
            browser.evaluate("show(shown)")
            self.check_drawn(*self.seen_and_served(browser, url, drawings.SEEN))
            self.check_axes(browser, self.status(url))
        browser.set_width(WIDTHS[0])

    def check_axes(self, browser, job):
        """Axes have room for their texts, and these differ, if numbers are large or nearly the same, too."""
        job["version"] = 0  # it is none that the API serves
        history, timeline = job["history"], job["timeline"]
        count = len(history["iteration"])
        # 4015.7 is more after a margin of 2 % has been added and taken away: then no computing follows it.
        # Of numbers as large as the last flat curve's the next one is two further.
        for loss, rate, end in (
            (2.3025, 1e4, 99.5),
            (1e-9, 1.2e7, 4015.7),
            (-0.5, 2e-3, 1e4),
            (1e3, 1e16, 10.0),
        ):
            # From the first to the last it rises by a ten-thousandth of itself, or from below 0 to above.
            rise = -2 * loss if loss < 0 else loss / 1e4
            history["loss"] = [loss + rise * i / count for i in range(count)]
            history["images_per_second"] = [rate] * count
            timeline["duration_ms"] = end
            timeline["waits"] = [{"layer": "first", "begin_ms": 0.3 * end, "end_ms": end}]
            for bucket in timeline["buckets"]:
                bucket["ready_ms"], bucket["fresh_ms"] = 0.3 * end, 0.9 * end
            self.check_drawn(
                browser.evaluate(f"(show({json.dumps(job)}), {drawings.SEEN})"),
                job,
            )

    def check_drawn(self, seen, job):
        history, timeline = job["history"], job["timeline"]
        for name in ("loss", "images_per_second"):
            points = drawings.points_of_history(seen[name], history["iteration"], history[name])
            (curve,) = seen[name]["curves"]
            self.assertEqual(len(curve), len(points))
            for point, expected in zip(curve, points):
                self.assert_near(point, expected, name)
            self.assertEqual(drawings.texts_beyond_the_edge(seen[name]), [])
        note = f"Worker {timeline['worker']}, iteration {timeline['iteration']:,}, "
        self.assertIn(note, seen["note"])
        bars = drawings.bars_of(seen["timeline"], seen["legend"])
        expected_bars = drawings.bars_of_timeline(seen["timeline"], timeline)
        self.assertEqual([bar[:2] for bar in bars], [bar[:2] for bar in expected_bars])
        for bar, expected in zip(bars, expected_bars):
            self.assert_near(bar[2:4], expected[2:4], bar)
            milliseconds, before, after = expected[4]
            told = re.fullmatch(f"{re.escape(before)}(.*) ms{re.escape(after)}", bar[4])
            self.assertIsNotNone(told, (bar, expected))
            self.assertAlmostEqual(
                drawings.number(told[1]), milliseconds, delta=1e-3 * milliseconds
            )
        self.assertEqual(drawings.texts_beyond_the_edge(seen["timeline"]), [])

    def assert_near(self, position, expected, what):
        for one, other in zip(position, expected):
            self.assertAlmostEqual(one, other, delta=drawings.PIXEL, msg=what)


class MonitorTest(MonitoredTest):
    def start_monitored(self, *arguments):
        """A training that does not end; returns the run, and its monitor's address."""
        config = cluster.replay_config(
            workers=WORKERS,
            servers=SERVERS,
            batch=BATCH,
            iterations=cluster.ENDLESS,
            cluster='network { bandwidth: "10Gbps" }',
            communication="policy: TIME",
        )
        # A worker that is stopped for a while is late, not lost.
        deadline = f"heartbeat_deadline_seconds: {cluster.scaled(cluster.HEARTBEAT_DEADLINE)}"
        self.assertIn(deadline, config)
        config = config.replace(deadline, f"heartbeat_deadline_seconds: {cluster.PATIENCE}")
        config += "monitor { port: 0 node_port: 0 }\n"
        run = self.start_run(config, *arguments)
        return run, run.await_output(r"monitor: (http://127\.0\.0\.1:\d+/)")[1]

    def states(self, url):
        return [node["state"] for node in self.status(url)["nodes"]]

    def check_status(self, job):
        self.assertEqual((job["job"], job["phase"]), ("test", "training"))
        self.assertGreater(job["images_per_second"], 0)
        self.assertEqual(job["iterations"], cluster.ENDLESS)
        roles = [(node["role"], node["rank"]) for node in job["nodes"]]
        self.assertEqual(roles, [("server", 0), ("worker", 0), ("worker", 1)])
        layers = [layer for bucket in job["buckets"] for layer in bucket["layers"]]
        self.assertEqual(layers, [name for name, _, _ in cluster.LAYERS])
        for bucket in job["buckets"]:
            self.assertGreater(bucket["predicted_ms"], 0)
            self.assertGreater(bucket["measured_ms"], 0)
        self.assertEqual(len(job["history"]["loss"]), len(job["history"]["iteration"]))

    def check_timeline(self, timeline, buckets):
        self.assertEqual([t["name"] for t in timeline["buckets"]], [b["name"] for b in buckets])
        for bucket in timeline["buckets"]:
            self.assertLessEqual(0, bucket["ready_ms"])
            self.assertLessEqual(bucket["ready_ms"], timeline["duration_ms"])
            self.assertLessEqual(bucket["ready_ms"], bucket["fresh_ms"])
        for wait in timeline["waits"]:
            self.assertLessEqual(wait["begin_ms"], wait["end_ms"])

    def test_serves_a_training(self):
        run, url = self.start_monitored()
        job = self.await_timeline(url)
        self.check_status(job)
        self.check_timeline(job["timeline"], job["buckets"])
        up = '\nposeidon_node_up{role="server",rank="0",host="127.0.0.1"} 1\n'
        self.assertIn(up, ask(url, "metrics"))
        # It pauses for the plan that measured times ask for: who is stopped in it is "awaited".
        run.await_output("with measured layer times")
        training = '\nposeidon_job_phase{phase="training"} 1\n'
        wait_for(lambda: training in ask(url, "metrics"), "metrics of a job that trains")
        self.assertEqual(ask(url, "healthz"), "ok\n")

        self.check_nodes()
        self.check_command(url)
        self.check_stopped_worker(url)

        watches = self.check_watch(url)
        with urllib.request.urlopen(url + "api/events", timeout=cluster.scaled(60)) as events:
            run.signal(signal.SIGTERM)
            told = [line for line in events.read().decode().split("\n") if line[:5] == "data:"]
        self.assertEqual(run.wait(), cluster.INTERRUPTED)
        self.assertEqual(json.loads(told[-1][5:])["end"]["exit_code"], cluster.INTERRUPTED)
        # Whoever asks each second hears of the end, too.
        self.assertEqual(watches.wait(), cluster.SUCCESS)
        self.assertIn(f"test: ended with code {cluster.INTERRUPTED}", watches.output())
        self.assert_nothing_left()
        self.assertFalse(os.path.exists(self.path("out/monitor.url")))
        # What the command says of a job that has ended comes from its summary.
        shown = self.start("poseidon", "status", self.path("out"))
        self.assertEqual(shown.wait(), cluster.SUCCESS)
        self.assertIn(f"test: ended with code {cluster.INTERRUPTED}", shown.output())

    def check_nodes(self):
        """What servers and workers tell of themselves; their logs say where."""
        for node in ("server-0", "worker-0", "worker-1"):
            with open(self.path(f"out/logs/{node}.log"), encoding="utf-8") as file:
                url = re.search(r"metrics: (http://127\.0\.0\.1:\d+/)", file.read())[1]
            self.assertEqual(ask(url, "healthz"), "ok\n")
            role, rank = node.split("-")
            labels = f'{{role="{role}",rank="{rank}"}}'

            def value(name):
                found = re.search(f"(?m)^{name}{re.escape(labels)} (.*)$", ask(url, "metrics"))
                return float(found[1])

            names = [
                "iteration",
                "sent_bytes_total",
                "received_bytes_total",
                "update_seconds_total",
            ]
            names = [f"poseidon_node_{name}" for name in names]
            before = [value(name) for name in names]
            self.assertIn("\nprocess_resident_memory_bytes ", ask(url, "metrics"))
            if role == "server":
                continue  # the plan may have all-reduces only
            wait_for(
                lambda: all(value(name) > then for name, then in zip(names, before)),
                f"progress of {node} in {names}, which were {before}",
            )

    def check_command(self, url):
        for address in (url, self.path("out")):
            wait_for(
                lambda address=address: self.says_that_it_trains(address), f"training at {address}"
            )

    def check_watch(self, url):
        """A command that shows the job until it ends, also if the monitor is away for a while."""
        port, target = cluster.free_port_pair(), url.rstrip("/").rpartition(":")[2]
        relay = self.relay(port, target)
        watches = self.start("poseidon", "status", f"http://127.0.0.1:{port}/", "--watch")
        watches.await_output("test: training, about ")
        relay.popen.kill()
        relay.wait()
        watches.await_output("no monitor answers .*\nasking again for at most 30 s\n")
        self.relay(port, target)
        watches.await_output(r"asking again [\s\S]*\ntest: training, about ")
        return watches

    def says_that_it_trains(self, address):
        """Not so while the job goes over to another plan."""
        shown = self.start("poseidon", "status", address)
        self.assertEqual(shown.wait(), cluster.SUCCESS)
        said = shown.output()
        self.assertRegex(said, r"test: \w+, about .* left\niteration [1-9]")
        return "test: training," in said and re.search(r"\nworker 1 +training +127\.0\.0\.1 ", said)

    def check_stopped_worker(self, url):
        """Who stands still is named long before the heartbeat's deadline ends the job."""
        pid = self.pid_of("worker", 1)
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_for(lambda: self.states(url)[2] == "late", "late worker")
            wait_for(lambda: self.states(url)[1] == "waiting", "worker that waits")
            job = self.status(url)
            self.assertIn("worker 1, iteration ", job["nodes"][1]["waits_for"])
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_for(lambda: self.states(url)[1:] == ["training"] * WORKERS, "training again")

    def test_can_be_switched_off(self):
        config = cluster.replay_config(workers=1, servers=1, iterations=2)
        run = self.start_run(config, "--nomonitor")
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assertNotIn("monitor", run.output())

    def relay(self, port, target):
        arguments = [sys.executable, "-c", RELAY, str(port), target]
        process = self.spawn(f"relay-{len(self.processes)}", arguments)
        process.await_output("relays")
        return process

    @needs_browser
    def test_page(self):
        run, url = self.start_monitored()
        self.await_timeline(url)
        port = cluster.free_port_pair()
        relay = self.relay(port, url.rstrip("/").rpartition(":")[2])
        browser = Browser(self)
        browser.open(f"http://127.0.0.1:{port}/")
        wait_for(lambda: browser.text("connection") == "live", "live page")
        self.check_page_equals_api(browser, url)
        self.check_drawings(browser, url)
        self.check_slow_worker(browser)

        relay.popen.kill()
        relay.wait()
        wait_for(
            lambda: browser.text("connection").startswith("no connection"), "notice of the cut"
        )
        before = browser.evaluate("shown.iteration")
        self.relay(port, url.rstrip("/").rpartition(":")[2])
        wait_for(lambda: browser.text("connection") == "live", "live page again")
        self.assertGreater(browser.evaluate("shown.iteration"), before)

        run.signal(signal.SIGTERM)
        self.assertEqual(run.wait(), cluster.INTERRUPTED)
        wait_for(lambda: browser.text("connection") == "the scheduler has ended", "end")
        self.assertIn(f"ended with code {cluster.INTERRUPTED}", browser.text("news"))
        self.check_page_of_summary(browser)
        self.assertEqual(browser.script_errors(), [])

    def check_page_equals_api(self, browser, url):
        seen, job = self.seen_and_served(
            browser,
            url,
            "[document.getElementById('iteration').textContent,"
            " document.getElementById('loss').textContent,"
            " document.getElementById('images_per_second').textContent,"
            " [...document.querySelectorAll('#nodes tr')].slice(1).map("
            "(row) => row.children[0].textContent + ' ' + row.children[1].textContent),"
            " [...document.querySelectorAll('#buckets tr')].slice(1).map("
            "(row) => [0, 1, 4, 5].map((i) => row.children[i].textContent))]",
        )
        iteration, loss, rate, nodes, buckets = seen
        self.assertEqual(iteration, f"{job['iteration']:,}")
        self.assertEqual(loss, f"{job['loss']:.4f}")
        self.assert_digits(rate, job["images_per_second"])
        expected = [f"{n['role']} {n['rank']} {n['state']}" for n in job["nodes"]]
        self.assertEqual(nodes, expected)
        self.assertEqual(len(buckets), len(job["buckets"]))
        for (name, scheme, predicted, measured), bucket in zip(buckets, job["buckets"]):
            self.assertEqual((name, scheme), (bucket["name"], bucket["scheme"]))
            self.assert_digits(predicted, bucket["predicted_ms"])
            self.assert_digits(measured, bucket["measured_ms"])

    def check_slow_worker(self, browser):
        """It is named above, and beside it where a phone shows it without scrolling."""
        browser.set_width(390)
        news, left, cell, right, page = browser.evaluate(
            "(() => { const job = structuredClone(shown); job.iteration_ms = job.seconds_left = null;"
            " job.nodes.find((node) => node.role === 'worker' && node.rank === 1).slow ="
            " {part: 'compute', ratio: 2.04}; show(job);"
            " const cell = document.querySelector('#nodes td.warn:not(:empty)');"
            " return [find('news').textContent, find('remaining').textContent,"
            " cell.parentNode.children[0].textContent + ' ' + cell.textContent,"
            " cell.getBoundingClientRect().right, document.documentElement.scrollWidth]; })()"
        )
        self.assertEqual(
            news, "Worker 1 is slow: computing takes it 2.0 times as long as the others."
        )
        self.assertRegex(left, "^after .* s$", "nothing is known of how long an iteration takes")
        self.assertEqual(cell, "worker 1 computing, 2.0 times")
        self.assertLess(right, 390)
        self.assertLessEqual(page, 390)
        browser.set_width(1000)

    def assert_digits(self, text, value):
        """The page shows four significant digits."""
        self.assertAlmostEqual(float(text.replace(",", "")) / value, 1, delta=1e-3)

    def check_page_of_summary(self, browser):
        page = self.path("page.html")
        command = self.start("poseidon", "status", self.path("out"), f"--page={page}")
        self.assertEqual(command.wait(), cluster.SUCCESS)
        browser.open(f"file://{page}")
        summary = self.read_json("out/summary.json")
        self.assertEqual(browser.text("iteration"), f"{summary['iterations']:,}")
        schemes = [row[1] for row in browser.rows("buckets")]
        self.assertEqual(schemes, [bucket["scheme"] for bucket in summary["buckets"]])


class LearningPageTest(MonitoredTest, lenet.LenetTest):
    """The page of a training whose loss falls."""

    def setUp(self):
        if not cluster.has_torch():
            self.skipTest("needs libtorch")
        super().setUp()

    @needs_browser
    def test_curves_and_timeline(self):
        self.copy_solver()
        run = self.start_run(
            f"""
            cluster {{ workers: {WORKERS} servers: {SERVERS} }}
            training {{
              solver: "{self.path("solver.prototxt")}" iterations: {cluster.ENDLESS}
              batch_per_worker: {BATCH} seed: 3 threads: 1
            }}
            monitor {{ port: 0 }}"""
        )
        url = run.await_output(r"monitor: (http://127\.0\.0\.1:\d+/)")[1]
        self.await_timeline(url)
        browser = Browser(self)
        browser.open(url)
        wait_for(lambda: (browser.evaluate("shown && shown.iteration") or 0) > 30, "curve")
        self.check_drawings(browser, url)
        losses = self.status(url)["history"]["loss"]
        self.assertLess(min(losses), losses[0])
        self.assertEqual(browser.script_errors(), [])
        run.signal(signal.SIGTERM)
        self.assertEqual(run.wait(), cluster.INTERRUPTED)


if __name__ == "__main__":
    cluster.main()
