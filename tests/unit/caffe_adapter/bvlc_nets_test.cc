// The nets and solvers of BVLC Caffe's repository, where CMake is told where there is one
// (-DPOSEIDON_CAFFE_SOURCE=DIR): each is described here with as many parameters as a Caffe made of
// it, by tests/golden/caffe_nets.csv.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "caffe_adapter/net/solver.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

// A net in one phase, as the table has it.
struct CountedNet {
  std::string file;  // a net, or a solver that has its net in it
  caffe::Phase phase = caffe::TRAIN;
  std::string stage;            // or ""
  std::optional<Shape> sample;  // of the data, where only the data tell
  int64_t parameters = 0;
};

std::vector<CountedNet> ReadTable() {
  std::ifstream table("tests/golden/caffe_nets.csv");
  std::vector<CountedNet> nets;
  std::string line;
  std::getline(table, line);  // the heading
  while (std::getline(table, line)) {
    std::istringstream cells(line);
    CountedNet net;
    std::string phase;
    std::string sample;
    std::string parameters;
    std::getline(cells, net.file, ',');
    std::getline(cells, phase, ',');
    std::getline(cells, net.stage, ',');
    std::getline(cells, sample, ',');
    std::getline(cells, parameters);
    net.phase = phase == "TEST" ? caffe::TEST : caffe::TRAIN;
    net.parameters = std::stoll(parameters);
    if (!sample.empty()) {
      std::istringstream extents(sample);
      net.sample.emplace();
      for (std::string extent; std::getline(extents, extent, 'x');) {
        net.sample->push_back(std::stoll(extent));
      }
    }
    nets.push_back(std::move(net));
  }
  return nets;
}

bool IsSolver(const std::string& file) { return file.find("solver") != std::string::npos; }

// All that the net has, learned or kept; what layers share counts once.
int64_t CountParameters(const caffe::NetParameter& net, const CountedNet& counted,
                        const Locate& locate) {
  DescribeOptions options;
  options.locate = locate;
  options.data_optional = true;
  options.record_shape = counted.sample;
  if (!counted.stage.empty()) options.state.add_stage(counted.stage);
  int64_t floats = 0;
  for (const LayerDescription& layer : DescribeNet(net, counted.phase, options).layers) {
    floats += layer.owned_floats();
  }
  return floats;
}

class BvlcNetsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (root_.empty()) {
      GTEST_SKIP() << "no BVLC Caffe; configure with -DPOSEIDON_CAFFE_SOURCE=DIR, its sources";
    }
    // Where the module of the one net with a Python layer is.
    setenv("PYTHONPATH", Path("examples/pycaffe/layers").c_str(), 1);
  }

  std::string Path(const std::string& file) const { return root_ + "/" + file; }

  // Of all nets and solvers, those that are there.
  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const char* const folder : {"examples", "models"}) {
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(Path(folder))) {
        if (entry.path().extension() == ".prototxt") {
          files.insert(fs::relative(entry.path(), root_).string());
        }
      }
    }
    return files;
  }

  int64_t CountOf(const CountedNet& counted) const {
    const std::string path = Path(counted.file);
    if (IsSolver(counted.file)) {
      caffe::SolverParameter solver;
      ReadTextFile(path, solver);
      return CountParameters(solver.net_param(), counted, nullptr);
    }
    caffe::NetParameter net;
    const TextLocations locations = ReadTextFile(path, net);
    return CountParameters(net, counted, [&](const std::string& field) {
      return locations.Find(caffe::NetParameter::default_instance(), field);
    });
  }

  const std::string root_ = POSEIDON_CAFFE_SOURCE;
  const std::vector<CountedNet> table_ = ReadTable();
};

TEST_F(BvlcNetsTest, NetsHaveAsManyParametersAsInCaffe) {
  for (const CountedNet& counted : table_) {
    SCOPED_TRACE(counted.file + " " + caffe::Phase_Name(counted.phase) + " " + counted.stage);
    try {
      EXPECT_EQ(CountOf(counted), counted.parameters);
    } catch (const std::exception& error) {
      // A build can do without Python.
      EXPECT_THAT(error.what(), HasSubstr("this build has no Python"));
    }
  }
}

TEST_F(BvlcNetsTest, EachNetIsInTheTable) {
  std::set<std::string> counted;
  for (const CountedNet& net : table_) counted.insert(net.file);
  for (const std::string& file : Files()) {
    EXPECT_TRUE(IsSolver(file) || counted.contains(file)) << file;
  }
}

TEST_F(BvlcNetsTest, SolversCanBeLoadedWithTheirNets) {
  // A notebook writes its nets; they are not in the repository.
  const std::string without_nets = "examples/mnist/lenet_auto_solver.prototxt";
  int solvers = 0;
  for (const std::string& file : Files()) {
    if (!IsSolver(file)) continue;
    SCOPED_TRACE(file);
    ++solvers;
    if (file == without_nets) {
      EXPECT_THAT(MessageOf<ConfigError>([&] { LoadSolver(Path(file)); }),
                  HasSubstr("mnist/lenet_auto_train.prototxt"));
      continue;
    }
    const Solver solver = LoadSolver(Path(file));
    ToUpdateRuleSpec(solver.parameter);
    const std::string net = solver.parameter.has_net() ? solver.parameter.net() : file;
    const auto expect_counted = [&](const SolverNet& used) {
      const std::string stage = used.state.stage_size() > 0 ? used.state.stage(0) : "";
      const auto counted = std::find_if(table_.begin(), table_.end(), [&](const CountedNet& row) {
        return row.file == net && row.phase == used.phase && row.stage == stage;
      });
      ASSERT_NE(counted, table_.end()) << net << " " << stage;
      EXPECT_EQ(CountParameters(used.net, *counted, used.locate), counted->parameters);
    };
    expect_counted(solver.train);
    EXPECT_FALSE(solver.tests.empty());
    for (const SolverNet& test : solver.tests) expect_counted(test);
  }
  EXPECT_GT(solvers, 20);
}

}  // namespace
}  // namespace poseidon
