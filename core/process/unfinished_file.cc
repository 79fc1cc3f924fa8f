#include "core/process/unfinished_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>

#include "core/process/blocked_signals.h"

namespace poseidon {
namespace {

// kBusy: it is being made or given its name.
enum class SlotState { kFree, kBusy, kSet, kTaken };

struct Slot {
  std::atomic<SlotState> state{SlotState::kFree};
  std::array<char, PATH_MAX> path;
};

// What a signal handler does can only be kept where it finds it without an argument. A slot's path
// changes only while it is kBusy, and the handler reads it only once it has made it kTaken.
constexpr int kSlots = 64;
std::array<Slot, kSlots> slots;
std::atomic<bool> ending{false};
static_assert(std::atomic<SlotState>::is_always_lock_free, "a signal handler must not lock");

bool Move(Slot& slot, SlotState from, SlotState to) {
  return slot.state.compare_exchange_strong(from, to);
}

// For opening or renaming a file, which takes milliseconds where disks answer.
constexpr std::chrono::seconds kTimeForBusy(1);

[[noreturn]] void WaitForTheEnd() {
  while (true) pause();
}

// For whoever has just made the slot kBusy; `before`: what it was. The handler sets `ending` first
// and looks at the slots then, so one of the two sees the other.
void EndIfEnding(Slot& slot, SlotState before) {
  if (!ending) return;
  slot.state = before;
  WaitForTheEnd();
}

}  // namespace

UnfinishedFile::UnfinishedFile(const std::function<std::string()>& make) {
  const BlockedSignals blocked;  // the handler would wait for the thread that it runs on
  for (int i = 0; i < kSlots && slot_ < 0; ++i) {
    if (Move(slots[i], SlotState::kFree, SlotState::kBusy)) slot_ = i;
  }
  if (slot_ < 0) {
    path_ = make();
    return;
  }
  Slot& slot = slots[slot_];
  EndIfEnding(slot, SlotState::kFree);
  try {
    path_ = make();
  } catch (...) {
    slot.state = SlotState::kFree;
    throw;
  }
  const bool fits = path_.size() < slot.path.size();
  if (fits) std::memcpy(slot.path.data(), path_.c_str(), path_.size() + 1);
  slot.state = fits ? SlotState::kSet : SlotState::kFree;
  if (!fits) slot_ = -1;
}

UnfinishedFile::~UnfinishedFile() {
  if (slot_ >= 0) Move(slots[slot_], SlotState::kSet, SlotState::kFree);
}

int UnfinishedFile::FinishAs(const std::string& name) { return Rename(name, 0); }

int UnfinishedFile::ExchangeWith(const std::string& name) { return Rename(name, RENAME_EXCHANGE); }

int UnfinishedFile::Rename(const std::string& name, unsigned flags) {
  const auto rename = [&] {
    const int code = renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, name.c_str(), flags);
    return code == 0 ? 0 : errno;
  };
  if (slot_ < 0) return rename();
  Slot& slot = slots[slot_];
  const BlockedSignals blocked;
  if (!Move(slot, SlotState::kSet, SlotState::kBusy)) WaitForTheEnd();
  EndIfEnding(slot, SlotState::kSet);
  const int error = rename();
  const bool finished = error == 0 && flags != RENAME_EXCHANGE;
  slot.state = finished ? SlotState::kFree : SlotState::kSet;
  if (finished) slot_ = -1;
  return error;
}

void RemoveUnfinishedFiles() noexcept {
  ending = true;
  const auto busy = [](const Slot& slot) { return slot.state == SlotState::kBusy; };
  // A directory that is getting its name keeps what is in it.
  using Clock = std::chrono::steady_clock;
  const Clock::time_point give_up = Clock::now() + kTimeForBusy;
  while (std::any_of(slots.begin(), slots.end(), busy) && Clock::now() < give_up) {
    poll(nullptr, 0, 1);
  }
  for (Slot& slot : slots) {
    if (Move(slot, SlotState::kSet, SlotState::kTaken)) unlink(slot.path.data());
  }
  // What is a directory is so still.
  for (Slot& slot : slots) {
    if (slot.state == SlotState::kTaken) rmdir(slot.path.data());
  }
}

}  // namespace poseidon
