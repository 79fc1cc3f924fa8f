#include "scheduler/journal/job_state.h"

#include <algorithm>

#include "transport/membership/member.h"

namespace poseidon {

void JobState::Apply(const wire::JournalRecord& record) {
  using Record = wire::JournalRecord;
  switch (record.record_case()) {
    case Record::kJob:
      base = record.job().base();
      fingerprint = record.job().fingerprint();
      name = record.job().name();
      build = record.job().build();
      return;
    case Record::kTerm:
      term = record.term().number();
      return;
    case Record::kView:
      return Apply(record.view());
    case Record::kDeclared:
      declared = record.declared();
      iterations_done = reached = declared.first_iteration();
      return;
    case Record::kPlan:
      return Apply(record.plan());
    case Record::kStart:
      return Apply(record.start());
    case Record::kHold:
      return Apply(record.hold());
    case Record::kPause:
      stage = Stage::kPausing;
      return;
    case Record::kIteration:
      return Apply(record.iteration());
    case Record::kEnd:
      end = record.end();
      return;
    case Record::kStop:
      stops = true;
      return;
    case Record::kLeave:
      leaving.insert({Role::kWorker, record.leave().worker()});
      if (record.leave().stays()) leaving.erase({Role::kWorker, record.leave().worker()});
      return;
    case Record::kFinished:  // this one and the next are the report's
    case Record::kLinks:
    case Record::kStraggler:
    case Record::kRecalibrated:
    case Record::RECORD_NOT_SET:
      return;
  }
}

void JobState::Apply(const wire::ViewRecord& view) {
  members.clear();
  for (int i = 0; i < view.nodes_size(); ++i) {
    const uint64_t incarnation = i < view.incarnations_size() ? view.incarnations(i) : 0;
    members[IdOf(view.nodes(i))] = {view.nodes(i), incarnation};
  }
  vacated.clear();
  for (const wire::Node& node : view.vacated()) vacated.insert(IdOf(node));
  if (plan) return;
  stage = Stage::kDeclaring;
  recovering.reset();
}

void JobState::Apply(const wire::PlanAndModel& next) {
  // Iterations were done in between, also where their records have not come to be written.
  if (plan && next.plan().start_iteration() > plan->plan().start_iteration()) {
    losses_without_progress.clear();
    const wire::HoldRecord round = recovering.value_or(wire::HoldRecord());
    for (const wire::Node& node : round.lost()) ++losses_without_progress[IdOf(node)];
  }
  plan = next;
  stage = Stage::kPreparing;
}

void JobState::Apply(const wire::IterationRecord& iteration) {
  if (iteration.number() == iterations_done) ++iterations_done;
  reached = std::max(reached, iteration.number() + 1);
  const int64_t first = plan ? plan->plan().start_iteration() : 0;
  // All have computed it: for that they had the values of the one before.
  if (iteration.number() > first && !recovering) losses_without_progress.clear();
}

void JobState::Apply(const wire::StartRecord& start) {
  stage = Stage::kTraining;
  begun = true;
  recovering.reset();
  if (!start.has_recovered()) return;
  // What comes after is done again.
  iterations_done = std::min(iterations_done, start.recovered().iteration());
  reached = std::min(reached, start.recovered().iteration());
}

void JobState::Apply(const wire::HoldRecord& hold) {
  stage = Stage::kHolding;
  if (!recovering) {
    recovering.emplace();
    recovering->set_cause(hold.cause());
  }
  for (const wire::Node& node : hold.lost()) {
    *recovering->add_lost() = node;
    members.erase(IdOf(node));
    leaving.erase(IdOf(node));
    ++losses_without_progress[IdOf(node)];
  }
  for (const wire::Node& node : hold.left()) {
    *recovering->add_left() = node;
    members.erase(IdOf(node));
    leaving.erase(IdOf(node));
    vacated.insert(IdOf(node));
  }
  gone.insert(hold.incarnations().begin(), hold.incarnations().end());
  // They come behind those of the lost.
  for (int i = hold.lost_size(); i < hold.incarnations_size(); ++i) {
    left.insert(hold.incarnations(i));
  }
}

}  // namespace poseidon
