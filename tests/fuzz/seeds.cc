// Writes inputs for the fuzz targets to start from:  fuzz_seeds DIR  makes DIR/net, DIR/solver, ...
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/solver_state.h"
#include "core/files/journal_file.h"
#include "proto/journal.pb.h"
#include "proto/wire.pb.h"
#include "tests/fuzz/fuzz.h"
#include "transport/zmq/zmq_frame.h"

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

constexpr const char* kHosts[] = {"node0\nalice@node1  10.0.0.2  slots=2\nnode2 roles=server\n",
                                  "# hosts\n10.0.0.1\n\n10.0.0.2 roles=server,worker\n"};

// Of worker 1, which has lost the scheduler, and of a server.
constexpr const char* kEvents[] = {
    R"({"version":1,"role":3,"rank":1,"process":7,"host":"node1","clock":"a","wall_clock_ns":5,)"
    R"("written_ns":900,"exit_code":3,"reason":"lost the scheduler at tcp://node0:9700",)"
    R"("layers":["fc"],"buckets":["fc"],"columns":[],"lanes":[{"lane":2,"events":[[100,1,31,2,)"
    R"(0,2,1,64,3,0,0,0],[150,2,32,2,0,2,1,64,3,0,0,0]]}],"connections":[{"role":1,"rank":0,)"
    R"("lane":0,"state":"established","unconfirmed_bytes":5,"retransmissions":1,)"
    R"("window_closed":false}],"available_memory":99,"resident_memory":5,)"
    R"("out_of_memory_kills":0})"
    "\n"
    R"({"version":1,"role":2,"rank":0,"process":8,"host":"node0","clock":"b","wall_clock_ns":6,)"
    R"("written_ns":800,"exit_code":3,"reason":"lost worker 1 (node1, process 7),)"
    R"( last heard 3 s ago","layers":[],"buckets":["fc"],"columns":[],"lanes":[{"lane":2,)"
    R"("events":[[120,2,31,3,1,2,1,64,3,0,0,0],[130,1,32,3,1,2,1,64,3,0,0,0]]}],)"
    R"("connections":[],"available_memory":99,"resident_memory":5,"out_of_memory_kills":0})"};

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

// The files of a folder of configs/.
void CopyConfigs(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(fs::path(CONFIGS) / from)) {
    if (entry.path().extension() == ".prototxt") fs::copy_file(entry, to / entry.path().filename());
  }
}

void WriteJournal(const fs::path& directory) {
  fs::create_directories(directory);
  poseidon::JournalFile journal(directory / "journal", "the fuzzer");
  poseidon::wire::JournalRecord record;
  record.mutable_finished()->set_rank(1);
  journal.Append(record.SerializeAsString());
  journal.Append("");
}

void WriteFrame(const fs::path& directory) {
  fs::create_directories(directory);
  poseidon::wire::FrameHeader header;
  header.set_version(poseidon::kProtocolVersion);
  header.set_kind(31);
  header.set_from_role(2);
  header.set_body_bytes(4);
  std::ofstream(directory / "frame") << std::string("\x04\0", 2) << header.SerializeAsString();
}

// Numbers by which each of the jobs is disturbed in some way.
void WriteActors(const fs::path& directory) {
  constexpr int kSeeds = 32;
  constexpr int kNumbers = 200;
  fs::create_directories(directory);
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    std::ofstream file(directory / std::to_string(seed), std::ios::binary);
    file.put(static_cast<char>(seed));
    for (int i = 0; i < kNumbers; ++i) file.put(static_cast<char>(random() % 256));
  }
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
  WriteTexts(root / "hosts", kHosts);
  WriteTexts(root / "events", kEvents);
  CopyConfigs("", root / "job");
  CopyConfigs("experiments", root / "experiment");
  WriteJournal(root / "journal");
  WriteFrame(root / "frame");
  WriteActors(root / "actors");
  return 0;
}
