// JournalFile: records that a program appends to a file and finds again when it is started anew,
// however it ended. One process has the file at a time.
//
// A record is there whole or not at all: what a process was writing when it died, or a disk had no
// room for, is cut off when the file is opened next. Everything else that is not as it was written
// is an error: nobody goes on from a file with a hole.
//
// The format: 256 bytes of text that say what the file is and who has it, then for each record its
// size (4 bytes), a checksum of these 4, a checksum of the record (8 bytes), and the record;
// numbers in the machine's byte order, checksums by XXH3.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace poseidon {

// Not thread-safe.
//
//   JournalFile journal("out/scheduler.journal", "the scheduler of the job \"lenet\"");
//   journal.ReadPast([](std::string_view record) { Apply(record); });
//   journal.Append("view 3");
//   journal.Sync();
class JournalFile {
 public:
  // Opens the file, which is made if it is not there, and reads it. `owner` says who has it, for
  // whoever comes later. Throws ConfigError if somebody has it, with who that is, if its file
  // system has no locks, or if it is not a journal; Error of kDataError if it is damaged; Error of
  // kFailure if it can't be read, written or, just now, locked.
  JournalFile(const std::string& path, const std::string& owner);
  ~JournalFile();
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  // Hands over what the file had when it was opened, record after record, until ForgetPast. It is
  // read again for that: a journal of a long job has gigabytes. Throws as the constructor does.
  void ReadPast(const std::function<void(std::string_view record)>& take) const;
  void ForgetPast() { past_bytes_ = 0; }
  // Bytes of a record that was not finished, which have been cut off; 0 if there was none.
  int64_t cut_bytes() const { return cut_bytes_; }

  // At most 1 GiB. The record survives the end of the process from now on, that of the machine
  // after Sync. Throws Error of kFailure that names the file and the cause ("No space left on
  // device"); the file is then as before.
  void Append(std::string_view record);
  void Sync();

 private:
  [[noreturn]] void Fail(const std::string& what) const;
  void Lock();
  [[noreturn]] void FailDamaged(int64_t at) const;
  // Looks through what the file has.
  void Read();
  void WriteHeader(const std::string& owner);
  void WriteAll(std::string_view bytes, int64_t at) const;

  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  int64_t cut_bytes_ = 0;
  int64_t past_bytes_ = 0;  // what ReadPast hands over ends there
};

// Reads a journal that another process has, while that writes it. Not thread-safe.
//
//   JournalFollower journal("out/scheduler.journal");
//   for (const std::string& record : journal.TakeNew()) Apply(record);
class JournalFollower {
 public:
  // The file need not be there yet.
  explicit JournalFollower(std::string path) : path_(std::move(path)) {}

  // Those that have come to be there since the last call, which is cheap where there are none. One
  // that is not whole comes in a later call, with all behind it; so nothing comes any more of a
  // file that is damaged or can't be read.
  std::vector<std::string> TakeNew();

 private:
  std::string path_;
  int64_t at_ = 0;  // bytes that were taken
};

}  // namespace poseidon
