#include "caffe_adapter/files/found_snapshot.h"

#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <system_error>
#include <vector>

#include "caffe_adapter/files/hdf5_file.h"
#include "core/error.h"
#include "core/paths/passing_error.h"
#include "core/text/listed.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

// The iteration of a file PREFIX_iter_N.solverstate or with .h5 behind.
std::optional<int64_t> IterationOf(std::string name, const std::string& prefix) {
  const std::string begin = prefix + "_iter_";
  if (!name.starts_with(begin)) return std::nullopt;
  if (name.ends_with(".h5")) name.resize(name.size() - 3);
  constexpr std::string_view kEnd = ".solverstate";
  if (!name.ends_with(kEnd)) return std::nullopt;
  const char* const first = name.data() + begin.size();
  const char* const last = name.data() + name.size() - kEnd.size();
  int64_t iteration = 0;
  const auto [end, error] = std::from_chars(first, last, iteration);
  if (error != std::errc() || end != last) return std::nullopt;
  return iteration;
}

// Nobody can tell now what is there: a file server may have gone for a moment. What this user may
// not read stays so until somebody lets it.
[[noreturn]] void FailToRead(const fs::path& path, const std::error_code& error) {
  const std::string message = "can't read " + path.string() + ": " + error.message();
  if (IsDenied(error.value())) {
    throw ConfigError(message + "; let user " + std::to_string(geteuid()) +
                      " read it and enter the directories above it (chmod, chown), or give "
                      "another snapshot_prefix");
  }
  throw Error(ExitCode::kFailure, message + "; this may pass, so try again");
}

bool MeansNotThere(const std::error_code& error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
}

// Throws as FailToRead does. A path that is too long leads nowhere, and what is in somebody else's
// directory, from where the snapshot was copied, is not there for this user.
bool IsThere(const fs::path& path) {
  std::error_code error;
  const bool is_there = fs::exists(path, error);
  const bool leads_nowhere =
      error == std::errc::filename_too_long || error == std::errc::permission_denied;
  if (error && !leads_nowhere) FailToRead(path, error);
  return is_there;
}

// Throws as FailToRead does where this user may not read it: to whoever reads it that is what is
// wrong with the file, as that it was cut off.
void CheckMayRead(const fs::path& path) {
  if (access(path.c_str(), R_OK) == 0 || !IsDenied(errno)) return;
  FailToRead(path, {errno, std::generic_category()});
}

// Solverstates with the prefix, by iteration, the newest first: up to two of an iteration, as jobs
// may have written into both formats.
std::multimap<int64_t, fs::path, std::greater<>> NewestFirst(const std::string& prefix) {
  const fs::path directory =
      fs::path(prefix).has_parent_path() ? fs::path(prefix).parent_path() : fs::path(".");
  std::multimap<int64_t, fs::path, std::greater<>> newest_first;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto iteration = IterationOf(name, fs::path(prefix).filename().string());
    if (iteration) newest_first.emplace(*iteration, entry->path());
  }
  if (error && !MeansNotThere(error)) FailToRead(directory, error);
  return newest_first;
}

// Throws DataError where one of its files was cut off. A binary one can be read still if that was
// between two layers, or blobs of history, but a solver keeps the same for each of the model's
// blobs. HDF5's library finds it out itself.
void CheckWhole(const FoundSnapshot& snapshot) {
  if (IsHdf5Path(snapshot.model)) {
    const Hdf5File opened(snapshot.model);
    return;
  }
  const std::vector<int64_t> counts = LearnableCounts(snapshot.model);
  if (counts.empty()) {
    throw DataError(snapshot.model + ": has values for no layer: it was cut off");
  }
  const std::vector<HistoryBlob>& history = snapshot.state.history;
  bool is_whole = !history.empty() && history.size() % counts.size() == 0;
  for (size_t i = 0; is_whole && i < history.size(); ++i) {
    is_whole = std::ssize(history[i].values) == counts[i % counts.size()];
  }
  if (is_whole) return;
  throw DataError(snapshot.path + ": its " + std::to_string(history.size()) +
                  " blobs of history do not fit the " + std::to_string(counts.size()) +
                  " blobs of " + snapshot.model +
                  ": one of the files was cut off, or is of another training");
}

}  // namespace

void CheckLatestSnapshot(const Training& training, const Solver& solver) {
  if (training.snapshot() != "latest" || !solver.parameter.snapshot_prefix().empty()) return;
  throw ConfigError(solver.locate(""),
                    "there is no snapshot_prefix, so there is no latest snapshot; write where "
                    "snapshots go and how often, as snapshot_prefix: \"out/snapshots/net\" "
                    "snapshot: 100");
}

SnapshotFiles::SnapshotFiles(const std::string& prefix) {
  for (const auto& [iteration, path] : NewestFirst(prefix)) files_[path] = IdentityOf(path);
}

bool SnapshotFiles::Has(const fs::path& path) const {
  const auto file = files_.find(path);
  return file != files_.end() && file->second == IdentityOf(path);
}

SnapshotFiles::Identity SnapshotFiles::IdentityOf(const fs::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    const std::error_code error(errno, std::generic_category());
    if (!MeansNotThere(error)) FailToRead(path, error);
    return {};
  }
  return {status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

FoundSnapshot ReadSnapshot(const std::string& path) {
  FoundSnapshot found{path, ReadSolverState(path), ""};
  const fs::path recorded = found.state.learned_net;
  if (recorded.empty()) {
    throw DataError(path +
                    ": names no model with the values: it was cut off, or the training was "
                    "told to write none");
  }
  const fs::path beside = fs::path(path).parent_path() / recorded.filename();
  const bool is_beside = IsThere(beside);
  if (!is_beside && !IsThere(recorded)) {
    throw DataError(path + ": the model that it names, \"" + recorded.string() +
                    "\", is neither there nor beside it");
  }
  std::error_code ignored;  // of another place than the one from which it is taken
  if (is_beside && fs::exists(recorded, ignored) && !fs::equivalent(beside, recorded, ignored)) {
    LOG(WARNING) << path << " names the model " << recorded << "; taken is the one beside it, "
                 << beside;
  }
  found.model = (is_beside ? beside : recorded).string();
  return found;
}

void ReadSnapshotValues(const FoundSnapshot& snapshot, const NetDescription& net,
                        NetValues& values) {
  const CopiedLayers layers = ReadCaffemodel(snapshot.model, net, values);
  if (layers.kept.empty()) return;
  throw DataError(snapshot.model + ": lacks the values of " + Listed(layers.kept) +
                  ", and a snapshot has those " +
                  "of every layer: it was cut off, or is of another net; go on from another " +
                  "snapshot, or start from these values with --weights");
}

std::optional<std::string> FindLatestSnapshot(const std::string& prefix,
                                              const SnapshotFiles& earlier) {
  for (const auto& [iteration, path] : NewestFirst(prefix)) {
    if (earlier.Has(path)) continue;
    CheckMayRead(path);
    try {
      const FoundSnapshot snapshot = ReadSnapshot(path.string());
      CheckMayRead(snapshot.model);
      CheckWhole(snapshot);
      return path.string();
    } catch (const ConfigError&) {
      throw;
    } catch (const Error& error) {
      // It may be read another time, and training must not go back behind it for that.
      if (error.exit_code() == ExitCode::kFailure) throw;
      LOG(WARNING) << "passed over a snapshot: " << error.what();
    }
  }
  return std::nullopt;
}

std::string WhyNotTheNewest(const std::string& prefix, const std::string& chosen) {
  const std::optional<int64_t> highest =
      IterationOf(fs::path(chosen).filename().string(), fs::path(prefix).filename().string());
  std::string later;
  try {
    fs::file_time_type newest = fs::last_write_time(chosen);
    for (const auto& [iteration, path] : NewestFirst(prefix)) {
      std::error_code gone;
      const fs::file_time_type written = fs::last_write_time(path, gone);
      if (gone || !highest || iteration >= *highest || written <= newest) continue;
      newest = written;
      later = path.string();
    }
  } catch (const std::exception&) {
    return "";  // it is only a hint
  }
  if (later.empty()) return "";
  return chosen + " is of the highest iteration, but " + later +
         " was written after it, so they may be of two trainings, unless they were copied; to go "
         "on from that one, give --snapshot=" +
         later;
}

std::string WhatLiesInTheWay(const std::string& prefix) {
  std::string highest;
  try {
    const auto newest_first = NewestFirst(prefix);
    if (!newest_first.empty()) highest = newest_first.begin()->second.string();
  } catch (const Error&) {
    // Whoever writes there says what is wrong.
  }
  if (highest.empty()) return "";
  return "training starts at iteration 0, and there are snapshots of an earlier one with its "
         "snapshot_prefix, up to " +
         highest +
         ": it writes over those of its own iterations, and --snapshot=latest would take the "
         "highest, whoever wrote it; give another prefix, or remove them, if they are not to be "
         "mixed";
}

}  // namespace poseidon
