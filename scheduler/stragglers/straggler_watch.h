// StragglerWatch: which workers are steadily slower than the others, in what, and by how much.
//
// Under BSP all workers iterate at the pace of the slowest, so how long an iteration takes says
// nothing of a worker. Its own time does: what it computed and waited for data, without the time
// that it stood still for others.
//
//   StragglerWatch watch;
//   watch.SetWorkers(4);
//   for (const std::string& news : watch.Add(progress)) Show(news);
//   // "worker 2 is slow: its computing takes 2.0 times as long as that of the others (...)"
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/journal.pb.h"
#include "proto/model.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

// With the numbers of wire::StragglerRecord::Part.
enum class SlowPart { kCompute = 0, kData = 1, kLink = 2 };

// "compute", "disk" or "link".
const char* SlowPartName(SlowPart part);

// A worker that is or was steadily slower than the others.
struct Straggler {
  int rank = 0;
  SlowPart part = SlowPart::kCompute;  // where most of the difference is
  // To the median of the other workers: of the own time; of the exchange where it is the link.
  double ratio = 1;
  int64_t from = 0;  // the iteration in which that was seen
  std::optional<int64_t>
      until;  // in which it had healed, or was no worker any more; none: it has not

  bool operator==(const Straggler&) const = default;
};

// For the scheduler's journal, and from there. A part that is none is taken for kCompute.
wire::StragglerRecord RecordOf(const Straggler& straggler);
Straggler StragglerOf(const wire::StragglerRecord& record);

// A value; not thread-safe.
class StragglerWatch {
 public:
  // Workers are compared by their medians over so many iterations each...
  static constexpr int kIterations = 20;
  // ... and one is slow, or has healed, if that many such comparisons in a row say so...
  static constexpr int kInARow = 2;
  // ... and they took that long. Iterations of a few milliseconds would else be compared over
  // tenths of a second, in which another program of the machine makes anybody slow.
  static constexpr double kLeastSeconds = 3;
  // Whose time is above this many times the others' is slow; who was has healed below the other.
  static constexpr double kSlow = 1.2;
  static constexpr double kHealed = 1.1;
  // A difference below this is no straggler's, whatever the ratio: milliseconds.
  static constexpr double kLeastMilliseconds = 1;

  // So many workers train from now on, each with as many samples as the others. What has been
  // measured before counts no more.
  void SetWorkers(int workers);
  // This plan's workers train from now on. Where it gives them different parts of the batch, their
  // own times are compared as if the parts were equal: who has less to do is not faster for it.
  void SetPlan(const Plan& plan);
  // What was measured since the last comparison counts no more: the job has lost a node.
  void Forget();
  // An iteration that a worker has done, its rank set. Returns a sentence for each worker that has
  // turned out to be slow, or to have healed: said once each.
  std::vector<std::string> Add(const wire::Progress& progress);

  // What an earlier watch of the same job had among changed(), in the same order.
  void Restore(const Straggler& straggler);

  // In the order in which they were seen. At most kMost: the oldest that have ended are left out.
  const std::vector<Straggler>& stragglers() const { return stragglers_; }
  // Those of which the last Add has learnt something.
  const std::vector<Straggler>& changed() const { return changed_; }

 private:
  static constexpr size_t kMost = 200;

  // Milliseconds of an iteration, or medians over several.
  struct Times {
    double compute = 0;
    double data = 0;
    double exchange = 0;

    double own() const { return compute + data; }
    double together() const { return own() + exchange; }
  };
  // Medians over the other workers, each of what Times calls so.
  struct Others {
    double compute = 0;
    double data = 0;
    double exchange = 0;
    double own = 0;
    double together = 0;
  };
  // Of a worker, since the last comparison.
  struct Recent {
    std::deque<Times> times;  // the newest kIterations
    double seconds = 0;       // of all
  };
  // Comparisons in a row that say other than what is known of a worker.
  struct Change {
    int comparisons = 0;
    double seconds = 0;  // that they are of
  };
  // What a comparison says of a worker.
  struct Finding {
    SlowPart part = SlowPart::kCompute;
    double ratio = 1;
    double milliseconds = 0;  // that the ratio is of
    double others = 0;
  };
  std::vector<std::string> Compare(int64_t iteration);
  // `seconds`: that the medians are over.
  std::vector<std::string> JudgeAll(const std::map<int, Times>& medians, double seconds,
                                    int64_t iteration);
  static Times MedianOf(const std::deque<Times>& times);
  static Finding FindingOf(const Times& own, const Others& others);
  std::optional<std::string> Judge(int rank, const Finding& finding, double seconds,
                                   int64_t iteration);
  std::string Begin(int rank, const Finding& finding, int64_t iteration);
  void Keep(const Straggler& straggler);
  // The one of that rank that has not ended, or null.
  Straggler* FindPresent(int rank);

  int workers_ = 0;
  std::map<int, double> samples_;  // by rank, to the mean; 1 where it is missing
  std::map<int, Recent> recent_;   // by rank
  int complete_ = 0;               // of these have kIterations
  std::map<int, Change> changes_;  // by rank
  std::vector<Straggler> stragglers_;
  std::vector<Straggler> changed_;
};

}  // namespace poseidon
