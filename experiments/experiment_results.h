// The results of an experiment, in a directory that grows with each point:
//
//   points/KEY.json   a point's results and how they came to be, whole or not at all; what an
//                     experiment finds that goes on
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

// What decides results and is in no key (KeyOf). A point's file has what of it decides that point;
// files of before have nothing.
struct Circumstances {
  std::string version;             // of the programs; empty: unknown
  int slow_motion = 0;             // of replays that are emulated; 0: unknown
  std::vector<std::string> hosts;  // that run it, machine by machine
};

class ExperimentResults {
 public:
  // Reads what the directory has of these points in any mode, if it is there; a file that can't be
  // read counts as not there. Points of an experiment that has changed since have other keys: they
  // stay where they are and are not among the rows. Throws ConfigError if it is the directory of an
  // experiment of another name.
  ExperimentResults(std::string directory, const Experiment& experiment,
                    std::vector<ExperimentPoint> points);

  // Makes the directory, if need be, and writes the experiment's file and the table of what is
  // there. Comes before Put, and after all that may be refused: nothing is left behind then.
  void MakeDirectory() const;

  const std::vector<ExperimentPoint>& points() const { return points_; }
  const std::string& directory() const { return directory_; }
  bool Has(size_t point, ExperimentMode mode) const;
  bool HasAny(ExperimentMode mode) const;
  // In that mode; it must be there.
  const PointResult& Get(size_t point, ExperimentMode mode) const;
  // Keeps the result, with what of the circumstances decides it, and writes the point's file and
  // results.csv anew.
  void Put(size_t point, ExperimentMode mode, const PointResult& result,
           const Circumstances& circumstances = {});
  // Throws ConfigError if points of the mode are there that had another slow motion or other hosts:
  // those of now can't be compared with them. Other versions may give the same.
  void RefuseOthers(ExperimentMode mode, const Circumstances& now) const;
  // How many points of the mode are there by which version of the programs, as far as they say it.
  std::map<std::string, size_t> Versions(ExperimentMode mode) const;

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
    Circumstances circumstances;
    std::string line;  // of results.csv, made once: the whole table is written with each point
  };

  void Keep(const Row& row, const PointResult& result, const Circumstances& circumstances);
  void WriteTable() const;
  std::string PathOf(const Row& row) const;

  std::string directory_;
  Experiment experiment_;
  std::vector<ExperimentPoint> points_;
  std::map<Row, Kept> results_;
};

// Against one device that computes alone, without updates: a point whose exchange takes no time has
// as many as devices.
double SpeedupOf(const ExperimentPoint& point, const PointResult& result);

}  // namespace poseidon
