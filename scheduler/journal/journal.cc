#include "scheduler/journal/journal.h"

#include <string_view>

#include "core/error.h"

namespace poseidon {
namespace {

// False: it is not one that this version knows. To Protobuf a field of another version is no error.
bool Parse(std::string_view bytes, wire::JournalRecord& record) {
  return record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
         record.record_case() != wire::JournalRecord::RECORD_NOT_SET &&
         record.GetReflection()->GetUnknownFields(record).empty();
}

}  // namespace

Journal::Journal(const std::string& path, const Owner& owner)
    : file_(path, "the scheduler of the job \"" + owner.job_name + "\"") {
  bool is_readable = true;
  file_.ReadPast([&](std::string_view bytes) {
    wire::JournalRecord record;
    is_readable = is_readable && Parse(bytes, record);
    if (is_readable) state_.Apply(record);
  });
  const auto check_readable = [&] {
    if (is_readable) return;
    throw DataError(path + " has a record that this version of the program can't read; go on " +
                    "with the version that wrote it, or remove the file to begin anew");
  };
  if (!has_predecessor()) {
    check_readable();
    state_.base = owner.base;
    wire::JournalRecord job;
    job.mutable_job()->set_base(owner.base);
    job.mutable_job()->set_fingerprint(owner.fingerprint);
    job.mutable_job()->set_name(owner.job_name);
    job.mutable_job()->set_build(owner.build);
    Append(job);
  } else if (state_.fingerprint != owner.fingerprint) {
    throw ConfigError(path + " is of " +
                      (state_.name == owner.job_name ? "a job of this name with another config"
                                                     : "the job \"" + state_.name + "\"") +
                      ", which this config can't go on with; take that job's config, remove the "
                      "file to begin anew, or choose another --out");
  } else if (!state_.end && state_.build != owner.build) {
    // So are the job's nodes.
    throw ConfigError(path + " is of a scheduler of " +
                      (state_.build.empty() ? "an earlier build" : "build " + state_.build) +
                      ", and this is build " + owner.build +
                      "; start that one to go on with the job, remove the file to begin anew, or "
                      "choose another --out");
  }
  check_readable();
  wire::JournalRecord term;
  term.mutable_term()->set_number(state_.term + 1);
  Append(term);
  Sync();
}

void Journal::TakePast(const std::function<void(const wire::JournalRecord&)>& take) {
  file_.ReadPast([&take](std::string_view bytes) {
    wire::JournalRecord record;
    if (Parse(bytes, record)) take(record);
  });
  file_.ForgetPast();
}

void Journal::Append(const wire::JournalRecord& record) {
  file_.Append(record.SerializeAsString());
}

}  // namespace poseidon
