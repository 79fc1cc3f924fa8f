// Writes inputs for the fuzz targets to start from:  fuzz_seeds DIR  makes DIR/net, DIR/solver, ...
#include <filesystem>
#include <fstream>
#include <iostream>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/solver_state.h"
#include "tests/fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;

// Of the layers that nets are made of, one in each format.
constexpr const char* kNets[] = {
    R"(name: "n" layer { name: "d" type: "Data" top: "x" top: "y" include { phase: TRAIN }
         data_param { source: "db" batch_size: 4 backend: LMDB }
         transform_param { crop_size: 8 mirror: true } }
       layer { name: "c" type: "Convolution" bottom: "x" top: "c" param { name: "w" lr_mult: 1 }
         convolution_param { num_output: 2 kernel_size: 3 weight_filler { type: "xavier" } } }
       layer { name: "p" type: "Pooling" bottom: "c" top: "p"
         pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
       layer { name: "s" type: "SoftmaxWithLoss" bottom: "p" bottom: "y" loss_weight: 1 })",
    R"(input: "x" input_dim: 2 input_dim: 1 input_dim: 4 input_dim: 4
       layers { name: "f" type: INNER_PRODUCT bottom: "x" top: "f" blobs_lr: 1 blobs_lr: 2
         weight_decay: 1 param: "w" inner_product_param { num_output: 4 } }
       layers { name: "r" type: RELU bottom: "f" top: "f" exclude { phase: TEST stage: "a" } })",
    R"(layers { layer { name: "d" type: "data" source: "db" batchsize: 8 cropsize: 5 } top: "x" }
       layers { layer { name: "q" type: "padding" pad: 2 } bottom: "x" top: "q" }
       layers { layer { name: "c" type: "conv" num_output: 4 kernelsize: 5 group: 1 stride: 3 }
         bottom: "q" top: "c" })"};

constexpr const char* kSolvers[] = {
    R"(net: "n" base_lr: 0.1 lr_policy: "step" stepsize: 10 gamma: 0.5 max_iter: 100 momentum: 0.9
       weight_decay: 0.1 test_iter: 2 test_interval: 5 type: "Nesterov")",
    R"(train_net: "n" base_lr: 0.1 lr_policy: "multistep" stepvalue: 3 stepvalue: 5 gamma: 0.1
       solver_type: ADAM momentum2: 0.9 delta: 1e-8 clip_gradients: 3 iter_size: 2)"};

template <size_t Count>
void WriteTexts(const fs::path& directory, const char* const (&texts)[Count]) {
  fs::create_directories(directory);
  for (size_t i = 0; i < Count; ++i) std::ofstream(directory / std::to_string(i)) << texts[i];
}

void WriteModels(const fs::path& root) {
  const poseidon::NetDescription net = poseidon::FuzzedNet();
  poseidon::NetValues values;
  for (const poseidon::LayerDescription& layer : net.layers) {
    auto& blobs = values.emplace_back();
    for (const auto& parameter : layer.parameters)
      blobs.emplace_back(poseidon::Count(parameter.shape), 0.5F);
  }
  fs::create_directories(root / "caffemodel");
  poseidon::WriteCaffemodel(root / "caffemodel" / "new", net, values);
  poseidon::caffe::NetParameter old;
  poseidon::ParseText(R"(layers { name: "a" type: INNER_PRODUCT
      blobs { num: 1 channels: 1 height: 3 width: 3 data: [1,2,3,4,5,6,7,8,9] }
      blobs { num: 1 channels: 1 height: 1 width: 3 data: [1,2,3] } })",
                      "old", old);
  poseidon::WriteBinaryFile(root / "caffemodel" / "old", old);

  poseidon::SolverState state;
  state.iteration = 7;
  state.learned_net = "n.caffemodel";
  for (int i = 0; i < 2; ++i) {
    state.history.push_back({{3, 3}, std::vector<float>(9, 0.5F)});
    state.history.push_back({{3}, std::vector<float>(3, 0.5F)});
  }
  fs::create_directories(root / "solverstate");
  poseidon::WriteSolverState(root / "solverstate" / "adam", state);
}

void WriteDatums(const fs::path& root) {
  poseidon::caffe::Datum datum;
  datum.set_channels(2);
  datum.set_height(3);
  datum.set_width(4);
  datum.set_label(5);
  fs::create_directories(root / "datum");
  for (int i = 0; i < 24; ++i) datum.add_float_data(static_cast<float>(i));
  std::ofstream(root / "datum" / "floats") << datum.SerializeAsString();
  datum.clear_float_data();
  datum.set_data(std::string(24, 'x'));
  std::ofstream(root / "datum" / "bytes") << datum.SerializeAsString();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "fuzz_seeds DIR\n";
    return 2;
  }
  const fs::path root = argv[1];
  fs::remove_all(root);
  WriteTexts(root / "net", kNets);
  WriteTexts(root / "solver", kSolvers);
  WriteModels(root);
  WriteDatums(root);
  return 0;
}
