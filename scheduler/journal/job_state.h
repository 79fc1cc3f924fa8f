// JobState: what a scheduler has written down of its job, put together for the process that takes
// the job over.
//
// A value; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/journal.pb.h"
#include "transport/address.h"

namespace poseidon {

struct JobState {
  enum class Stage {
    kGathering,  // no view has gone out
    kDeclaring,  // no plan has
    kPreparing,  // the plan has, and perhaps not to all
    kTraining,   // the start of the plan has, and perhaps not to all
    kPausing,    // for another plan
    kHolding,    // a node is lost, the exchange hangs, or the workers change
  };

  // A process of the job and what tells it from others of its rank.
  struct Member {
    wire::Node node;
    uint64_t incarnation = 0;
  };

  // Takes in the next record.
  void Apply(const wire::JournalRecord& record);

  uint64_t base = 0;
  uint64_t fingerprint = 0;
  std::string name;
  std::string build;  // of the job's schedulers
  int32_t term = -1;  // of the last scheduler; -1: there has been none
  Stage stage = Stage::kGathering;
  std::map<NodeId, Member> members;  // of the last view that are not lost and have not left
  std::set<NodeId> vacated;          // ranks that the job goes on without
  std::set<uint64_t> gone;           // incarnations of those that were lost or have left
  std::set<uint64_t> left;           // of these, those that have left
  wire::DeclaredRecord declared;
  std::optional<wire::PlanAndModel> plan;  // the last one
  // Of the recovery that was going on; nullopt: none was.
  std::optional<wire::HoldRecord> recovering;
  bool begun = false;        // training has started, under whatever plan
  bool stops = false;        // training is to end
  std::set<NodeId> leaving;  // workers that are to leave
  // How often each rank has been lost since the job last came on: since all had the values of an
  // iteration of the plan, or a plan began later than the one before. As the scheduler counts.
  std::map<NodeId, int> losses_without_progress;
  // All before this one have been done by all workers, and written down.
  int64_t iterations_done = 0;
  int64_t reached = 0;  // after the last one that has been
  std::optional<wire::End> end;

 private:
  void Apply(const wire::ViewRecord& view);
  void Apply(const wire::PlanAndModel& next);
  void Apply(const wire::IterationRecord& iteration);
  void Apply(const wire::StartRecord& start);
  void Apply(const wire::HoldRecord& hold);
};

}  // namespace poseidon
