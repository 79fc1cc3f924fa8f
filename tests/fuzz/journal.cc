// A journal, its records, and what is appended behind them.
#include "core/files/journal_file.h"
#include "proto/journal.pb.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const poseidon::MemoryFile file(data, size);
  poseidon::ReadOrRefuse([&] {
    size_t count = 0;
    {
      poseidon::JournalFile journal(file.path(), "the fuzzer");
      journal.ReadPast([&count](std::string_view record) {
        ++count;
        poseidon::wire::JournalRecord().ParseFromArray(record.data(),
                                                       static_cast<int>(record.size()));
      });
      journal.Append("one more");
    }
    // Whatever the file was, what has been appended to it is found again.
    poseidon::JournalFile again(file.path(), "the fuzzer");
    std::vector<std::string> records;
    again.ReadPast([&records](std::string_view record) { records.emplace_back(record); });
    if (records.size() != count + 1 || records.back() != "one more") __builtin_trap();
  });
  return 0;
}
