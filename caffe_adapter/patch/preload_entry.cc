#include "caffe_adapter/patch/preload_entry.h"

#include <unistd.h>

#include <caffe/caffe.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>

#include "caffe_adapter/patch/caffe_patch.h"
#include "core/error.h"

namespace poseidon {
namespace {

// The process's one worker, here because functions that the preloaded library looks up by name have
// no object that could keep it. Never destroyed: Caffe's threads may outlive main.
CaffePatch* worker = nullptr;
// A process makes one solver that trains; others would need a job of their own.
bool attached = false;

[[noreturn]] void End(const Error& error) {
  std::cerr << "poseidon: " << error.what() << std::endl;
  _exit(static_cast<int>(error.exit_code()));
}

template <typename Action>
void EndOnError(Action action) {
  try {
    action();
  } catch (const Error& error) {
    End(error);
  } catch (const std::exception& error) {
    End(Error(ExitCode::kFailure, error.what()));
  }
}

}  // namespace
}  // namespace poseidon

using poseidon::attached;
using poseidon::EndOnError;
using poseidon::worker;

void PoseidonCaffeJoin(const char* config, int rank) {
  EndOnError([&] {
    if (worker != nullptr) {
      throw poseidon::Error(poseidon::ExitCode::kFailure,
                            "the program makes a second solver; a worker trains one");
    }
    const char* const host = std::getenv("POSEIDON_HOST");
    worker = new poseidon::CaffePatch(
        {.config = poseidon::ReadJobConfig(config),
         .wanted_rank = rank,
         .host = host == nullptr ? "" : host,
         .trace_directory = std::filesystem::path(config).parent_path().string(),
         .on_error = poseidon::End});
  });
}

void PoseidonCaffeAttach(void* solver) {
  EndOnError([&] { worker->Attach(*static_cast<caffe::Solver<float>*>(solver)); });
  attached = true;
}

void PoseidonCaffeSolve(void* solver, const char* resume_file) {
  static_cast<void>(solver);
  EndOnError([&] {
    worker->Solve(resume_file);
    worker->Finish();
  });
}

void PoseidonCaffeFinish() {
  if (attached) EndOnError([] { worker->Finish(); });
}
