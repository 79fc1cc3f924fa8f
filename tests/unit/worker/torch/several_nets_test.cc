// The nets of an engine beside the first: test nets of one solver, and the train net that is made
// anew for another part of the batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/error.h"
#include "tests/unit/worker/torch_engine_testing.h"

namespace poseidon {
namespace {

class SeveralNetsTest : public TorchEngineTest {
 protected:
  // A classifier with two test nets, of the stages "narrow" and "wide"; a test is one sample.
  TorchEngineOptions TwoTestNets(const std::string& layers) const {
    TorchEngineOptions options = Options(kClassifier + layers, 5, 1);
    options.solver.tests.push_back(options.solver.tests.front());
    options.solver.tests[0].state.add_stage("narrow");
    options.solver.tests[1].state.add_stage("wide");
    options.solver.parameter.add_test_iter(1);
    return options;
  }
};

// A layer of a test net, whose results are all `value`.
std::string Probe(const std::string& stage, int outputs, int value) {
  return "layer { name: 'probe' type: 'InnerProduct' bottom: 'data' top: 'probe' include { phase: "
         "TEST stage: '" +
         stage + "' } inner_product_param { num_output: " + std::to_string(outputs) +
         " bias_filler { type: 'constant' value: " + std::to_string(value) + " } } }\n";
}

// As in Caffe, where only layers of the train net's are shared.
TEST_F(SeveralNetsTest, LayersOfOneNameInTwoTestNetsAreTwoLayers) {
  WriteDigits("train", 30, 10, 1);
  Trainee trainee(TwoTestNets(Probe("narrow", 1, 2) + Probe("wide", 3, 4)));
  std::map<int, Floats> probed;  // by net
  for (const TestOutput& output : trainee.engine().Test().outputs) {
    if (output.blob == "probe") probed[output.net] = output.values;
  }
  EXPECT_EQ(probed, (std::map<int, Floats>{{0, {2}}, {1, {4, 4, 4}}}));
}

// Somebody has replaced them; workers whose part stays would go on with the old ones.
TEST_F(SeveralNetsTest, DataThatHasChangedIsRefusedWhereItIsOpenedAnew) {
  for (const int64_t records : {300, 200}) {
    WriteDigits("train", 300, 10, 1);
    TorchEngineOptions options = Options(kClassifier, 16);
    options.workers = 2;
    Trainee worker(options);
    const auto take_part = [&worker](int64_t part) {
      worker.engine().SetShare({.place = 0, .tenures = {{0, 2}}, .parts = {part, 32 - part}});
    };
    take_part(20);
    std::filesystem::remove_all(directory_ + "train");
    WriteDigits("train", records, 10, 2);
    EXPECT_THAT([&] { take_part(16); },
                ::testing::ThrowsMessage<DataError>(
                    "layer \"data\": the data has changed since the job began: " +
                    (records == 300 ? std::string("as many records, but not the same")
                                    : std::to_string(records) + " records, it had 300") +
                    "; start the job again"));
    std::filesystem::remove_all(directory_ + "train");
  }
}

}  // namespace
}  // namespace poseidon
