#include "diagnosis/job_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/log_lines.h"
#include "core/files/regular_file.h"
#include "core/text/utf8.h"
#include "diagnosis/frame_pairs.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEvents = ".events.json";
constexpr std::string_view kTrace = ".trace.json";
constexpr std::string_view kLog = ".log";
// JobMonitor::kUrlFile, of a room above.
constexpr const char* kMonitor = "/monitor.url";

// Of a log: a failed check or an exception and what follows it.
constexpr size_t kLastLines = 5;

std::vector<std::string> FilesOf(const fs::path& directory, std::string_view ending) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().string().ends_with(ending)) files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  return files;
}

std::optional<JobFiles::Summary> ReadSummary(const std::string& path) {
  if (!fs::exists(path)) return std::nullopt;
  try {
    const auto json =
        nlohmann::json::parse(ReadRegularFile(path, ExitCode::kDataError, kMostFileBytes));
    return JobFiles::Summary{json.value("job", ""), json.at("exit_code").get<int>(),
                             json.value("reason", "")};
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitCode::kDataError, path + ": not a job's summary, or cut off");
  }
}

std::string ReadMonitor(const std::string& path) {
  if (!fs::exists(path)) return "";
  const std::string text = ReadRegularFile(path, ExitCode::kDataError);
  return text.substr(0, text.find('\n'));
}

std::string NameOf(const std::string& path, std::string_view ending) {
  const std::string name = fs::path(path).filename().string();
  return name.substr(0, name.size() - ending.size());
}

// Calls what reads a file; what can't be read is no reason to know nothing.
template <typename Read>
void Try(JobFiles& job, const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    job.unreadable.push_back(error.what());
  }
}

}  // namespace

JobFiles ReadJobFiles(const std::string& directory) {
  if (!fs::is_directory(directory)) {
    throw ConfigError(directory +
                      ": there is no such directory; name the output directory of a "
                      "job (--out of poseidon run, out/NAME of the job by default)");
  }
  JobFiles job;
  for (const std::string& path : FilesOf(directory, kEvents)) {
    Try(job, [&] {
      const std::string text = ReadRegularFile(path, ExitCode::kDataError, kMostFileBytes);
      job.events.push_back(ParseEventFile(text, path));
    });
  }
  std::ranges::sort(job.events, {}, &EventFile::node);
  job.traces = FilesOf(directory, kTrace);
  Try(job, [&] { job.summary = ReadSummary(directory + "/summary.json"); });
  Try(job, [&] { job.monitor = ReadMonitor(directory + kMonitor); });
  for (const std::string& path : FilesOf(directory + "/logs", kLog)) {
    Try(job, [&] {
      CheckRegularFile(path, ExitCode::kDataError);
      job.logs[NameOf(path, kLog)] = Printable(LastLines(path, kLastLines));
    });
  }
  const bool is_job = !job.events.empty() || !job.traces.empty() || job.summary.has_value() ||
                      !job.logs.empty() || !job.unreadable.empty();
  if (!is_job) {
    throw ConfigError(directory +
                      ": has neither summary.json nor logs nor events of a job; name "
                      "the output directory of one (--out of poseidon run)");
  }
  job.clocks = EstimateClocks(job.events);
  return job;
}

std::vector<ClockEstimate> EstimateClocks(const std::vector<EventFile>& files) {
  std::vector<int> clock_of;
  std::vector<std::string> names;
  for (const EventFile& file : files) {
    // A machine that does not tell has a clock of its own.
    const std::string name = file.clock.empty() ? file.node.ToString() : file.clock;
    const auto known = std::ranges::find(names, name);
    clock_of.push_back(static_cast<int>(known - names.begin()));
    if (known == names.end()) names.push_back(name);
  }
  std::vector<ClockReading> readings;
  for (const FramePair& pair : PairFrames(files)) {
    const int from = clock_of[pair.sender];
    const int to = clock_of[pair.receiver];
    if (from != to) readings.push_back({from, to, pair.sent->time, pair.arrived->time});
  }
  const auto clocks = EstimateClocks(static_cast<int>(names.size()), readings);
  std::vector<ClockEstimate> estimates;
  for (size_t i = 0; i < files.size(); ++i) {
    estimates.push_back(clocks[static_cast<size_t>(clock_of[i])]);
    // By the wall clocks, where no frames tell.
    if (!estimates.back().known) {
      estimates.back().offset = files.front().wall_clock - files[i].wall_clock;
    }
  }
  return estimates;
}

}  // namespace poseidon
