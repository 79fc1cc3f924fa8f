"""experiments/report/report.py: the figures of results that were made up, whole and not."""

import random

import cluster
from report_results import FiguresTest, point

COLORS = {"ps": "#E69F00", "wfbp": "#009E73", "poseidon": "#0072B2", "time": "#D55E00"}


class Figures(FiguresTest):
    """Pictures."""

    def test_a_system_has_one_color_in_all_figures(self):
        rows = [
            point(system, workers, 0.4 + delay * workers)
            for system, delay in [("ps", 0.1), ("wfbp", 0.02), ("mine", 0.004), ("time", 0)]
            for workers in (1, 2, 4, 8)
        ]
        self.draw(
            rows,
            [
                {"name": "all", "kind": "LINES"},
                {"name": "two", "kind": "BARS", "system": ["wfbp", "mine"], "y": "bytes_out"},
                {"name": "busy", "kind": "STACKED", "system": ["time"]},
            ],
        )
        known = [COLORS[name] for name in ("ps", "wfbp", "poseidon", "time")]
        for name, expected in [
            ("all.png", [True, True, False, True]),
            ("two.png", [False, True, False, False]),
            ("busy.png", [False, False, False, True]),
        ]:
            self.assertEqual([count > 300 for count in self.pixels(name, *known)], expected, name)

    def test_points_with_spare_servers_leave_the_lines_of_the_others(self):
        """A line's pixels are many more than those of its marks alone."""
        rows = [point("wfbp", workers, 0.4 + 0.02 * workers) for workers in (1, 2, 4, 8)]
        figure = [{"name": "curve"}]
        self.draw(rows, figure)
        (alone,) = self.pixels("curve.png", COLORS["wfbp"])
        spare = [point("wfbp", 8, 0.41, servers=8 + more) for more in (4, 8)]
        # The second only with those of so many workers, of which the caption then speaks.
        eight = {"name": "eight", "x": "servers", "workers": [8]}
        page = self.draw(rows + spare, [*figure, eight])
        self.assertGreater(self.pixels("curve.png", COLORS["wfbp"])[0], 0.9 * alone)
        self.assertIn("8 workers", page.text)

    def test_sweeps_tell_points_apart_that_no_other_column_does(self):
        """Where there are such points; their figure has a line for each sweep."""
        small = [point("wfbp", workers) for workers in (1, 2)]
        more = [point("wfbp", workers, sweep="chunks of 64 KiB") for workers in (4, 8)]
        figure = {"name": "curve"}
        self.assertEqual(self.drawn(small + more, figure)["legend"], ["wfbp"])
        same = [point("wfbp", 2, 0.6, sweep="chunks of 64 KiB")]
        self.assertEqual(
            self.drawn(small + same + more, figure)["legend"],
            ["wfbp", "sweep 1", "sweep chunks of 64 KiB"],
        )
        self.assertEqual(
            self.drawn(small + same + more, {**figure, "sweep": ["1"]})["legend"], ["wfbp"]
        )
        self.assertEqual(
            self.drawn(small + same + more, {**figure, "series": "sweep"})["legend"],
            ["sweep 1", "sweep chunks of 64 KiB"],
        )

    def test_published_values_are_drawn(self):
        """Hollow marks far from the line, so the picture has more of the color, and says so."""
        rows = [point("wfbp", workers, 0.45) for workers in (1, 2, 4, 8)]
        figure = [{"name": "curve", "ideal": True}]
        self.assertNotIn("Hollow", self.draw(rows, figure).text)
        (without,) = self.pixels("curve.png", COLORS["wfbp"])
        rows[2].update(published=1.5, fitted="true")
        rows[3].update(published=2, fitted="false")
        page = self.draw(rows, figure)
        self.assertIn(
            "Hollow marks are published values; a parameter was fitted to the half-filled ones.",
            page.text,
        )
        self.assertGreater(self.pixels("curve.png", COLORS["wfbp"])[0], without + 50)

    def test_the_ideal_is_of_what_y_is(self):
        """Not y = x where y is no speedup."""
        rows = [point("wfbp", workers, 0.5) for workers in (1, 2, 4)]
        for y, ideal in [
            ("speedup", [1, 2, 4]),
            ("efficiency", [1, 1, 1]),
            ("images_per_second", [80, 160, 320]),
            ("iteration_seconds", [0.4, 0.4, 0.4]),
            ("bytes_out", None),
            ("gpu_busy", None),
        ]:
            with self.subTest(y):
                said = self.drawn(rows, {"name": "curve", "y": y, "ideal": True})["ideal"]
                self.assertEqual(said and [round(value, 6) for value in said], ideal)

    def test_numbers_of_bars_are_in_the_axis_unit(self):
        """Also where the room above a bar is what makes it gigabytes."""
        figure = {"name": "bars", "kind": "BARS", "y": "bytes_out"}
        for bytes_out, unit, number in [(9.6e9, "GB", "9.6"), (9.3e9, "MB", "9,300")]:
            said = self.drawn([point("wfbp", 2, bytes_out=bytes_out)], figure)
            self.assertIn(f"({unit}/", said["label"])
            self.assertEqual(said["numbers"], [number])

    def test_every_kind_with_panels_and_logarithms(self):
        rows = [
            point(
                system,
                workers,
                0.4 + 1 / bandwidth,
                model=model,
                bandwidth_gbps=bandwidth,
                latency_us=latency,
                schemes=f"PS {bandwidth}.0M, SFB 9.5M",
                mode=mode,
                condition=condition,
                bytes_out=0 if workers == 1 else 1e6,
            )
            for system in ("wfbp", "time")
            for workers in (1, 16, 4096)
            for bandwidth in (1, 10)
            for latency in (5, 500)
            for model in ("VGG19", "Net, 2")
            for mode in ("simulate", "emulate")
            for condition in ("", "slow link")
        ]
        field = {
            "kind": "MAP",
            "x": "bandwidth_gbps",
            "y": "latency_us",
            "log_x": True,
            "log_y": True,
        }
        page = self.draw(
            rows,
            [
                {"name": "lines", "kind": "LINES", "panel": "model", "log_x": True, "log_y": True},
                {"name": "by_condition", "kind": 0, "x": "condition", "y": "iteration_seconds"},
                {"name": "bars", "kind": "BARS", "x": "model", "y": "bytes_out", "log_y": True},
                {"name": "stacked", "kind": "STACKED", "x": "system", "panel": "workers"},
                {"name": "schemes", "color": "schemes", "panel": "workers", **field},
                {"name": "systems", "color": "system", **field},
                {"name": "number", "color": "iteration_seconds", **field},
                {"name": "names", **field, "kind": "MAP", "x": "condition", "y": "model"},
            ],
        )
        self.assertIn("the scheme that has most of the parameters", page.text)

    def test_a_map_counts_thousands_of_parameters(self):
        """As the programs write less than a million of them."""
        rows = [point("time", 2, schemes="PS 900.0K, SFB 1.0M")]
        field = {"name": "map", "kind": "MAP", "x": "workers", "y": "latency_us"}
        self.assertEqual(self.drawn(rows, field)["numbers"], ["53"])

    def test_losses(self):
        rows = [point(system, 4, model="CIFAR-10") for system in ("wfbp", "time")]
        rows.append(point("ps", 4))  # Its file is not there.
        losses = {row["key"]: [2 + random.random() for _ in range(400)] for row in rows[:2]}
        losses[rows[1]["key"]][7] = None
        page = self.draw(rows, [{"name": "loss", "kind": "LOSSES", "log_y": True}], losses)
        self.assertIn("means over 10", page.text)
        drawn = self.pixels("loss.png", *COLORS.values())
        self.assertEqual([count > 100 for count in drawn], [False, True, False, True])

    def test_what_is_missing_breaks_nothing(self):
        rows = [
            point("wfbp", 2),
            point("wfbp", 4, speedup="", efficiency="nan"),
            point("time", 2, iteration_seconds="", predicted_seconds="", speedup=""),
            point("time", 8, published="", imbalance="", schemes=""),
        ]
        self.write(
            rows,
            {
                "figure": [
                    {"name": "curve", "panel": "model"},
                    {"name": "none", "title": "Nobody", "net": ["x"]},
                    {"name": "wrong", "title": "Wrong", "y": "beauty"},
                    {"name": "loss", "title": "Losses", "kind": "LOSSES"},
                    {"name": "a/../b", "kind": "MAP", "x": "workers", "y": "bandwidth_gbps"},
                ]
            },
        )
        page = self.report("--points=6")
        self.assertEqual([one["src"] for one in page.pictures], ["curve.png", "a____b.png"])
        for text in (
            "Nobody. Not drawn: none of its points is there yet.",
            "Wrong. Not drawn: results.csv has no column beauty.",
            "Losses. Not drawn: none",
            "Points: 3 simulated, of 6 that the experiment has.",
            "1 row of results.csv has no result.",
            "The experiment is not finished",
        ):
            self.assertIn(text, page.text)

    def test_names_of_any_letters(self):
        """Neither HTML nor Matplotlib's formulas nor its hidden labels."""
        names = ['<b>&"', "_hidden", "$x^", "a,b\nc", "Größe"]
        self.draw(
            [point(name, workers, model=name) for name in names for workers in (1, 2)],
            [{"name": "curve"}, {"name": "bars", "kind": "BARS", "panel": "model"}],
        )


if __name__ == "__main__":
    cluster.main()
