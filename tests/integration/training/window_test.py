"""Windows of images, as WindowData layers draw them: two workers train on them as one does with both batches."""

import os

import cluster
import lenet
import rounding

INPUTS = os.path.join(cluster.REPOSITORY, "tests/golden/data/inputs")
BATCH = 8  # of all workers


class WindowTest(lenet.LenetTest):
    def setUp(self):
        cluster.ClusterTest.setUp(self)
        self.write(
            "solver.prototxt",
            f"""net: "{self.path('net.prototxt')}" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed"
            max_iter: 40 display: 1""",
        )

    def write_net(self, batch, foreground):
        self.write(
            "net.prototxt",
            f"""
            layer {{ name: "data" type: "WindowData" top: "data" top: "label"
              transform_param {{ mirror: true crop_size: 13 mean_value: 104 mean_value: 117 mean_value: 123 }}
              window_data_param {{ source: "{INPUTS}/windows.txt" root_folder: "{INPUTS}/images/"
                batch_size: {batch} fg_fraction: {foreground} context_pad: 2 scale: 0.01 }} }}
            layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
              convolution_param {{ num_output: 8 kernel_size: 3 weight_filler {{ type: "xavier" }} }} }}
            layer {{ name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }}
            layer {{ name: "ip" type: "InnerProduct" bottom: "conv1" top: "ip"
              inner_product_param {{ num_output: 8 weight_filler {{ type: "xavier" }} }} }}
            layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}""",
        )

    def losses(self, workers, move, foreground=0.25):
        self.write_net(BATCH // workers, foreground)
        summary = self.run_job(
            f"""
            cluster {{ workers: {workers} servers: 1 }}
            communication {{ deterministic: true }}
            training {{ solver: "{self.path("solver.prototxt")}" iterations: 40 seed: 3 threads: 1
              weights: "{self.first_values(move)}" }}"""
        )
        self.assert_same_parameters(summary, workers)
        return summary["loss"]

    def test_two_workers_are_one(self):
        alone = rounding.Rounding(lambda move: self.losses(1, move), moves=1)
        self.assertLess(alone.reference[-1], 0.5 * alone.reference[0], "it learns nothing")
        alone.assert_same(self, self.losses(2, 0))
        # Another share of the foreground: a mistake.
        alone.assert_differs(self, self.losses(2, 0, foreground=0.5))


if __name__ == "__main__":
    cluster.main()
