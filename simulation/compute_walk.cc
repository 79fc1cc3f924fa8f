#include "simulation/compute_walk.h"

#include <cmath>
#include <string>

namespace poseidon {

ComputeWalk::ComputeWalk(const Options& options) : options_(options) {
  if (!options_.measure) return;
  std::vector<std::optional<int>> layers;
  for (const ComputeStep& step : options_.timeline->steps) layers.push_back(step.layer);
  timer_.emplace(layers);
}

void ComputeWalk::Begin(int64_t iteration, Time now) {
  iteration_ = iteration;
  since_ = now;
  pass_ = Pass::kForward;
  options_.iterations->push_back({now, {}, {}, iteration});
}

void ComputeWalk::Abandon() {
  if (computing()) options_.iterations->pop_back();
  pass_ = Pass::kNone;
  step_ = 0;
  waiting_ = false;
}

Duration ComputeWalk::Start(Time now) {
  if (waiting_) {
    waiting_ = false;
    options_.iterations->back().exposed += now - since_;
    AddTrace("wait", since_, now);
  }
  since_ = now;
  const Duration time = pass_ == Pass::kForward ? step().forward : step().backward;
  const double factor = options_.compute_factor * part_;
  if (factor == 1) return time;
  return Duration(std::llround(static_cast<double>(time.count()) * factor));
}

ComputeWalk::Done ComputeWalk::Finish(Time now) {
  const bool forward = pass_ == Pass::kForward;
  AddTrace(forward ? "forward" : "backward", since_, now);
  if (timer_) {
    const auto add = forward ? &LayerTimer::AddForward : &LayerTimer::AddBackward;
    ((*timer_).*add)(static_cast<int>(step_), now - since_);
  }
  since_ = now;
  if (forward) {
    if (step_ + 1 < options_.timeline->steps.size()) {
      ++step_;
    } else {
      pass_ = Pass::kBackward;
    }
    return {};
  }
  const Done done{step().layer, step_ == 0};
  if (done.iteration) {
    pass_ = Pass::kNone;
    options_.iterations->back().end = now;
  } else {
    --step_;
  }
  return done;
}

std::optional<wire::LayerTimes> ComputeWalk::Measured() {
  if (!timer_) return std::nullopt;
  const std::optional<wire::LayerTimes> times = timer_->EndIteration();
  if (times) timer_.reset();
  return times;
}

void ComputeWalk::AddTrace(const char* name, Time begin, Time end) {
  if (options_.trace == nullptr) return;
  const std::string layer =
      step().layer ? options_.model->layers(*step().layer).name() : "step " + std::to_string(step_);
  options_.trace->Add({name, layer, "compute", iteration_, begin, end});
}

}  // namespace poseidon
