// What every function of the C interface (include/poseidon/poseidon.h) is carried out by: an
// exception becomes an exit code and a text, calls with one handle wait for each other, and a child
// process does not touch what its parent made.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "core/error.h"
#include "core/own_process.h"
#include "poseidon/poseidon.h"
#include "poseidon/rewound.h"

namespace poseidon {

// Before the first handle is made: what the library logs goes to stderr, from warnings on.
void SetUpLog();

// Text of a C caller; empty for null.
std::string TextOf(const char* text);

// Empty for null.
std::function<bool()> InterruptedBy(poseidon_interrupted interrupted, void* context);

constexpr int kUnknownFailure = static_cast<int>(ExitCode::kFailure);

// Sets the thread's poseidon_last_error; returns the code.
int Failed(int code, const std::string& message);

// 0, or what the action has thrown: an exit code, POSEIDON_REWOUND or POSEIDON_LEFT.
template <typename Action>
int CCall(const Action& action) {
  try {
    action();
    return 0;
  } catch (const Rewound& rewound) {
    return Failed(POSEIDON_REWOUND, rewound.what());
  } catch (const Left& left) {
    return Failed(POSEIDON_LEFT, left.what());
  } catch (const Error& error) {
    return Failed(static_cast<int>(error.exit_code()), error.what());
  } catch (const std::exception& error) {  // std::bad_alloc
    return Failed(kUnknownFailure, std::string("the C interface failed: ") + error.what());
  } catch (...) {
    return Failed(kUnknownFailure, "the C interface failed for an unknown reason");
  }
}

// What a handle of the C interface points at: an Object of the process that made it. The type that
// the caller knows derives from it.
template <typename Object>
class CHandle {
 public:
  template <typename Options>
  explicit CHandle(const Options& options) {
    SetUpLog();
    object_ = std::make_unique<Object>(options);
  }

  // In a forked child the threads behind the object are not there, so nothing is destroyed; nor is
  // the lock free if another thread was in a call.
  virtual ~CHandle() {
    if (!process_.IsThis()) {
      static_cast<void>(object_.release());
      return;
    }
    const std::lock_guard lock(mutex_);
    object_.reset();
  }
  CHandle(const CHandle&) = delete;
  CHandle& operator=(const CHandle&) = delete;

  // Throws Error in a forked child, and to a signal's handler that is run by whoever is asked
  // whether a call is interrupted: the object is in the midst of that call.
  template <typename Action>
  void With(const Action& action) {
    process_.Check("this handle");
    std::unique_ptr<CHandle> freed;  // after the lock is
    const std::lock_guard lock(mutex_);
    if (in_call_) {
      throw Error(ExitCode::kFailure,
                  "called by a signal's handler while another call with this handle is under way; "
                  "let the handler set a flag, and act on it between iterations");
    }
    const CallUnderWay call(*this, freed);
    action(*object_);
  }

  // For who wants to destroy the handle: whether a call waits in this thread, as where a signal's
  // handler destroys it. That call then frees the handle when it returns; else the caller is to.
  bool IsLeftToCall() {
    if (!process_.IsThis()) return in_call_;
    const std::lock_guard lock(mutex_);
    is_destroyed_ = in_call_;
    return in_call_;
  }

  // What the object answers; in a forked child `otherwise`. Whoever is asked whether a call is
  // interrupted may run a signal's handler that comes here, too.
  template <typename Number, typename Getter>
  Number Get(Number otherwise, const Getter& getter) const {
    if (!process_.IsThis()) return otherwise;
    const std::lock_guard lock(mutex_);
    return getter(*object_);
  }

 private:
  // With's, under the lock; also an exception ends it.
  class CallUnderWay {
   public:
    CallUnderWay(CHandle& handle, std::unique_ptr<CHandle>& freed)
        : handle_(handle), freed_(freed) {
      handle_.in_call_ = true;
    }
    ~CallUnderWay() {
      handle_.in_call_ = false;
      if (handle_.is_destroyed_) freed_.reset(&handle_);
    }
    CallUnderWay(const CallUnderWay&) = delete;
    CallUnderWay& operator=(const CallUnderWay&) = delete;

   private:
    CHandle& handle_;
    std::unique_ptr<CHandle>& freed_;
  };

  const OwnProcess process_;
  mutable std::recursive_mutex mutex_;
  bool in_call_ = false;
  bool is_destroyed_ = false;  // while in_call_
  std::unique_ptr<Object> object_;
};

// With for a handle that may be null.
template <typename Handle, typename Action>
int CCallWith(Handle* handle, const Action& action) {
  return CCall([&] {
    if (handle == nullptr) throw Error(ExitCode::kFailure, "the handle is null");
    handle->With(action);
  });
}

// Destroys a handle, which may be null, at once or when the call that waits in this thread returns.
template <typename Handle>
void CDestroy(Handle* handle) {
  CCall([&] {
    if (handle != nullptr && !handle->IsLeftToCall()) delete handle;
  });
}

// Get for a handle that may be null.
template <typename Handle, typename Number, typename Getter>
Number CGet(const Handle* handle, Number otherwise, const Getter& getter) {
  return handle == nullptr ? otherwise : handle->Get(otherwise, getter);
}

}  // namespace poseidon
