#include "simulation/compute_walk.h"

#include <cmath>
#include <string>

namespace poseidon {
namespace {

using Pass = ComputeMove::Pass;

const char* NameOf(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return "forward";
    case Pass::kBackward:
      return "backward";
    case Pass::kLocalSteps:
      return "local steps";
  }
  return "never";
}

}  // namespace

ComputeWalk::ComputeWalk(const Options& options)
    : options_(options),
      disturbance_(options.disturbance),
      moves_(MovesOf(*options.timeline, *options.model, *options.communication)) {
  if (!options_.measure) return;
  std::vector<std::optional<int>> layers;
  for (const ComputeStep& step : options_.timeline->steps) layers.push_back(step.layer);
  timer_.emplace(layers);
}

void ComputeWalk::Begin(int rank, int64_t iteration, Time now) {
  iteration_ = iteration;
  disturbance_.Begin(rank, iteration);
  since_ = now;
  move_ = 0;
  computing_ = true;
  options_.iterations->push_back({.begin = now, .iteration = iteration});
}

void ComputeWalk::Abandon() {
  if (computing_) options_.iterations->pop_back();
  computing_ = waiting_ = false;
}

Duration ComputeWalk::Start(Time now) {
  if (waiting_) {
    waiting_ = false;
    options_.iterations->back().exposed += now - since_;
    AddTrace("wait", since_, now);
  }
  since_ = now;
  const double factor = options_.compute_factor * part_;
  const Duration planned =
      factor == 1 ? move().time
                  : Duration(std::llround(static_cast<double>(move().time.count()) * factor));
  const auto pass = static_cast<int>(move_);
  const bool many = move().pass == Pass::kLocalSteps;
  options_.iterations->back().planned += many ? planned : disturbance_.MeanOf(planned);
  return many ? disturbance_.OfMany(pass, planned) : disturbance_.Of(pass, planned);
}

ComputeWalk::Done ComputeWalk::Finish(Time now) {
  AddTrace(NameOf(move().pass), since_, now);
  AddTime(now - since_);
  since_ = now;
  Done done{move().gradients, ++move_ == moves_.size()};
  if (done.iteration) {
    computing_ = false;
    options_.iterations->back().end = now;
  }
  return done;
}

void ComputeWalk::AddTime(Duration time) {
  if (!timer_) return;
  if (move().pass == Pass::kForward) timer_->AddForward(move().step, time);
  if (move().pass == Pass::kBackward) timer_->AddBackward(move().step, time);
}

std::optional<wire::LayerTimes> ComputeWalk::Measured() {
  if (!timer_) return std::nullopt;
  std::optional<wire::LayerTimes> times = timer_->EndIteration();
  if (times) timer_.reset();
  return times;
}

void ComputeWalk::AddTrace(const char* name, Time begin, Time end) {
  if (options_.trace == nullptr) return;
  const int step = move().step;
  const std::optional<int> layer = options_.timeline->steps[step].layer;
  const bool all = move().pass == Pass::kLocalSteps;
  const std::string of = all     ? "all layers"
                         : layer ? options_.model->layers(*layer).name()
                                 : "step " + std::to_string(step);
  options_.trace->Add({name, of, "compute", iteration_, begin, end});
}

}  // namespace poseidon
