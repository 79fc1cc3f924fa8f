// The results of an experiment, in a directory that grows with each point:
//
//   points/KEY.json   a point's results, whole or not at all; what a resumed experiment finds
//   results.csv       a row a point that is there, in the experiment's order
//   experiment.json   the experiment's file as JSON, for the report
//
// Not thread-safe. Throws Error where a file can't be written.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/experiment_point.h"
#include "proto/experiment.pb.h"

namespace poseidon {

class ExperimentResults {
 public:
  // Makes the directory, if need be, and reads what it has of these points in any mode; a file that
  // can't be read counts as not there. Points of an experiment that has changed since have other
  // keys: they stay where they are and are not among the rows. Throws ConfigError if it is the
  // directory of an experiment of another name.
  ExperimentResults(std::string directory, const Experiment& experiment,
                    std::vector<ExperimentPoint> points);

  const std::vector<ExperimentPoint>& points() const { return points_; }
  const std::string& directory() const { return directory_; }
  bool Has(size_t point, ExperimentMode mode) const;
  bool HasAny(ExperimentMode mode) const;
  // In that mode; it must be there.
  const PointResult& Get(size_t point, ExperimentMode mode) const;
  // Keeps the result and writes the point's file and results.csv anew.
  void Put(size_t point, ExperimentMode mode, const PointResult& result);

 private:
  struct Row {
    size_t point;
    ExperimentMode mode;
    bool operator<(const Row& other) const {
      return point != other.point ? point < other.point : mode < other.mode;
    }
  };

  struct Kept {
    PointResult result;
    std::string line;  // of results.csv, made once: the whole table is written with each point
  };

  void Keep(const Row& row, const PointResult& result);
  void WriteTable() const;
  std::string PathOf(const Row& row) const;

  std::string directory_;
  Experiment experiment_;
  std::vector<ExperimentPoint> points_;
  std::map<Row, Kept> results_;
};

// Against one device alone: a point without communication has as many as devices.
double SpeedupOf(const ExperimentPoint& point, const PointResult& result);

}  // namespace poseidon
