"""experiments/report/report.py: the tables of results that were made up, whole and not."""

import json
import os
import random
import re
import sys

import cluster
from report_results import REPORT, ReportTest, point

sys.path.insert(0, os.path.dirname(REPORT))
import report_data  # pylint: disable=wrong-import-position


class Tables(ReportTest):
    """What report.html says: mostly without Matplotlib, which takes far longer to load than the rest."""

    SECTION = "Published against ours"

    def setUp(self):
        super().setUp()
        os.mkdir(self.path("path"))
        with open(self.path("path/matplotlib.py"), "w", encoding="ascii") as file:
            file.write('raise ImportError("not here")\n')
        self.without_matplotlib = {"PYTHONPATH": self.path("path")}

    def report(self, *flags):
        self.run_report(*flags, **self.without_matplotlib)
        return self.page()

    def test_published_against_ours(self):
        rows, expected, good, worst = [], [], 0, (0, "")
        for workers in range(2, 40):
            row = point(random.choice(["wfbp", "ps"]), workers, random.uniform(0.4, 0.6))
            published = row["speedup"] * random.uniform(0.8, 1.25)
            fitted = random.random() < 0.2
            row.update(published=published, fitted=str(fitted).lower(), source="a paper")
            rows.append(row)
            percent = 100 * (workers * 0.4 / row["iteration_seconds"] - published) / published
            expected.append(
                (workers, f"{percent:+.1f}%".replace("-", "−"), abs(percent) > 10, fitted)
            )
            if not fitted:
                good += abs(percent) <= 10
                worst = max(worst, (abs(percent), f"{workers} workers, 10 Gb/s: {expected[-1][1]}"))
        self.write(rows + [point("wfbp", 100)])
        page = self.report()
        shown = [
            (
                int(row["workers"][0]),
                row["difference"][0],
                "off" in row["difference"][1],
                row["fitted"][0] == "yes",
            )
            for row in page.rows(self.SECTION)
        ]
        self.assertEqual(shown, expected)
        proofs = sum(not fitted for _, _, _, fitted in expected)
        self.assertIn(
            f"{good} of {proofs} published values to which nothing was fitted are within 10%.",
            page.text,
        )
        self.assertIn(worst[1], page.text)

    def test_a_published_value_is_counted_once_a_mode(self):
        """However many points it is for: it agrees if they all do."""
        rows = [
            point("wfbp", workers, published=workers * 0.8 / factor, fitted="false", mode=mode)
            for mode in ("simulate", "emulate")
            for workers, factor in [(2, 1.02), (4, 1.05), (8, 1.2 if mode == "emulate" else 1)]
        ]
        self.write(rows, {"published": [{"workers": 2}, {"system": "wfbp"}]})
        page = self.report()
        self.assertIn("Simulated: 2 of 2 published values to which", page.text)
        self.assertIn("Emulated: 1 of 2 published values to which", page.text)

    def test_published_values_without_a_result(self):
        rows = [point("wfbp", 8, published=6, fitted="false", bandwidth_gbps=40, devices=4)]
        published = [
            {
                "net": "VGG19",
                "system": "wfbp",
                "workers": 8,
                "bandwidth": "40000Mbps",
                "devices_per_worker": 4,
                "speedup": 6,
                "efficiency": 0,
            },
            {
                "net": "VGG19",
                "system": "wfbp",
                "workers": 16,
                "efficiency": 0.5,
                "speedup": 0,
                "bandwidth": "",
                "source": "elsewhere",
            },
        ]
        self.write(rows, {"published": published})
        page = self.report()
        first, second = page.rows(self.SECTION)
        self.assertEqual(first["published"][0], "6.00 (19%)")
        self.assertEqual(first["devices per worker"][0], "4")
        self.assertEqual(
            [second[name][0] for name in ("workers", "published", "ours", "source")],
            ["16", "(50%)", "no result yet", "elsewhere"],
        )
        self.assertIn("1 published value has no result yet.", page.text)

    def test_modes_against_each_other(self):
        rows = []
        for workers, factor, extra in [(2, 1.05, 0), (4, 1.2, 0), (8, 0.95, 4)]:
            row = point("wfbp", workers)
            rows += [
                row,
                {
                    **row,
                    "mode": "emulate",
                    "iteration_seconds": 0.5 * factor,
                    "bytes_out": row["bytes_out"] + extra,
                    "key": "other",
                },
            ]
        rows.append({**rows[0], "mode": "run", "iteration_seconds": 0.5})
        self.write(rows)
        page = self.report()
        self.assertIn(
            "Of 3 points both simulated and emulated, 2 agree to 10% in iteration time "
            "(the largest difference: −16.7%, wfbp, VGG19, 4 workers",
            page.text,
        )
        self.assertIn("and 2 exactly in bytes.", page.text)
        self.assertIn("Of 1 point both simulated and run, all agree", page.text)
        rows = page.rows("The modes against each other")
        against, moved = "simulated against emulated", "bytes as emulated"
        self.assertEqual([row[against][0] for row in rows], ["−4.8%", "−16.7%", "+5.3%"])
        self.assertEqual(["off" in row[against][1] for row in rows], [False, True, False])
        self.assertEqual(
            [row[moved][0] for row in rows],
            ["equal", "equal", "out 800,000,000 against 800,000,004"],
        )
        self.assertEqual([row["run (ms)"][0] for row in rows], ["500", "", ""])

    def test_times_of_nets_that_were_really_trained_are_not_compared(self):
        """A simulated one is by cluster.flops, and says nothing of this machine; bytes are equal."""
        rows = [
            {**point("wfbp", workers, 0.5 * factor, mode=mode), "key": f"{mode}{workers}"}
            for workers, factors in [(2, (1, 1.05)), (4, (1, 7))]
            for mode, factor in zip(("simulate", "emulate"), factors)
        ]
        self.write(rows, losses={"emulate4": [2.3, 2.2]})
        page = self.report()
        self.assertIn(
            "Of 2 points both simulated and emulated, all of 1 that are compared agree to 10% in iteration "
            "time (the largest difference: −4.8%, wfbp, VGG19, 2 workers",
            page.text,
        )
        self.assertIn(
            "and all exactly in bytes. Times of 1 are not compared: nets really trained.", page.text
        )
        shown = page.rows("The modes against each other")
        against = [row["simulated against emulated"] for row in shown]
        self.assertEqual([text for text, _ in against], ["−4.8%", "trained"])
        self.assertNotIn("off", against[1][1])
        self.assertEqual([row["bytes as emulated"][0] for row in shown], ["equal", "equal"])
        self.assertEqual(shown[1]["emulated (ms)"][0], "3,500")
        self.write(rows[2:], losses={"emulate4": [2.3, 2.2]})
        self.assertIn(
            "Of 1 point both simulated and emulated, all agree exactly in bytes. Times of all are not "
            "compared: nets really trained.",
            self.report().text,
        )

    def test_modes_of_points_that_differ_in_no_column(self):
        """Such as by settings of the communication: each is compared with itself."""
        rows = [
            point("wfbp", 4, seconds * factor, mode=mode, point=name)
            for name, seconds in [("a", 0.5), ("b", 0.9)]
            for mode, factor in [("simulate", 1), ("emulate", 1.02)]
        ]
        self.write(rows)
        page = self.report()
        self.assertIn("Of 2 points both simulated and emulated, all agree to 10%", page.text)
        shown = page.rows("The modes against each other")
        self.assertEqual([row["simulated (ms)"][0] for row in shown], ["500", "900"])

    def test_points_that_a_mode_can_not_execute_are_not_waited_for(self):
        self.write([point("wfbp", workers, mode="emulate") for workers in (2, 4)])
        unfinished = "The experiment is not finished"
        self.assertIn(unfinished, self.report("--points=5").text)
        self.assertIn(unfinished, self.report("--points=5", "--left_out=emulate:2").text)
        page = self.report("--points=5", "--left_out=emulate:3")
        self.assertNotIn(unfinished, page.text)
        self.assertIn("3 are left out, as the mode emulate can't execute them.", page.text)

    def test_each_mode_is_finished_by_itself(self):
        """Also where another one has executed every point, or leaves out as many."""
        rows = [point("wfbp", workers) for workers in (2, 4, 8, 16)]
        self.write(rows + [{**row, "mode": "emulate"} for row in rows[:2]])
        unfinished = "The experiment is not finished: "
        page = self.report("--points=4", "--left_out=simulate:0", "--left_out=emulate:1")
        self.assertIn(unfinished + "1 point that can be emulated lacks a result", page.text)
        self.assertIn("--mode=emulate goes on", page.text)
        self.assertNotIn("that can be simulated", page.text)
        # All of whose points have failed.
        page = self.report("--points=4", "--left_out=emulate:2", "--left_out=run:1")
        self.assertIn(unfinished + "3 points that can be run lack a result", page.text)
        self.assertNotIn("that can be emulated", page.text)

    def test_how_points_came_to_be(self):
        """As their files say it, or do not."""
        rows = [point("wfbp", workers, key=f"s{workers}") for workers in (2, 4, 8)]
        for mode in ("emulate", "run"):
            rows += [{**row, "mode": mode, "key": mode + row["key"]} for row in rows[:2]]
        self.write(rows)
        for key, record in {
            "s2": {"version": "0.1"},
            "s4": {"version": "0.2"},
            "emulates2": {"version": "0.2", "slow_motion": 5},
            "emulates4": {"version": "0.2", "slow_motion": 1},
            "runs2": {"version": "0.2", "hosts": ["node0", "node1 10.0.0.2"]},
            "runs4": {"version": "0.2", "hosts": ["node0", "node1 10.0.0.2", "node2"]},
        }.items():
            with open(self.path(f"points/{key}.json"), "w", encoding="utf-8") as file:
                json.dump(record, file)
        text = self.report().text
        for sentence in (
            "1 simulated by version 0.1.",
            "1 simulated by version 0.2.",
            "1 emulated by version 0.2 in slow motion 5.",
            "1 emulated by version 0.2.",
            "2 run by version 0.2 on node0, node1 10.0.0.2, node2.",
        ):
            self.assertIn(sentence, text)

    def test_a_thousand_spare_servers(self):
        """Whose number is written with a comma in a table."""
        row = report_data.Point({"workers": "10", "servers": "1010"})
        self.assertEqual(row.number(report_data.SPARE_SERVERS), 1000)

    def test_escapes(self):
        evil = '<script>alert("&")</script>'
        row = point(evil, 2, model='a, "b"', published=1, source="<i>&amp;</i>")
        self.write(
            [row],
            {
                "name": evil,
                "title": evil,
                "about": ["1 < 2 & 3", evil],
                "figure": [{"name": "none", "title": evil, "net": ["none"]}],
            },
        )
        self.run_report()  # with Matplotlib, which is asked for the figure
        page = self.page()
        with open(self.path("report.html"), encoding="utf-8") as file:
            self.assertNotIn("<script", file.read())
        self.assertIn("1 < 2 & 3", page.text)
        (shown,) = page.rows("All results")
        self.assertEqual(
            [shown[name][0] for name in ("system", "model", "source")],
            [evil, 'a, "b"', "<i>&amp;</i>"],
        )

    def test_without_matplotlib(self):
        self.write([point("wfbp", 2, published=1)], {"figure": [{"name": "curve"}]})
        output = self.run_report(**self.without_matplotlib)
        self.assertIn("python3-matplotlib", output)
        page = self.page()
        self.assertIn("python3-matplotlib", page.text)
        self.assertEqual(page.pictures, [])
        self.assertFalse(os.path.exists(self.path("curve.png")))
        self.assertEqual(len(page.rows(self.SECTION)), 1)

    def test_no_results(self):
        self.assertIn("there is no", self.run_report(code=1, **self.without_matplotlib))
        self.write([], {"title": "Empty"})
        self.assertIn("There is no result yet.", self.report().text)
        with open(self.path("experiment.json"), "w", encoding="ascii") as file:
            file.write("{")
        output = self.run_report(code=1, **self.without_matplotlib)
        self.assertTrue(re.search(r"experiment.json is no JSON", output))


if __name__ == "__main__":
    cluster.main()
