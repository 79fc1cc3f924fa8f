#include "cli/output/status_text.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/output/experiment_progress.h"
#include "cli/output/table.h"
#include "core/error.h"
#include "core/text/utf8.h"
#include "scheduler/report/iteration_pace.h"

namespace poseidon {
namespace {

using Json = nlohmann::ordered_json;

// null is not known.
double NumberOf(const Json& object, const char* key) {
  const Json& value = object.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

std::string TextOf(const Json& object, const char* key) {
  return Printable(object.at(key).get<std::string>());
}

// "-" for what is not known.
std::string DigitsOf(double value, int digits) {
  return std::isnan(value) ? "-" : Digits(value, digits);
}

std::string IterationText(const Json& status) {
  std::string text = "iteration " + Grouped(status.at("iteration").get<int64_t>());
  const Json& all = status.at("iterations");
  return all.is_null() ? text : text + " of " + Grouped(all.get<int64_t>());
}

std::string FiguresText(const Json& status) {
  std::string text = IterationText(status);
  const double loss = NumberOf(status, "loss");
  const double rate = NumberOf(status, "images_per_second");
  const double iteration = NumberOf(status, "iteration_ms");
  const double predicted = NumberOf(status, "predicted_iteration_ms");
  if (!std::isnan(loss)) text += ", loss " + Digits(loss, 4);
  if (!std::isnan(rate)) text += ", " + RateText(rate);
  if (!std::isnan(iteration)) {
    text += ", " + Digits(iteration, 2) + " ms an iteration";
    if (!std::isnan(predicted)) text += " (predicted " + Digits(predicted, 2) + ")";
    const double exposed = NumberOf(status, "exposed_ms");
    if (iteration > 0 && !std::isnan(exposed)) {
      text += ", computing stands still for " + Digits(100 * exposed / iteration, 0) + "% of it";
    }
  }
  return text + "\n";
}

std::string HeadText(const Json& status) {
  const Json& end = status.at("end");
  std::string text = TextOf(status, "job") + ": " + TextOf(status, "phase");
  if (!end.is_null()) {
    return text + (end.at("exit_code") == 0
                       ? ", well\n"
                       : " with code " + std::to_string(end.at("exit_code").get<int>()) + ": " +
                             TextOf(end, "reason") + "\n");
  }
  const std::string waiting_for = TextOf(status, "waiting_for");
  if (!waiting_for.empty()) text += ", waiting for " + waiting_for;
  // A monitor of an earlier build does not say.
  const double left = status.contains("seconds_left") ? NumberOf(status, "seconds_left") : NAN;
  if (!std::isnan(left)) text += ", about " + RoughTime(Seconds(left)) + " left";
  return text + "\n";
}

// "compute, 2.0 times"; empty for a worker that is as fast as the others.
std::string SlowText(const Json& slow) {
  if (slow.is_null()) return "";
  return TextOf(slow, "part") + ", " + DigitsOf(NumberOf(slow, "ratio"), 1) + " times";
}

// "9.41 Gb/s", of a worker's slowest link; empty where none has been measured.
std::string LinkText(const Json& link) {
  if (link.is_null()) return "";
  constexpr double kGigabits = 8e-9;
  return DigitsOf(kGigabits * NumberOf(link, "goodput_bytes_per_second"), 2) + " Gb/s";
}

std::string NodesText(const Json& status) {
  using Align = Table::Align;
  Table table({{"node"},
               {"state"},
               {"host"},
               {"iteration", Align::kRight},
               {"lag", Align::kRight},
               {"iteration ms", Align::kRight},
               {"exposed ms", Align::kRight},
               {"link", Align::kRight},
               {"slow"},
               {"waits for"}});
  for (const Json& node : status.at("nodes")) {
    std::vector<std::string> row = {
        TextOf(node, "role") + " " + std::to_string(node.at("rank").get<int>()),
        TextOf(node, "state"), TextOf(node, "host")};
    if (node.contains("lag")) {
      row.push_back(Grouped(node.at("iteration").get<int64_t>()));
      row.push_back(Grouped(node.at("lag").get<int64_t>()));
      row.push_back(DigitsOf(NumberOf(node, "iteration_ms"), 2));
      row.push_back(DigitsOf(NumberOf(node, "exposed_ms"), 2));
      row.push_back(LinkText(node.at("link")));
      row.push_back(SlowText(node.at("slow")));
    } else {
      row.resize(row.size() + 6);
    }
    row.push_back(TextOf(node, "waits_for"));
    table.AddRow(std::move(row));
  }
  return table.ToString();
}

std::string BucketsText(const Json& status) {
  using Align = Table::Align;
  if (status.at("buckets").empty()) return "";
  Table table({{"bucket"},
               {"scheme"},
               {"codec"},
               {"bytes", Align::kRight},
               {"predicted ms", Align::kRight},
               {"measured ms", Align::kRight}});
  for (const Json& bucket : status.at("buckets")) {
    table.AddRow({TextOf(bucket, "name"), TextOf(bucket, "scheme"), TextOf(bucket, "codec"),
                  Grouped(bucket.at("bytes").get<int64_t>()),
                  DigitsOf(NumberOf(bucket, "predicted_ms"), 2),
                  DigitsOf(NumberOf(bucket, "measured_ms"), 2)});
  }
  return "\n" + table.ToString();
}

}  // namespace

std::string StatusText(const Json& status) {
  try {
    return HeadText(status) + FiguresText(status) + "\n" + NodesText(status) + BucketsText(status);
  } catch (const Json::exception& error) {
    throw Error(ExitCode::kFailure,
                std::string("what has answered is no monitor of this version: ") + error.what());
  }
}

}  // namespace poseidon
