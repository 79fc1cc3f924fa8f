#include "scheduler/stragglers/straggler_watch.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/text/format.h"
#include "proto/plan_members.h"
#include "transport/monitor/own_seconds.h"

namespace poseidon {
namespace {

// The values of all workers, of which each one's is compared with the others'.
class Values {
 public:
  void Add(double value) { values_.push_back(value); }
  void Sort() { std::ranges::sort(values_); }
  // Sorted, at least one.
  double Median() const { return Middle(values_.size(), values_.size()); }
  // Of all but one of this value, which is among them; at least two.
  double MedianWithout(double value) const {
    const auto found = std::ranges::lower_bound(values_, value);
    return Middle(values_.size() - 1, static_cast<size_t>(found - values_.begin()));
  }

 private:
  // Of `count` values: without the one at `left_out`.
  double Middle(size_t count, size_t left_out) const {
    const auto at = [&](size_t i) { return values_[i < left_out ? i : i + 1]; };
    return (at((count - 1) / 2) + at(count / 2)) / 2;
  }

  std::vector<double> values_;
};

template <typename List, typename Get>
Values ValuesOf(const List& list, const Get& get) {
  Values values;
  for (const auto& entry : list) values.Add(get(entry));
  values.Sort();
  return values;
}

// What takes long, and where to look.
std::string Explanation(SlowPart part, double ratio, double own, double others) {
  const std::string times =
      Format("%.1f times as long as the others (%.1f ms an iteration, theirs %.1f ms)", ratio, own,
             others);
  const std::string by_itself = "computing and waiting for data take it " + times;
  switch (part) {
    case SlowPart::kCompute:
      return by_itself + ", most of it in computing; see what else runs on its machine";
    case SlowPart::kData:
      return by_itself + ", most of it in waiting for data; see how fast its disk reads";
    case SlowPart::kLink:
      break;
  }
  return "its exchange takes " + times + " though it computes as fast; see what its link carries";
}

}  // namespace

const char* SlowPartName(SlowPart part) {
  switch (part) {
    case SlowPart::kCompute:
      return "compute";
    case SlowPart::kData:
      return "disk";
    case SlowPart::kLink:
      break;
  }
  return "link";
}

wire::StragglerRecord RecordOf(const Straggler& straggler) {
  wire::StragglerRecord record;
  record.set_worker(straggler.rank);
  record.set_part(static_cast<wire::StragglerRecord::Part>(straggler.part));
  record.set_ratio(straggler.ratio);
  record.set_from(straggler.from);
  if (straggler.until) record.set_until(*straggler.until);
  return record;
}

Straggler StragglerOf(const wire::StragglerRecord& record) {
  const bool is_part = wire::StragglerRecord::Part_IsValid(record.part());
  return {record.worker(), is_part ? static_cast<SlowPart>(record.part()) : SlowPart::kCompute,
          record.ratio(), record.from(),
          record.has_until() ? std::optional<int64_t>(record.until()) : std::nullopt};
}

void StragglerWatch::SetWorkers(int workers) {
  workers_ = workers;
  samples_.clear();
  Forget();
}

void StragglerWatch::SetPlan(const Plan& plan) {
  SetWorkers(plan.workers());
  const double all = std::accumulate(plan.parts().begin(), plan.parts().end(), 0.0);
  for (int place = 0; place < plan.parts_size(); ++place) {
    samples_[RankOfWorker(plan, place)] =
        static_cast<double>(plan.parts(place)) * plan.parts_size() / all;
  }
}

void StragglerWatch::Forget() {
  recent_.clear();
  complete_ = 0;
}

std::vector<std::string> StragglerWatch::Add(const wire::Progress& progress) {
  changed_.clear();
  const bool is_test = progress.has_test_accuracy() || progress.has_test_loss();
  if (is_test || workers_ < 2) return {};
  Recent& recent = recent_[progress.rank()];
  const auto samples = samples_.find(progress.rank());
  const double own_ms = 1000 / (samples == samples_.end() ? 1 : samples->second);
  recent.seconds += progress.iteration_seconds();
  recent.times.push_back({own_ms * ComputeSeconds(progress), own_ms * progress.data_seconds(),
                          1000 * progress.exchange_seconds()});
  if (recent.times.size() > kIterations)
    recent.times.pop_front();
  else if (recent.times.size() == kIterations)
    ++complete_;
  return complete_ >= workers_ ? Compare(progress.iteration()) : std::vector<std::string>();
}

StragglerWatch::Times StragglerWatch::MedianOf(const std::deque<Times>& times) {
  return {ValuesOf(times, [](const Times& t) { return t.compute; }).Median(),
          ValuesOf(times, [](const Times& t) { return t.data; }).Median(),
          ValuesOf(times, [](const Times& t) { return t.exchange; }).Median()};
}

std::vector<std::string> StragglerWatch::Compare(int64_t iteration) {
  std::map<int, Times> medians;
  double seconds = 0;
  for (const auto& [rank, recent] : recent_) {
    medians[rank] = MedianOf(recent.times);
    seconds = std::max(seconds, recent.seconds);
  }
  Forget();
  const std::vector<Straggler> before = stragglers_;
  for (Straggler& straggler : stragglers_) {
    if (!straggler.until && !medians.contains(straggler.rank)) straggler.until = iteration;
  }
  std::vector<std::string> news = JudgeAll(medians, seconds, iteration);
  std::ranges::copy_if(stragglers_, std::back_inserter(changed_), [&](const Straggler& straggler) {
    return std::ranges::find(before, straggler) == before.end();
  });
  return news;
}

std::vector<std::string> StragglerWatch::JudgeAll(const std::map<int, Times>& medians,
                                                  double seconds, int64_t iteration) {
  const auto values = [&](const auto& get) {
    return ValuesOf(medians, [&](const auto& of) { return get(of.second); });
  };
  const Values compute = values([](const Times& t) { return t.compute; });
  const Values data = values([](const Times& t) { return t.data; });
  const Values exchange = values([](const Times& t) { return t.exchange; });
  const Values own_times = values([](const Times& t) { return t.own(); });
  const Values together = values([](const Times& t) { return t.together(); });
  std::vector<std::string> news;
  for (const auto& [rank, own] : medians) {
    const Others others{compute.MedianWithout(own.compute), data.MedianWithout(own.data),
                        exchange.MedianWithout(own.exchange), own_times.MedianWithout(own.own()),
                        together.MedianWithout(own.together())};
    auto sentence = Judge(rank, FindingOf(own, others), seconds, iteration);
    if (sentence) news.push_back(std::move(*sentence));
  }
  return news;
}

StragglerWatch::Finding StragglerWatch::FindingOf(const Times& own, const Others& others) {
  const auto ratio = [](double a, double b) { return b > 0 ? a / b : 1.0; };
  const bool waits_for_data = own.data - others.data > own.compute - others.compute;
  const Finding by_itself{waits_for_data ? SlowPart::kData : SlowPart::kCompute,
                          ratio(own.own(), others.own), own.own(), others.own};
  if (by_itself.ratio > kSlow) return by_itself;
  // Who computes faster than the others waits for them in its exchange, and who computes longer
  // begins it later, so the two are looked at together.
  const double together = ratio(own.together(), others.together);
  if (together <= by_itself.ratio) return by_itself;
  return {SlowPart::kLink, std::min(together, ratio(own.exchange, others.exchange)), own.exchange,
          others.exchange};
}

std::optional<std::string> StragglerWatch::Judge(int rank, const Finding& finding, double seconds,
                                                 int64_t iteration) {
  Straggler* present = FindPresent(rank);
  const bool is_slow =
      finding.ratio > kSlow && finding.milliseconds - finding.others >= kLeastMilliseconds;
  const bool changed = present == nullptr ? is_slow : finding.ratio < kHealed;
  Change& change = changes_[rank];
  change = changed ? Change{change.comparisons + 1, change.seconds + seconds} : Change{};
  if (change.comparisons < kInARow || change.seconds < kLeastSeconds) {
    if (present != nullptr && is_slow) {
      present->part = finding.part;
      present->ratio = finding.ratio;
    }
    return std::nullopt;
  }
  change = {};
  if (present == nullptr) return Begin(rank, finding, iteration);
  present->until = iteration;
  return Format("worker %d is as fast as the others again", rank);
}

std::string StragglerWatch::Begin(int rank, const Finding& finding, int64_t iteration) {
  Keep({rank, finding.part, finding.ratio, iteration, std::nullopt});
  return Format("worker %d is slow: ", rank) +
         Explanation(finding.part, finding.ratio, finding.milliseconds, finding.others);
}

void StragglerWatch::Keep(const Straggler& straggler) {
  if (stragglers_.size() == kMost) {
    const auto ended =
        std::ranges::find_if(stragglers_, [](const Straggler& s) { return s.until.has_value(); });
    stragglers_.erase(ended == stragglers_.end() ? stragglers_.begin() : ended);
  }
  stragglers_.push_back(straggler);
}

void StragglerWatch::Restore(const Straggler& straggler) {
  const auto known = std::ranges::find_if(stragglers_, [&](const Straggler& s) {
    return s.rank == straggler.rank && s.from == straggler.from;
  });
  if (known == stragglers_.end()) return Keep(straggler);
  *known = straggler;
}

Straggler* StragglerWatch::FindPresent(int rank) {
  const auto found = std::ranges::find_if(
      stragglers_, [&](const Straggler& s) { return s.rank == rank && !s.until; });
  return found == stragglers_.end() ? nullptr : &*found;
}

}  // namespace poseidon
