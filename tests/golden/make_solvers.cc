#include <google/protobuf/text_format.h>

#include <caffe/caffe.hpp>
#include <filesystem>
#include <fstream>

#include "tests/golden/golden.h"
#include "tests/golden/records.h"
#include "tests/golden/solver_cases.h"

namespace poseidon {
namespace {

// The mean loss of the forward passes since it was asked last.
class MeanLoss : public ::caffe::Net<float>::Callback {
 public:
  explicit MeanLoss(const ::caffe::Net<float>& net) : net_(net) {}

  float Take() {
    const float mean = sum_ / static_cast<float>(passes_);
    sum_ = 0;
    passes_ = 0;
    return mean;
  }

 private:
  void run(int layer) override {
    const auto& tops = net_.top_vecs()[layer];
    for (size_t i = 0; i < tops.size(); ++i) {
      const float weight = net_.layers()[layer]->loss(static_cast<int>(i));
      for (int j = 0; weight != 0 && j < tops[i]->count(); ++j) {
        sum_ += weight * tops[i]->cpu_data()[j];
      }
    }
    if (layer + 1 == static_cast<int>(net_.layers().size())) ++passes_;
  }

  const ::caffe::Net<float>& net_;
  float sum_ = 0;
  int passes_ = 0;
};

// Adds the layers that have blobs, as they are after `iteration` updates, under "ITERATION/NAME".
void Record(const ::caffe::Net<float>& net, int iteration, ::caffe::NetParameter& golden) {
  for (size_t i = 0; i < net.layers().size(); ++i) {
    if (net.layers()[i]->blobs().empty()) continue;
    ::caffe::LayerParameter& layer = *golden.add_layer();
    layer.set_name(std::to_string(iteration) + "/" + net.layer_names()[i]);
    for (const auto& blob : net.layers()[i]->blobs()) blob->ToProto(layer.add_blobs());
  }
}

void Train(const ::caffe::SolverParameter& parameter, const SolverCase& golden,
           ::caffe::NetParameter& result) {
  const std::unique_ptr<::caffe::Solver<float>> solver(
      ::caffe::SolverRegistry<float>::CreateSolver(parameter));
  MeanLoss loss(*solver->net());
  solver->net()->add_after_forward(&loss);
  Record(*solver->net(), 0, result);
  ::caffe::BlobProto losses;
  for (const int end : golden.recorded) {
    while (solver->iter() < end) {
      solver->Step(1);
      losses.add_data(loss.Take());
    }
    Record(*solver->net(), end, result);
  }
  losses.mutable_shape()->add_dim(losses.data_size());
  ::caffe::LayerParameter& layer = *result.add_layer();
  layer.set_name("losses");
  *layer.add_blobs() = losses;
}

}  // namespace

void MakeSolverFiles(const std::string& directory, const std::string& scratch) {
  for (const GoldenRecords& records : kGoldenRecords) {
    WriteRecords(records, scratch + "/" + records.name);
  }
  for (const SolverCase& golden : SolverCases()) {
    LOG(INFO) << golden.name;
    ::caffe::SolverParameter parameter;
    CHECK(google::protobuf::TextFormat::ParseFromString(
        golden.solver + " net_param { name: '" + golden.name + "' " + golden.net + " }",
        &parameter));
    std::string text;
    CHECK(google::protobuf::TextFormat::PrintToString(parameter, &text));
    const std::string path = directory + "/solvers/" + golden.name;
    std::ofstream(path + ".prototxt") << text;

    for (::caffe::LayerParameter& layer : *parameter.mutable_net_param()->mutable_layer()) {
      if (layer.type() != "Data") continue;
      layer.mutable_data_param()->set_source(scratch + "/" + layer.data_param().source());
    }
    ::caffe::NetParameter result;
    result.set_name(golden.name);
    Train(parameter, golden, result);
    WriteMessage(result, path + ".binaryproto");
  }
}

}  // namespace poseidon
