#include "simulation/compute_moves.h"

#include <map>
#include <set>

#include "planner/cost/fragments.h"

namespace poseidon {
namespace {

std::vector<ComputeMove> MovesOfPasses(const ComputeTimeline& timeline) {
  const auto steps = static_cast<int>(timeline.steps.size());
  std::vector<ComputeMove> moves;
  for (int i = 0; i < steps; ++i) {
    const ComputeStep& step = timeline.steps[i];
    ComputeMove& move = moves.emplace_back();
    move = {.pass = ComputeMove::Pass::kForward, .step = i, .time = step.forward};
    if (step.layer) move.awaited.push_back({*step.layer, false});
  }
  for (int i = steps - 1; i >= 0; --i) {
    const ComputeStep& step = timeline.steps[i];
    ComputeMove& move = moves.emplace_back();
    move = {.pass = ComputeMove::Pass::kBackward, .step = i, .time = step.backward};
    if (step.layer) move.gradients.push_back(*step.layer);
  }
  return moves;
}

// What happens after which local step of an iteration; 0 is before the first.
struct LocalEvents {
  std::map<int, std::vector<int>> sent;
  std::map<int, std::vector<ComputeMove::Awaited>> awaited;
};

LocalEvents EventsOf(const ModelSpec& model, const Communication& communication) {
  const int steps = communication.local_steps();
  const std::vector<int> fragment_of = FragmentOfLayer(model, communication.fragments());
  LocalEvents events;
  for (int layer = model.layers_size() - 1; layer >= 0; --layer) {
    const int sent = StepOfFragment(communication, fragment_of[layer]);
    const int awaited = sent + communication.overlap_steps();
    events.sent[sent].push_back(layer);
    // The last fragment's come in the iteration after, to which they belong.
    const bool later = awaited >= steps;
    events.awaited[later ? awaited - steps : awaited].push_back({layer, !later});
    // The first values, as nothing is sent before these have come.
    if (!later) events.awaited[0].push_back({layer, false});
  }
  return events;
}

std::vector<ComputeMove> MovesOfLocalSteps(const ComputeTimeline& timeline, const ModelSpec& model,
                                           const Communication& communication) {
  const LocalEvents events = EventsOf(model, communication);
  std::set<int> ends = {communication.local_steps()};
  for (const auto& [step, layers] : events.sent) ends.insert(step);
  for (const auto& [step, layers] : events.awaited) ends.insert(step);
  ends.erase(0);
  std::vector<ComputeMove> moves;
  int begin = 0;
  for (const int end : ends) {
    ComputeMove& move = moves.emplace_back();
    move = {.pass = ComputeMove::Pass::kLocalSteps, .time = (end - begin) * ComputeTime(timeline)};
    if (const auto found = events.awaited.find(begin); found != events.awaited.end()) {
      move.awaited = found->second;
    }
    if (const auto found = events.sent.find(end); found != events.sent.end()) {
      move.gradients = found->second;
    }
    begin = end;
  }
  return moves;
}

}  // namespace

std::vector<ComputeMove> MovesOf(const ComputeTimeline& timeline, const ModelSpec& model,
                                 const Communication& communication) {
  return communication.local_steps() > 1 ? MovesOfLocalSteps(timeline, model, communication)
                                         : MovesOfPasses(timeline);
}

Duration ComputeTime(const ComputeTimeline& timeline) {
  Duration sum{};
  for (const ComputeStep& step : timeline.steps) sum += step.forward + step.backward;
  return sum;
}

}  // namespace poseidon
