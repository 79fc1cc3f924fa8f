#include "planner/cost/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "core/error.h"
#include "core/message_limit.h"

namespace poseidon {
namespace {

// One inner-product layer of M x N, with a bias unless told otherwise.
ModelSpec InnerProductModel(int64_t outputs, int64_t inputs, int64_t rows, bool bias = true) {
  ModelSpec model;
  model.set_batch(rows);
  LayerSpec* layer = model.add_layers();
  layer->set_name("fc");
  layer->set_type("InnerProduct");
  BlobSpec* weights = layer->add_blobs();
  weights->add_shape(outputs);
  weights->add_shape(inputs);
  if (bias) layer->add_blobs()->add_shape(outputs);
  layer->mutable_inner_product()->set_outputs(outputs);
  layer->mutable_inner_product()->set_inputs(inputs);
  layer->mutable_inner_product()->set_rows(rows);
  return model;
}

Scheme Best(int64_t outputs, int64_t inputs, int64_t rows, int workers, int servers) {
  return BestScheme(InformationBook(InnerProductModel(outputs, inputs, rows), workers, servers), 0);
}

// The check values of the paper's Table 1: M = N = 4096, K = 32, P1 = P2 = 8.
TEST(CostModelTest, EqualsThePapersTable) {
  const int64_t floats = int64_t{4096} * 4096;
  EXPECT_EQ(2 * floats, 33554432);  // a worker alone: no function, it is all of PS's formula
  EXPECT_EQ(FloatsParameterServer(floats, 8, 8, true), 58720256);
  EXPECT_EQ(FloatsFactorBroadcast(4096, 4096, 32, 8), 3670016);
}

// A factor travels in one message.
TEST(CostModelTest, AFactorTooLargeForAMessageIsNotSent) {
  constexpr int64_t kRows = 160;
  constexpr int64_t kOutputs = kMostBodyBytes / kRows / static_cast<int64_t>(sizeof(float));
  for (const auto& [outputs, best] : {std::pair(kOutputs, SFB), {kOutputs + 1, PS}}) {
    EXPECT_EQ(Best(outputs, 512, kRows, 2, 2), best) << outputs;
    const InformationBook book(InnerProductModel(outputs, 512, kRows), 2, 2);
    EXPECT_EQ(ChooseScheme(book, 0, Communication::ALL_SFB), best) << outputs;
  }
}

TEST(CostModelTest, OneNodeMovesNothing) {
  EXPECT_EQ(FloatsParameterServer(1000, 1, 1, true), 0);
  EXPECT_EQ(FloatsFactorBroadcast(10, 10, 10, 1), 0);
}

// Two layers 4096 x 4096 at a batch of 240: a worker sends all of them, and factors are more.
TEST(CostModelTest, ServersOnMachinesOfTheirOwnMoveWhatTheBusierOneDoes) {
  EXPECT_EQ(FloatsParameterServer(1000, 1, 1, false), 2000);
  EXPECT_EQ(FloatsParameterServer(1000, 4, 8, false), 2000) << "a worker";
  EXPECT_EQ(FloatsParameterServer(1000, 8, 4, false), 4000) << "a server";
  Cluster cluster;
  cluster.set_workers(16);
  cluster.set_servers(16);
  const ModelSpec model = InnerProductModel(4096, 4096, 240);
  EXPECT_EQ(BestScheme(InformationBook(model, cluster), 0), SFB);
  cluster.mutable_network()->set_bandwidth("10Gbps");
  EXPECT_EQ(BestScheme(InformationBook(model, cluster), 0), SFB);
  cluster.mutable_network()->set_colocated(false);
  const InformationBook apart(model, cluster);
  EXPECT_FALSE(apart.colocated());
  EXPECT_EQ(BestScheme(apart, 0), PS);
  EXPECT_EQ(BestScheme(apart.WithLanes(2), 0), PS);
  // 2 K (P1 - 1)(M + N) is at most 2 M N up to a batch of 136.
  EXPECT_EQ(BestScheme(InformationBook(InnerProductModel(4096, 4096, 136), cluster), 0), SFB);
  EXPECT_EQ(BestScheme(InformationBook(InnerProductModel(4096, 4096, 137), cluster), 0), PS);
  // A single server sends all of it to each worker.
  cluster.set_servers(1);
  EXPECT_EQ(BestScheme(InformationBook(model, cluster), 0), SFB);
}

TEST(CostModelTest, FollowsAlgorithm1OnAnyInput) {
  std::mt19937_64 random(1);
  int factors = 0;
  for (int i = 0; i < 3000; ++i) {
    const int64_t outputs = 1 + static_cast<int64_t>(random() % 3000);
    const int64_t inputs = 1 + static_cast<int64_t>(random() % 3000);
    const int64_t rows = 1 + static_cast<int64_t>(random() % 64);
    const int64_t workers = 1 + static_cast<int64_t>(random() % 40);
    const int64_t servers = 1 + static_cast<int64_t>(random() % 40);
    // As the paper writes it; long double holds these products exactly.
    const long double sfb = 2.0L * rows * (workers - 1) * (outputs + inputs);
    const long double ps = 2.0L * outputs * inputs * (workers + servers - 2) / servers;
    const Scheme expected = sfb <= ps ? SFB : PS;
    factors += expected == SFB ? 1 : 0;
    ASSERT_EQ(Best(outputs, inputs, rows, static_cast<int>(workers), static_cast<int>(servers)),
              expected)
        << outputs << " x " << inputs << ", K " << rows << ", " << workers << " + " << servers;
    EXPECT_NEAR(
        static_cast<double>(FloatsParameterServer(outputs * inputs, workers, servers, true)),
        static_cast<double>(ps), 0.5);
    EXPECT_EQ(FloatsFactorBroadcast(outputs, inputs, rows, workers), static_cast<int64_t>(sfb));
  }
  EXPECT_GT(factors, 500);
  EXPECT_LT(factors, 2500);
}

// Up to how many nodes, each worker and server, SFB wins: P = 2MN / (K (M + N)).
TEST(CostModelTest, CrossesOverWhereThePaperSays) {
  struct Case {
    const char* name;
    int64_t outputs, inputs, rows;
    int last;
  };
  for (const Case& c :
       {Case{"VGG fc6", 4096, 25088, 32, 220}, Case{"VGG fc7", 4096, 4096, 32, 128},
        Case{"VGG fc8", 1000, 4096, 32, 50}, Case{"GoogLeNet", 1000, 1024, 128, 7},
        Case{"AlexNet fc6", 4096, 9216, 256, 22}, Case{"AlexNet fc7", 4096, 4096, 256, 16}}) {
    EXPECT_EQ(Best(c.outputs, c.inputs, c.rows, c.last, c.last), SFB) << c.name;
    EXPECT_EQ(Best(c.outputs, c.inputs, c.rows, c.last + 1, c.last + 1), PS) << c.name;
  }
}

// Products of what a layer may be and what a cluster may be are more than an int64 holds.
TEST(CostModelTest, ChoosesForClustersOfAnySize) {
  for (const int nodes : {60000, 70000, 1000000}) {
    EXPECT_EQ(Best(49152, 12288, 2048 * 8, nodes, nodes), PS) << nodes;
  }
  const int64_t many = int64_t{1} << 31;
  EXPECT_EQ(Best(many, many, many, 1000000, 1000000), PS);
  const int64_t most = kMostBodyBytes / static_cast<int64_t>(sizeof(float));
  EXPECT_EQ(Best(most, most, 1, 1000, 1000), SFB);
  EXPECT_EQ(FloatsFactorBroadcast(many, many, many, 1000000), std::numeric_limits<int64_t>::max());
}

TEST(CostModelTest, ATieGoesToFactorsAndTheBiasDoesNotCount) {
  // M = N = 4, K = 1: P = 2 * 16 / 8 = 4 is the tie.
  EXPECT_EQ(Best(4, 4, 1, 4, 4), SFB);
  EXPECT_EQ(Best(4, 4, 1, 5, 5), PS);
  EXPECT_EQ(BestScheme(InformationBook(InnerProductModel(4, 4, 1, false), 4, 4), 0), SFB);
  EXPECT_EQ(BestScheme(InformationBook(InnerProductModel(4, 4, 1, false), 5, 5), 0), PS);
}

TEST(CostModelTest, PolicyOverridesTheChoiceWhereItCan) {
  ModelSpec model = InnerProductModel(4, 4, 100);
  LayerSpec* conv = model.add_layers();
  conv->set_name("conv");
  conv->add_blobs()->add_shape(100);
  const InformationBook book(model, 4, 4);
  EXPECT_EQ(ChooseScheme(book, 0, Communication::BYTES), PS);
  EXPECT_EQ(ChooseScheme(book, 0, Communication::ALL_PS), PS);
  EXPECT_EQ(ChooseScheme(book, 0, Communication::ALL_SFB), SFB);
  EXPECT_EQ(ChooseScheme(book, 1, Communication::BYTES), PS);
  EXPECT_EQ(ChooseScheme(book, 1, Communication::ALL_SFB), PS);
}

TEST(InformationBookTest, AnswersQueries) {
  const InformationBook book(InnerProductModel(5, 7, 3), 4, 2);
  EXPECT_EQ(book.Query(Property::kWorkers), 4);
  EXPECT_EQ(book.Query(Property::kServers), 2);
  EXPECT_EQ(book.Query(Property::kBatch), 3);
  EXPECT_EQ(book.Query(Property::kLayers), 1);
  EXPECT_EQ(book.Query(Property::kParameters), 40);
  const LayerFacts facts = book.Query(0);
  EXPECT_EQ(facts.name, "fc");
  EXPECT_EQ(facts.type, "InnerProduct");
  EXPECT_EQ(facts.parameters, 40);
  EXPECT_TRUE(facts.factorable);
  EXPECT_EQ(facts.outputs, 5);
  EXPECT_EQ(facts.inputs, 7);
  EXPECT_EQ(facts.rows, 3);
}

std::string ErrorOf(const ModelSpec& model) {
  try {
    const InformationBook book(model, 2, 1);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(InformationBookTest, RefusesModelsThatMakeNoSense) {
  EXPECT_EQ(ErrorOf(ModelSpec()), "the model has no layers with parameters");
  ModelSpec model = InnerProductModel(5, 7, 3);
  model.mutable_layers(0)->mutable_blobs(1)->set_shape(0, 4);
  EXPECT_EQ(ErrorOf(model),
            "layer fc: declared as an inner product of 7 inputs and 5 outputs, but its blobs do "
            "not fit that");
  model = InnerProductModel(5, 7, 3);
  model.mutable_layers(0)->add_blobs()->add_shape(5);
  EXPECT_THAT(ErrorOf(model), testing::HasSubstr("its blobs do not fit that"));
  model.mutable_layers(0)->mutable_blobs(0)->set_shape(1, -7);
  EXPECT_EQ(ErrorOf(model), "layer fc: has a blob without elements");
  model.mutable_layers(0)->clear_blobs();
  EXPECT_EQ(ErrorOf(model), "layer fc: has no learnable blobs");
  EXPECT_EQ(ErrorOf(InnerProductModel(5, 7, 0)), "layer fc: its factors have no rows");
}

}  // namespace
}  // namespace poseidon
