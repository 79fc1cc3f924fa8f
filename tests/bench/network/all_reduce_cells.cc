#include "tests/bench/network/all_reduce_cells.h"

#include <gflags/gflags.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "tests/bench/usage.h"

DEFINE_string(cells, "", "algorithm:bytes:untimed calls:timed calls, with commas");
DEFINE_string(out, "", "file for this rank's results");

namespace poseidon::network {
namespace {

struct Cell {
  std::string algorithm;
  int64_t bytes = 0;
  int warm_up = 1;
  int calls = 1;
};

Cell ParseCell(const std::string& text) {
  Cell cell;
  std::istringstream stream(text);
  char colon = 0;
  std::getline(stream, cell.algorithm, ':');
  stream >> cell.bytes >> colon >> cell.warm_up >> colon >> cell.calls;
  if (!stream || cell.warm_up < 1) throw std::runtime_error("--cells: can't read '" + text + "'");
  return cell;
}

std::vector<Cell> Cells() {
  std::vector<Cell> cells;
  std::istringstream stream(FLAGS_cells);
  for (std::string text; std::getline(stream, text, ',');) cells.push_back(ParseCell(text));
  return cells;
}

// Small whole numbers, so that sums are exact in any order; the pattern's length is prime, so that
// a chunk at a wrong place shows.
constexpr size_t kPattern = 1009;

void Fill(std::span<float> floats, int rank) {
  for (size_t i = 0; i < floats.size(); ++i) {
    floats[i] = static_cast<float>(rank + 1 + static_cast<int>(i % kPattern));
  }
}

void Check(std::span<const float> floats, int ranks, const Cell& cell) {
  for (size_t i = 0; i < floats.size(); ++i) {
    const int sum = ranks * (ranks + 1) / 2 + ranks * static_cast<int>(i % kPattern);
    if (floats[i] != static_cast<float>(sum)) {
      throw std::runtime_error(cell.algorithm + ": float " + std::to_string(i) + " of " +
                               std::to_string(floats.size()) + " is " + std::to_string(floats[i]) +
                               ", not " + std::to_string(sum));
    }
  }
}

nlohmann::json Measure(System& system, const Cell& cell) {
  std::vector<float> floats(cell.bytes / sizeof(float));
  const std::function<void()> all_reduce = system.Prepare(cell.algorithm, floats);
  Fill(floats, system.rank());
  all_reduce();
  Check(floats, system.ranks(), cell);
  // The sums are the next call's floats, and grow to infinity, which is as fast to add.
  for (int i = 1; i < cell.warm_up; ++i) all_reduce();
  std::vector<double> seconds;
  const double cpu = CpuSeconds();
  for (int i = 0; i < cell.calls; ++i) {
    const double begin = Seconds();
    all_reduce();
    seconds.push_back(Seconds() - begin);
  }
  return {{"algorithm", cell.algorithm},
          {"bytes", cell.bytes},
          {"seconds", seconds},
          {"cpu_seconds", CpuSeconds() - cpu}};
}

}  // namespace

void MeasureCells(System& system) {
  nlohmann::json results = nlohmann::json::array();
  for (const Cell& cell : Cells()) results.push_back(Measure(system, cell));
  std::ofstream(FLAGS_out) << results << std::endl;
}

int Main(int argc, char** argv, const std::function<void()>& body) {
  poseidon::bench::ParseFlags(
      &argc, &argv,
      "A rank of an all-reduce benchmark; tests/bench/network/run.py starts all of them.");
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << std::endl;
    return 1;
  }
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace poseidon::network
