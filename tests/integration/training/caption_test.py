"""A net of the form of Caffe's captioning example (coco_caption: LRCN, factored, two layers): images and
sentences from two data layers, an embedding, and two LSTMs, of which the second sees the image. Two workers
share the images with their sentences, and train as one with all of them."""

import math

import cluster
import lenet
import rounding

STREAMS = 4  # as make_captions.cc has them
STEPS = 6

DATA = """
layer {{ name: "data" type: "HDF5Data" include {{ phase: {phase} }}
  top: "cont_sentence" top: "input_sentence" top: "target_sentence"
  hdf5_data_param {{ source: "{directory}/{workers}_workers.txt" batch_size: {steps} }} }}
layer {{ name: "data" type: "ImageData" include {{ phase: {phase} }} top: "data" top: "label"
  transform_param {{ mirror: true crop_size: 31 scale: 0.01 mean_value: 80 mean_value: 85 mean_value: 90 }}
  image_data_param {{ source: "{directory}/images.txt" root_folder: "{directory}/" batch_size: {streams}
                     new_height: 36 new_width: 36 }} }}
layer {{ name: "silence" type: "Silence" bottom: "label" include {{ phase: {phase} }} }}
"""

NET = """
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 8 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "norm1" type: "LRN" bottom: "pool1" top: "norm1" lrn_param { local_size: 5 alpha: 0.0001 } }
layer { name: "conv2" type: "Convolution" bottom: "norm1" top: "conv2"
  param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  convolution_param { num_output: 8 kernel_size: 3 group: 2 weight_filler { type: "xavier" } } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "fc7" type: "InnerProduct" bottom: "conv2" top: "fc7"
  inner_product_param { num_output: 16 weight_filler { type: "xavier" } } }
layer { name: "relu7" type: "ReLU" bottom: "fc7" top: "fc7" }
layer { name: "drop7" type: "Dropout" bottom: "fc7" top: "fc7" dropout_param { dropout_ratio: DROPPED } }
layer { name: "fc8" type: "InnerProduct" bottom: "fc7" top: "fc8"
  inner_product_param { num_output: 12 weight_filler { type: "xavier" } } }
layer { name: "embedding" type: "Embed" bottom: "input_sentence" top: "embedded_input_sentence"
  embed_param { bias_term: false input_dim: 10 num_output: 12
                weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "lstm1" type: "LSTM" bottom: "embedded_input_sentence" bottom: "cont_sentence"
  bottom: "fc8" top: "lstm1" include { stage: "unfactored" }
  recurrent_param { num_output: 16 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "lstm1" type: "LSTM" bottom: "embedded_input_sentence" bottom: "cont_sentence" top: "lstm1"
  include { stage: "factored" }
  recurrent_param { num_output: 16 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "lstm2" type: "LSTM" bottom: "lstm1" bottom: "cont_sentence" bottom: "fc8" top: "lstm2"
  include { stage: "factored" stage: "2-layer" }
  recurrent_param { num_output: 16 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "predict" type: "InnerProduct" bottom: "lstm2" top: "predict"
  include { stage: "2-layer" } param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  inner_product_param { num_output: 10 axis: 2 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "cross_entropy_loss" type: "SoftmaxWithLoss" bottom: "predict" bottom: "target_sentence"
  top: "cross_entropy_loss" loss_weight: 20 loss_param { ignore_label: -1 } softmax_param { axis: 2 } }
layer { name: "accuracy" type: "Accuracy" bottom: "predict" bottom: "target_sentence" top: "accuracy"
  include { phase: TEST } accuracy_param { axis: 2 ignore_label: -1 } }
"""

STATE = 'stage: "factored" stage: "2-layer"'
SOLVER = """
net: "%s" train_state { {state} } test_state { {state} } test_iter: 12 test_interval: 1000000
test_initialization: false base_lr: 0.004 lr_policy: "step" gamma: 0.5 stepsize: 300 momentum: 0.9
weight_decay: 0 clip_gradients: 10 average_loss: 100 display: 1 max_iter: 900 random_seed: 1701
""".replace(
    "{state}", STATE
)


class CaptionTest(lenet.LenetTest):
    def setUp(self):
        cluster.ClusterTest.setUp(self)
        make = self.start("../tests/make_captions", f"--out={self.path('captions')}", name="make")
        self.assertEqual(make.wait(), cluster.SUCCESS)
        self.write("solver.prototxt", SOLVER % self.path("net.prototxt"))

    def train_captions(self, workers, iterations, *, sentences=None, dropped=0, training=""):
        """`sentences`: those for so many workers, if not for these."""
        data = [
            DATA.format(
                phase=phase,
                directory=self.path("captions"),
                workers=sentences or workers,
                streams=STREAMS // (sentences or workers),
                steps=STEPS,
            )
            for phase in ("TRAIN", "TEST")
        ]
        self.write("net.prototxt", "".join(data) + NET.replace("DROPPED", str(dropped)))
        if callable(training):
            training = training()
        summary = self.run_job(
            f"""
            cluster {{ workers: {workers} servers: 1 }}
            communication {{ deterministic: true }}
            training {{
              solver: "{self.path("solver.prototxt")}" iterations: {iterations}
              seed: 3 threads: 1 shuffle: false {training} }}"""
        )
        self.assert_same_parameters(summary, workers)
        return summary

    def losses_from(self, move, workers, **options):
        weights = lambda: f'weights: "{self.first_values(move)}"'
        return self.train_captions(workers, 12, training=weights, **options)["loss"]

    def test_two_workers_are_one(self):
        """Without Dropout, whose masks are each worker's own."""
        alone = rounding.Rounding(lambda move: self.losses_from(move, 1), moves=1)
        alone.assert_same(self, self.losses_from(0, 2))
        # One worker that has half of the images in each batch: a mistake.
        alone.assert_differs(self, self.losses_from(0, 1, sentences=2))

    @cluster.slow
    def test_two_workers_learn_which_sentence_belongs_to_which_image(self):
        losses = self.train_captions(2, 900, dropped=0.2)["loss"]
        # The first of a sentence's words tells the others, and which of three it is only the image says.
        # Who does not look at it loses log(3) at one word of five; the loss_weight is 20.
        blind = 20 * math.log(3) / 5
        self.assertGreater(losses[0], 2 * blind)
        self.assertLess(sum(losses[-12:]) / 12, 0.7 * blind)


if __name__ == "__main__":
    cluster.main()
