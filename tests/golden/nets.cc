#include "tests/golden/nets.h"

#include <glog/logging.h>

namespace poseidon {
namespace {

std::string Quoted(const std::string& text) { return "'" + text + "'"; }

std::string Layer(const std::string& type, const std::string& bottom, const std::string& top,
                  const std::string& fields = "") {
  const bool named_by_top = !top.empty() && top != bottom;
  return "layer { name: " + Quoted(named_by_top ? top : bottom + "_" + type) +
         " type: " + Quoted(type) + " bottom: " + Quoted(bottom) +
         (top.empty() ? "" : " top: " + Quoted(top)) + " " + fields + " }\n";
}

std::string Data(const std::string& source, int batch, const std::string& transform) {
  return "layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { " +
         transform + " } data_param { source: " + Quoted(source) +
         " backend: LMDB batch_size: " + std::to_string(batch) + " } }\n";
}

const char* const kXavier = " weight_filler { type: 'xavier' } ";
const char* const kRates = "param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 } ";

std::string Convolution(const std::string& bottom, const std::string& top, int outputs,
                        const std::string& kernel) {
  return Layer("Convolution", bottom, top,
               kRates + std::string("convolution_param { num_output: ") + std::to_string(outputs) +
                   " " + kernel + kXavier + "}");
}

std::string InnerProduct(const std::string& bottom, const std::string& top, int outputs,
                         const std::string& rates = kRates) {
  return Layer(
      "InnerProduct", bottom, top,
      rates + "inner_product_param { num_output: " + std::to_string(outputs) + kXavier + "}");
}

std::string Pooling(const std::string& bottom, const std::string& top, const std::string& fields) {
  return Layer("Pooling", bottom, top, "pooling_param { " + fields + " }");
}

std::string Relu(const std::string& blob) { return Layer("ReLU", blob, blob); }

std::string Loss(const std::string& name, const std::string& scores,
                 const std::string& fields = "") {
  return "layer { name: " + Quoted(name) + " type: 'SoftmaxWithLoss' bottom: " + Quoted(scores) +
         " bottom: 'label' top: " + Quoted(name) + " " + fields + " }\n";
}

std::string LeNet() {
  return Data("images", 16, "scale: 0.00390625") +
         Convolution("data", "conv1", 6, "kernel_size: 5") +
         Pooling("conv1", "pool1", "pool: MAX kernel_size: 2 stride: 2") +
         Convolution("pool1", "conv2", 10, "kernel_size: 3") +
         Pooling("conv2", "pool2", "pool: MAX kernel_size: 2 stride: 2") +
         InnerProduct("pool2", "ip1", 24) + Relu("ip1") + InnerProduct("ip1", "ip2", 10) +
         Loss("loss", "ip2");
}

std::string Cifar10Quick() {
  return Data("images", 16, "scale: 0.01 mean_value: 100 mean_value: 110 mean_value: 120") +
         Convolution("data", "conv1", 8, "kernel_size: 5 pad: 2") +
         Pooling("conv1", "pool1", "pool: MAX kernel_size: 3 stride: 2") + Relu("pool1") +
         Layer("LRN", "pool1", "norm1",
               "lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 norm_region: WITHIN_CHANNEL }") +
         Convolution("norm1", "conv2", 8, "kernel_size: 5 pad: 2 group: 2") + Relu("conv2") +
         Pooling("conv2", "pool2", "pool: AVE kernel_size: 3 stride: 2") +
         Layer("LRN", "pool2", "norm2", "lrn_param { local_size: 5 alpha: 0.5 beta: 0.75 }") +
         Convolution("norm2", "conv3", 12, "kernel_size: 3 pad: 1") + Relu("conv3") +
         Pooling("conv3", "pool3", "pool: AVE kernel_size: 3 stride: 2") +
         InnerProduct("pool3", "ip1", 16) + InnerProduct("ip1", "ip2", 10) + Loss("loss", "ip2");
}

std::string Normalized(const std::string& bottom, const std::string& top, int outputs,
                       const std::string& kernel) {
  return Layer("Convolution", bottom, top,
               "convolution_param { bias_term: false num_output: " + std::to_string(outputs) + " " +
                   kernel + kXavier + "}") +
         Layer("BatchNorm", top, top, "batch_norm_param { moving_average_fraction: 0.9 }") +
         Layer("Scale", top, top, "scale_param { bias_term: true }");
}

std::string ResNet() {
  return Data("images", 16, "scale: 0.01 mean_value: 110") +
         Normalized("data", "conv1", 8, "kernel_size: 3 stride: 2 pad: 1") + Relu("conv1") +
         Normalized("conv1", "a", 8, "kernel_size: 3 pad: 1") + Relu("a") +
         Normalized("a", "b", 8, "kernel_size: 3 pad: 1") +
         "layer { name: 'sum' type: 'Eltwise' bottom: 'conv1' bottom: 'b' top: 'sum' }\n" +
         Relu("sum") + Pooling("sum", "pool", "pool: AVE global_pooling: true") +
         InnerProduct("pool", "scores", 10) + Loss("loss", "scores");
}

std::string Inception() {
  return Data("images", 16, "scale: 0.01 mean_value: 110") +
         Convolution("data", "stem", 8, "kernel_size: 3 stride: 2") + Relu("stem") +
         Convolution("stem", "1x1", 4, "kernel_size: 1") + Relu("1x1") +
         Convolution("stem", "3x3_reduce", 4, "kernel_size: 1") + Relu("3x3_reduce") +
         Convolution("3x3_reduce", "3x3", 4, "kernel_size: 3 pad: 1") + Relu("3x3") +
         Pooling("stem", "pool", "pool: MAX kernel_size: 3 stride: 1 pad: 1") +
         Convolution("pool", "pool_proj", 4, "kernel_size: 1") + Relu("pool_proj") +
         "layer { name: 'all' type: 'Concat' bottom: '1x1' bottom: '3x3' bottom: 'pool_proj' top: "
         "'all' }\n" +
         InnerProduct("stem", "side_scores", 10) + Loss("side", "side_scores", "loss_weight: 0.3") +
         Pooling("all", "ave", "pool: AVE kernel_size: 3 stride: 3") +
         InnerProduct("ave", "scores", 10) + Loss("loss", "scores");
}

std::string Autoencoder() {
  return Data("small", 8, "scale: 0.00390625") + Layer("Silence", "label", "", "") +
         Layer("Flatten", "data", "flat") + InnerProduct("data", "encode1", 20) +
         Layer("Sigmoid", "encode1", "encode1_neuron") +
         InnerProduct("encode1_neuron", "encode2", 5) + InnerProduct("encode2", "decode2", 20) +
         Layer("TanH", "decode2", "decode2_neuron") +
         InnerProduct("decode2_neuron", "decode1", 36) +
         "layer { name: 'cross_entropy' type: 'SigmoidCrossEntropyLoss' bottom: 'decode1' "
         "bottom: 'flat' top: 'cross_entropy' loss_weight: 1 }\n" +
         Layer("Sigmoid", "decode1", "decode1_neuron") +
         "layer { name: 'l2' type: 'EuclideanLoss' bottom: 'decode1_neuron' bottom: 'flat' top: "
         "'l2' loss_weight: 0.5 }\n";
}

// A pair is images i and i + 4 of a batch; the first one's label stands for whether they are alike.
std::string Siamese() {
  const std::string shared = "param { name: 'w' lr_mult: 1 } param { name: 'b' lr_mult: 2 } ";
  return Data("small", 8, "scale: 0.00390625") +
         "layer { name: 'halves' type: 'Slice' bottom: 'data' top: 'one' top: 'two' slice_param { "
         "axis: 0 } }\n"
         "layer { name: 'labels' type: 'Slice' bottom: 'label' top: 'label1' top: 'label2' "
         "slice_param { axis: 0 } }\n" +
         Layer("Silence", "label2", "") +
         Layer("Threshold", "label1", "same", "threshold_param { threshold: 4.5 }") +
         InnerProduct("one", "feature1", 6, shared) + InnerProduct("two", "feature2", 6, shared) +
         "layer { name: 'loss' type: 'ContrastiveLoss' bottom: 'feature1' bottom: 'feature2' "
         "bottom: 'same' top: 'loss' contrastive_loss_param { margin: 2 } }\n";
}

// Each pixel has a class: whether it is bright in the second channel. Scores come down to half the
// extent and up again by an interpolation that is not learned.
std::string Segmentation() {
  return Data("images", 8, "scale: 0.01 mean_value: 110") + Layer("Silence", "label", "") +
         "layer { name: 'colors' type: 'Slice' bottom: 'data' top: 'first' top: 'second' top: "
         "'third' }\n" +
         "layer { name: 'images' type: 'Concat' bottom: 'first' bottom: 'third' top: 'images' }\n" +
         Layer("Threshold", "second", "classes", "threshold_param { threshold: 0 }") +
         Convolution("images", "side", 2, "kernel_size: 3 pad: 1") +
         Convolution("images", "conv1", 6, "kernel_size: 3 pad: 1") +
         Layer("PReLU", "conv1", "conv1") +
         Pooling("conv1", "pool1", "pool: MAX kernel_size: 2 stride: 2") +
         Convolution("pool1", "conv2", 6, "kernel_size: 3 dilation: 2 pad: 2") +
         Layer("ELU", "conv2", "conv2") + Convolution("conv2", "scores", 2, "kernel_size: 1") +
         Layer("Deconvolution", "scores", "large",
               "param { lr_mult: 0 } convolution_param { num_output: 2 group: 2 bias_term: false "
               "kernel_size: 4 stride: 2 weight_filler { type: 'bilinear' } }") +
         "layer { name: 'crop' type: 'Crop' bottom: 'large' bottom: 'classes' top: 'crop' "
         "crop_param { axis: 2 offset: 1 } }\n"
         "layer { name: 'skip' type: 'Eltwise' bottom: 'crop' bottom: 'side' top: 'sum' "
         "eltwise_param { coeff: 1 coeff: 0.5 } }\n"
         "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'sum' bottom: 'classes' top: 'loss' "
         "loss_param { normalization: VALID } }\n";
}

// Layers by phase, stage and level; a gradient that is not passed down; layers that do not learn; a
// layer of no loss type with a weight.
std::string Rules() {
  return Data("small", 8, "scale: 0.00390625") +
         Layer("InnerProduct", "data", "frozen",
               "param { lr_mult: 0 } param { lr_mult: 0 } inner_product_param { num_output: 12" +
                   std::string(kXavier) + "}") +
         Layer("TanH", "frozen", "frozen", "include { stage: 'tanh' }") +
         Layer("Power", "frozen", "frozen",
               "power_param { scale: 100 } include { stage: 'tanh' not_stage: 'small' }") +
         Layer("Sigmoid", "frozen", "frozen", "include { min_level: 3 }") +
         Layer("BNLL", "frozen", "frozen", "exclude { phase: TEST } exclude { max_level: 1 }") +
         InnerProduct("frozen", "hidden", 8) + Layer("Sigmoid", "hidden", "hidden") +
         InnerProduct("hidden", "reconstruction", 12) +
         "layer { name: 'l2' type: 'EuclideanLoss' bottom: 'reconstruction' bottom: 'frozen' top: "
         "'l2' loss_weight: 0.1 }\n" +
         Layer("InnerProduct", "hidden", "apart",
               "propagate_down: false inner_product_param { num_output: 4" + std::string(kXavier) +
                   "}") +
         Layer("Reduction", "apart", "size",
               "loss_weight: 0.01 reduction_param { operation: SUMSQ }") +
         InnerProduct("hidden", "scores", 10) + Loss("loss", "scores");
}

// What a class looks like, from its label: two layers read the same table.
std::string Embedding() {
  const std::string table = "param { name: 'table' lr_mult: 2 } param { name: 'bias' lr_mult: 1 } ";
  const auto embed = [&](const std::string& top, const std::string& rates) {
    return Layer("Embed", "label", top,
                 rates + "embed_param { input_dim: 10 num_output: 36" + std::string(kXavier) + "}");
  };
  return Data("small", 8, "scale: 0.01") + Layer("Flatten", "data", "pixels") +
         embed("first", table) + embed("second", table) +
         "layer { name: 'product' type: 'Eltwise' bottom: 'first' bottom: 'second' top: 'product' "
         "eltwise_param { operation: PROD } }\n" +
         Layer("Scale", "product", "scaled",
               "scale_param { bias_term: true filler { value: 0.5 } }") +
         Layer("Swish", "scaled", "scaled") +
         "layer { name: 'l2' type: 'EuclideanLoss' bottom: 'scaled' bottom: 'pixels' top: 'l2' "
         "}\n" +
         Layer("Softmax", "first", "shares") + Layer("Log", "shares", "logs") +
         Layer("Reduction", "logs", "evenness",
               "loss_weight: -0.001 reduction_param { operation: MEAN axis: 1 }");
}

// The images' rows are streams, the batch is time, and all sequences go on for ever: each iteration
// begins with the states that the one before has left.
std::string Recurrent() {
  const auto recurrent = [](const std::string& type, const std::string& bottom,
                            const std::string& top) {
    return "layer { name: '" + top + "' type: '" + type + "' bottom: '" + bottom +
           "' bottom: 'goes_on' top: '" + top + "' recurrent_param { num_output: 7" + kXavier +
           "} }\n";
  };
  return Data("small", 8, "scale: 0.01") +
         "layer { name: 'goes_on' type: 'DummyData' top: 'goes_on' dummy_data_param { shape { dim: "
         "8 dim: 6 } data_filler { value: 1 } } }\n" +
         Layer("Reshape", "data", "rows", "reshape_param { shape { dim: 0 dim: 6 dim: 6 } }") +
         recurrent("LSTM", "rows", "lstm") + recurrent("RNN", "lstm", "rnn") +
         InnerProduct("rnn", "scores", 10) + Loss("loss", "scores");
}

// Learns from the brighter images of a batch only, which are more or fewer.
std::string Filter() {
  return Data("small", 8, "scale: 0.01") +
         Layer("Reduction", "data", "brightness", "reduction_param { axis: 1 }") +
         Layer("Threshold", "brightness", "bright", "threshold_param { threshold: 18 }") +
         InnerProduct("data", "ip1", 12) + Layer("TanH", "ip1", "ip1") +
         "layer { name: 'filter' type: 'Filter' bottom: 'ip1' bottom: 'label' bottom: 'bright' "
         "top: 'features' top: 'labels' }\n" +
         Layer("ReLU", "features", "rectified") + InnerProduct("rectified", "ip2", 10) +
         "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'labels' top: 'loss' "
         "propagate_down: true propagate_down: false }\n";
}

}  // namespace

std::string SmallNet() {
  return Data("small", 8, "scale: 0.00390625") + InnerProduct("data", "ip1", 5) +
         Layer("TanH", "ip1", "ip1") + InnerProduct("ip1", "ip2", 10) + Loss("loss", "ip2");
}

std::string TrainingNet(const std::string& name) {
  if (name == "lenet") return LeNet();
  if (name == "cifar10_quick") return Cifar10Quick();
  if (name == "resnet") return ResNet();
  if (name == "inception") return Inception();
  if (name == "autoencoder") return Autoencoder();
  if (name == "segmentation") return Segmentation();
  if (name == "rules") return Rules();
  if (name == "embedding") return Embedding();
  if (name == "recurrent") return Recurrent();
  if (name == "filter") return Filter();
  CHECK_EQ(name, "siamese");
  return Siamese();
}

}  // namespace poseidon
