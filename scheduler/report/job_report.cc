#include "scheduler/report/job_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "core/arithmetic/median.h"
#include "core/text/format.h"
#include "planner/cost/iteration_record.h"
#include "planner/lane_choice.h"
#include "planner/placement.h"
#include "planner/replan.h"
#include "proto/bucket.h"
#include "scheduler/report/iteration_pace.h"
#include "scheduler/report/parameter_agreement.h"
#include "scheduler/report/summary_lists.h"
#include "scheduler/report/unknown_value.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

// Often enough to see that it lives, rarely enough to read.
constexpr Duration kLineInterval = Seconds(1);

// Iterations of which nobody has told, before one that is: more are a mistake, not a lost
// scheduler.
constexpr int64_t kMostAhead = 1 << 20;

// The buckets that are most off, at the end: enough to see a pattern, few enough for a glance.
constexpr size_t kBucketsToReview = 3;

std::string TestLine(const wire::Progress& progress) {
  std::string line =
      Format("test at iteration %lld:", static_cast<long long>(progress.iteration()));
  if (progress.has_test_accuracy()) line += Format("  accuracy %.4f", progress.test_accuracy());
  if (progress.has_test_loss()) line += Format("  loss %.4f", progress.test_loss());
  return line;
}

// "worker 2 (node3, process 7) joined; ", if anybody came or went as was asked for.
std::string WhoChanged(const wire::Recovered& recovered) {
  std::string text;
  for (const wire::Node& node : recovered.joined()) text += Describe(node) + " joined; ";
  for (const wire::Node& node : recovered.left()) text += Describe(node) + " left; ";
  if (!text.empty()) text += std::to_string(recovered.workers()) + " worker(s); ";
  return text;
}

}  // namespace

double JobReport::Iteration::MeanLoss() const { return losses > 0 ? loss / losses : kUnknownValue; }

void JobReport::Restore(const wire::JournalRecord& record) {
  using Record = wire::JournalRecord;
  switch (record.record_case()) {
    case Record::kTerm:
      ++terms_;
      return;
    case Record::kPlan:
      return OnPlan(record.plan());
    case Record::kIteration:
      return Add(record.iteration());
    case Record::kStart:
      if (record.start().has_recovered()) OnRecovered(record.start().recovered());
      return;
    case Record::kFinished:
      finished_[record.finished().rank()] = record.finished();
      return;
    case Record::kLinks:
      links_[record.links().rank()] = record.links();
      return;
    case Record::kStraggler:
      return stragglers_.Restore(StragglerOf(record.straggler()));
    case Record::kRecalibrated:
      return CopyPredictions(record.recalibrated(), *plan_.mutable_plan());
    default:
      return;
  }
}

void JobReport::Tell(const wire::JournalRecord& record) const {
  if (on_record_) on_record_(record);
}

void JobReport::OnPlan(const wire::PlanAndModel& plan) {
  plan_ = plan;
  layouts_[plan.plan().number()] = plan.plan().layout();
  workers_ = plan.plan().workers();
  stragglers_.SetPlan(plan.plan());
  if (!first_iteration_) first_iteration_ = plan.plan().start_iteration();
}

void JobReport::OnLinks(const wire::LinkReport& links) {
  links_[links.rank()] = links;
  wire::JournalRecord record;
  *record.mutable_links() = links;
  Tell(record);
}

void JobReport::OnRecalibration(const Plan& plan) {
  CopyPredictions(plan, *plan_.mutable_plan());
  wire::JournalRecord record;
  *record.mutable_recalibrated() = plan_.plan();
  Tell(record);
}

std::vector<std::string> JobReport::OnPace(const wire::Progress& progress) {
  std::vector<std::string> news = stragglers_.Add(progress);
  for (const Straggler& straggler : stragglers_.changed()) {
    wire::JournalRecord record;
    *record.mutable_straggler() = RecordOf(straggler);
    Tell(record);
  }
  return news;
}

void JobReport::OnFinished(const wire::WorkerReport& report) {
  wire::JournalRecord record;
  *record.mutable_finished() = report;
  Tell(record);
  finished_[report.rank()] = report;
  if (static_cast<int>(finished_.size()) == workers_) {
    RecordOpen(std::numeric_limits<int64_t>::max());
  }
}

std::optional<std::string> JobReport::OnProgress(const wire::Progress& progress, Time now) {
  if (progress.has_test_accuracy() || progress.has_test_loss()) return TestLine(progress);
  if (!IsPlausible(progress.iteration()) || IsRecorded(progress.iteration())) return std::nullopt;
  Iteration& iteration = open_[progress.iteration()];
  if (!iteration.reports.insert(progress.rank()).second) return std::nullopt;
  iteration.loss += progress.loss();
  iteration.losses += progress.has_loss() ? 1 : 0;
  iteration.images += progress.images();
  iteration.seconds.push_back(progress.iteration_seconds());
  iteration.exchange += progress.exchange_seconds();
  iteration.exposed += progress.exposed_seconds();
  if (static_cast<int>(iteration.reports.size()) < workers_) return std::nullopt;

  Record(progress.iteration(), iteration);
  const double loss = iteration.MeanLoss();
  open_.erase(progress.iteration());
  if (progress.iteration() + 1 < *first_iteration_ + loss_.size()) {
    return std::nullopt;  // it has been told late
  }
  if (!last_line_) last_line_ = now;  // the first interval starts with the first iteration's end
  const bool last = progress.iteration() + 1 == progress.total_iterations();
  if (!last && (now - *last_line_ < kLineInterval)) return std::nullopt;
  std::string line = ProgressLine(progress, loss);
  last_line_ = now;
  since_line_ = {};
  return line;
}

std::string JobReport::OnRecovered(const wire::Recovered& recovered) {
  recoveries_.push_back(recovered);
  finished_.clear();
  stragglers_.Forget();
  RecordOpen(recovered.iteration());
  open_.clear();
  CutFrom(recovered.iteration());
  return WhoChanged(recovered) + Format("goes on from iteration %lld; for %.1f s none was done",
                                        static_cast<long long>(recovered.iteration()),
                                        recovered.still_seconds());
}

void JobReport::CutFrom(int64_t number) {
  const int64_t kept = std::max<int64_t>(0, number - first_iteration_.value_or(number));
  if (kept < static_cast<int64_t>(recorded_.size())) recorded_.resize(kept);
  for (IterationMeans* means : {&loss_, &duration_ms_, &together_ms_, &exposed_ms_, &images_})
    means->CutFrom(kept);
}

bool JobReport::IsPlausible(int64_t number) const {
  const int64_t first = first_iteration_.value_or(number);
  return number >= first && number - first <= loss_.size() + kMostAhead;
}

bool JobReport::IsRecorded(int64_t number) const {
  if (!first_iteration_ || number < *first_iteration_) return false;
  const int64_t index = number - *first_iteration_;
  return index < static_cast<int64_t>(recorded_.size()) && recorded_[index];
}

void JobReport::Add(const wire::IterationRecord& iteration) {
  if (!first_iteration_) first_iteration_ = iteration.number();
  if (iteration.number() < *first_iteration_ || IsRecorded(iteration.number())) return;
  const int64_t index = iteration.number() - *first_iteration_;
  if (index >= static_cast<int64_t>(recorded_.size())) recorded_.resize(index + 1);
  recorded_[index] = true;
  loss_.Add(index, iteration.loss());
  duration_ms_.Add(index, iteration.duration_ms());
  together_ms_.Add(index, TogetherMs(iteration));
  exposed_ms_.Add(index, iteration.exposed_ms());
  images_.Add(index, static_cast<double>(iteration.images()));
}

void JobReport::RecordOpen(int64_t end) {
  while (!open_.empty() && open_.begin()->first < end) {
    Record(open_.begin()->first, open_.begin()->second);
    open_.erase(open_.begin());
  }
}

void JobReport::Record(int64_t number, const Iteration& done) {
  const auto reports = static_cast<double>(done.reports.size());
  wire::JournalRecord told;
  wire::IterationRecord& record = *told.mutable_iteration();
  record.set_number(number);
  // What is nobody's is not a number, as for iterations that nobody has told of.
  record.set_loss(done.MeanLoss());
  const double seconds = std::accumulate(done.seconds.begin(), done.seconds.end(), 0.0);
  record.set_duration_ms(1000 * seconds / reports);
  record.set_exposed_ms(1000 * done.exposed / reports);
  record.set_images(done.images);
  if (plan_.plan().staleness() < 0) {
    record.set_together_ms(1000 * SecondsOfAll(JointPace::kEachItsOwn, done.seconds));
    record.set_slowest_ms(1000 * std::ranges::max(done.seconds));
  }
  Add(record);
  Tell(told);
  since_line_.seconds += TogetherMs(record) / 1000;
  since_line_.images += done.images;
  since_line_.exchange += done.exchange;
  since_line_.exposed += done.exposed;
}

std::string JobReport::ProgressLine(const wire::Progress& progress, double loss) const {
  const double seconds = since_line_.seconds;
  const double exposed =
      since_line_.exchange > 0 ? 100 * since_line_.exposed / since_line_.exchange : 0;
  std::string line = Format("iteration %lld", static_cast<long long>(progress.iteration()) + 1);
  if (progress.total_iterations() > 0) {
    line += Format("/%lld", static_cast<long long>(progress.total_iterations()));
  }
  if (!std::isnan(loss)) line += Format("  loss %.4f", loss);
  if (seconds > 0 && since_line_.images > 0) {
    line += "  " + RateText(static_cast<double>(since_line_.images) / seconds);
  }
  return line + Format("  communication not hidden %.0f%%", exposed);
}

std::string JobReport::PlanTable() const {
  const Plan& plan = plan_.plan();
  int width = 6;
  for (const BucketPlan& bucket : plan.buckets()) {
    width = std::max(width, static_cast<int>(bucket.name().size()));
  }
  std::string table = Format("%-*s  %6s  %-16s  %-5s  %12s  %8s", width, "bucket", "layers",
                             "scheme", "codec", "parameters", "KV pairs");
  const bool predicted = plan.iteration_ms() > 0;
  table += predicted ? "  predicted ms\n" : "\n";
  for (const BucketPlan& bucket : plan.buckets()) {
    table +=
        Format("%-*s  %6d  %-16s  %-5s  %12lld  %8s", width, bucket.name().c_str(),
               bucket.layer_count(), SchemeName(bucket.scheme()).c_str(),
               CodecName(bucket.codec()).c_str(), static_cast<long long>(FloatCount(bucket)),
               UsesServers(bucket.scheme()) ? std::to_string(bucket.chunks_size()).c_str() : "-");
    table += predicted ? Format("  %12.2f\n", bucket.prediction().exchange_ms()) : "\n";
  }
  const bool uses_servers =
      std::any_of(plan.buckets().begin(), plan.buckets().end(),
                  [](const BucketPlan& bucket) { return UsesServers(bucket.scheme()); });
  table += uses_servers ? Format("fullest server holds %.2f times the mean", LoadImbalance(plan))
                        : "no bucket uses a server";
  if (predicted) {
    table += "\n" + LanesText(plan);
    table += Format("\npredicted iteration %.2f ms; ", plan.iteration_ms());
    if (plan.simulated_ms() > 0) {
      table += Format("tried in virtual time: %.2f ms; ", plan.simulated_ms());
    }
    table += Format("without any exchange %.2f ms", plan.compute_ms());
  }
  return table;
}

int64_t JobReport::Iterations() const {
  int64_t most = 0;  // a process that took a lost one's place has done fewer
  for (const auto& [rank, report] : finished_) most = std::max(most, report.iterations());
  return recoveries_.empty() ? most : std::max(most, loss_.size());
}

bool JobReport::KnowsImages() const {
  return std::ranges::any_of(finished_,
                             [](const auto& entry) { return entry.second.images() > 0; });
}

double JobReport::ImagesPerSecond() const {
  if (!KnowsImages()) return kUnknownValue;
  if (!recoveries_.empty()) return ImagesPerSecondOfEach();
  int64_t images = 0;
  std::vector<WorkerTime> times;
  for (const auto& [rank, report] : finished_) {
    images += report.images();
    if (report.training_seconds() > 0) times.push_back(TimeOf(report));
  }
  return times.empty() ? 0 : static_cast<double>(images) / TimeOfAll(times);
}

JobReport::WorkerTime JobReport::TimeOf(const wire::WorkerReport& report, double iterations) {
  const double whole = report.training_seconds();
  // Nobody waits for what worker 0 does at the end, such as the last test of a user's program.
  const double busy = report.rank() == 0 ? 0 : whole - report.exposed_seconds();
  return {whole / iterations, busy / iterations};
}

double JobReport::TimeOfAll(const std::vector<WorkerTime>& times) const {
  const auto [least, most] = std::ranges::minmax(times, {}, &WorkerTime::whole);
  if (!IsInStep()) return most.whole;
  // A test of worker 0's that others did not wait for, as they are slower, is no time less.
  return std::max(least.whole, std::ranges::max(times, {}, &WorkerTime::busy).busy);
}

bool JobReport::IsInStep() const { return recoveries_.empty() && plan_.plan().staleness() == 0; }

double JobReport::ImagesPerSecondOfEach() const {
  double sum = 0;
  for (const auto& [rank, report] : finished_) {
    if (report.training_seconds() <= 0) continue;
    sum += static_cast<double>(report.images()) / report.training_seconds();
  }
  return sum;
}

double JobReport::ExposedShare() const {
  double exchange = 0;
  double exposed = 0;
  for (const auto& [rank, report] : finished_) {
    exchange += report.exchange_seconds();
    exposed += report.exposed_seconds();
  }
  return exchange > 0 ? exposed / exchange : 0;
}

std::string JobReport::Closing() const {
  if (finished_.empty()) return "no worker finished";
  const wire::WorkerReport& first = finished_.begin()->second;
  std::string text = Format("%lld iterations", static_cast<long long>(Iterations()));
  if (KnowsImages()) text += ", " + RateText(ImagesPerSecond());
  text += Format(", communication not hidden %.0f%%", 100 * ExposedShare());
  if (first.has_test_accuracy()) text += Format(", test accuracy %.4f", first.test_accuracy());
  if (first.has_test_loss()) text += Format(", test loss %.4f", first.test_loss());
  return text + "\n" + DescribeParameters(finished_) + PredictionReview();
}

double JobReport::IterationMilliseconds() const {
  std::vector<WorkerTime> means;
  for (const auto& [rank, report] : finished_) {
    if (report.iterations() == 0) continue;
    means.push_back(TimeOf(report, static_cast<double>(report.iterations())));
  }
  return means.empty() ? 0 : 1000 * TimeOfAll(means);
}

std::optional<double> JobReport::MedianMilliseconds() const {
  const int64_t skipped = plan_.plan().start_iteration() - first_iteration_.value_or(0) + 1;
  std::vector<double> since = together_ms_.Means(skipped);
  std::erase_if(since, [](double milliseconds) { return std::isnan(milliseconds); });
  if (since.empty()) return std::nullopt;
  // Not the mean: some iterations wait for worker 0's test phase.
  return Median(std::move(since));
}

std::string JobReport::PredictionReview() const {
  const Plan& plan = plan_.plan();
  const std::optional<double> median = MedianMilliseconds();
  const double mean = IterationMilliseconds();
  double measured = median.value_or(mean);
  // Where more iterations test than do not, or a place holds several, tests are in the median.
  if (plan.number() == 0 && IsInStep() && mean > 0) measured = std::min(measured, mean);
  if (plan.iteration_ms() <= 0 || measured <= 0) return "";
  std::string text =
      Format("\niteration: predicted %.2f ms, measured %.2f ms (%+.0f%%)",
             ExpectedIterationMs(plan), measured, 100 * (measured / ExpectedIterationMs(plan) - 1));
  if (median && plan.number() > 0) {
    text +=
        Format(" since the plan of iteration %lld", static_cast<long long>(plan.start_iteration()));
  }
  const std::vector<BucketSums> buckets = SumBuckets(plan, layouts_, finished_);
  std::vector<std::pair<double, int>> off;  // how many milliseconds, which bucket
  for (int b = 0; b < plan.buckets_size(); ++b) {
    if (buckets[b].measured_workers == 0 || !plan.buckets(b).has_prediction()) continue;
    const double predicted = plan.buckets(b).prediction().exchange_ms();
    off.push_back({-std::abs(buckets[b].milliseconds - predicted), b});
  }
  std::sort(off.begin(), off.end());
  for (size_t i = 0; i < std::min<size_t>(off.size(), kBucketsToReview); ++i) {
    const BucketPlan& bucket = plan.buckets(off[i].second);
    text += Format("\n  bucket %.100s (%s): predicted %.2f ms, measured %.2f ms",
                   bucket.name().c_str(), SchemeName(bucket.scheme()).c_str(),
                   bucket.prediction().exchange_ms(), buckets[off[i].second].milliseconds);
  }
  return text;
}

std::string JobReport::Json(const std::string& job_name, const wire::End& end,
                            std::optional<Duration> elapsed) const {
  const std::vector<BucketSums> sums = SumBuckets(plan_.plan(), layouts_, finished_);
  const int64_t first_iteration = first_iteration_.value_or(0);
  nlohmann::ordered_json json;
  json["job"] = job_name;
  json["exit_code"] = end.job_exit_code() != 0 ? end.job_exit_code() : end.exit_code();
  json["reason"] = end.reason();
  // How long those before it ran, and how long there was none, a later scheduler does not know.
  const bool is_first = terms_ == 0;
  json["elapsed_seconds"] = elapsed && is_first ? ToSeconds(*elapsed) : kUnknownValue;
  json["first_iteration"] = first_iteration;
  json["iterations"] = loss_.size();
  if (!finished_.empty()) {
    const wire::WorkerReport& first = finished_.begin()->second;
    if (first.has_test_accuracy()) json["test_accuracy"] = first.test_accuracy();
    if (first.has_test_loss()) json["test_loss"] = first.test_loss();
  }
  const auto known = [&](double value) { return finished_.empty() ? kUnknownValue : value; };
  json["images_per_second"] = known(ImagesPerSecond());
  json["communication_not_hidden"] = known(ExposedShare());
  json["iteration_ms"] = known(IterationMilliseconds());
  if (plan_.plan().iteration_ms() > 0) {
    json["predicted_iteration_ms"] = ExpectedIterationMs(plan_.plan());
    json["compute_ms"] = plan_.plan().compute_ms();
  }
  json["stride"] = loss_.stride();
  json["loss"] = loss_.Means();
  json["duration_ms"] = duration_ms_.Means();
  // Where workers wait for each other it is duration_ms.
  if (plan_.plan().staleness() < 0) json["together_ms"] = together_ms_.Means();
  json["exposed_ms"] = exposed_ms_.Means();
  json["images"] = images_.Means();
  json["recoveries"] = RecoveriesJson(recoveries_);
  json["tenures"] = TenuresJson(plan_.plan(), first_iteration);
  json["stragglers"] = StragglersJson(stragglers());
  json["scheduler_restarts"] = terms_;
  json["layers"] = LayersJson(plan_, sums);
  json["buckets"] = BucketsJson(plan_, sums);
  json["workers"] = WorkersJson(finished_);
  json["servers"] = ServersJson(SumServers(plan_.plan(), finished_));
  if (!links_.empty()) json["links"] = LinksJson(links_, first_workers_);
  return json.dump(2) + "\n";
}

}  // namespace poseidon
