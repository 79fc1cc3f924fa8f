#include "cli/doctor/doctor_output.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/text/utf8.h"

namespace poseidon {
namespace {

std::string Padded(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

std::string Counted(int count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

nlohmann::ordered_json LinksJson(const std::vector<HostLink>& links) {
  constexpr double kMilliseconds = 1000;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const HostLink& link : links) {
    list.push_back({{"from", Printable(link.from)},
                    {"to", Printable(link.to)},
                    {"latency_ms", kMilliseconds * link.latency_seconds},
                    {"goodput_bytes_per_second", link.goodput_bytes_per_second}});
  }
  return list;
}

}  // namespace

int CountOf(FindingLevel level, const Findings& findings) {
  return static_cast<int>(
      std::count_if(findings.begin(), findings.end(),
                    [level](const Finding& finding) { return finding.level == level; }));
}

std::string FindingsText(const Findings& findings) {
  constexpr size_t kLevelWidth = 9;
  constexpr size_t kCheckWidth = 10;
  std::string text;
  for (const Finding& finding : findings) {
    text += Padded(NameOf(finding.level), kLevelWidth) + Padded(finding.check, kCheckWidth) +
            Printable(finding.text) +
            (finding.mend.empty() ? "" : "; mend: " + Printable(finding.mend)) + "\n";
  }
  return text + Counted(CountOf(FindingLevel::kError, findings), "error") + ", " +
         Counted(CountOf(FindingLevel::kWarning, findings), "warning") + "\n";
}

std::string FindingsJson(const Findings& findings, const std::vector<HostLink>& links) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    nlohmann::ordered_json json;
    json["level"] = NameOf(finding.level);
    json["check"] = finding.check;
    json["text"] = Printable(finding.text);
    json["mend"] = finding.mend.empty() ? nlohmann::ordered_json()
                                        : nlohmann::ordered_json(Printable(finding.mend));
    list.push_back(std::move(json));
  }
  nlohmann::ordered_json json;
  json["findings"] = std::move(list);
  json["errors"] = CountOf(FindingLevel::kError, findings);
  json["warnings"] = CountOf(FindingLevel::kWarning, findings);
  json["links"] = LinksJson(links);
  return json.dump(2) + "\n";
}

}  // namespace poseidon
