// One rank of OpenMPI's all-reduce; started by mpirun. Algorithms: `automatic`, what OpenMPI picks
// by itself, and the numbers of coll_tuned_allreduce_algorithm, of which OpenMPI reads the one that
// is set when a communicator is made.
#include <gflags/gflags.h>
#include <mpi.h>

#include <map>
#include <stdexcept>

#include "tests/bench/network/all_reduce_cells.h"

DECLARE_string(out);

namespace poseidon::network {
namespace {

void SetControl(const char* name, int value) {
  int index = 0;
  MPI_T_cvar_handle handle = nullptr;
  int count = 0;
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS ||
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS ||
      MPI_T_cvar_write(handle, &value) != MPI_SUCCESS) {
    throw std::runtime_error(std::string("can't set OpenMPI's ") + name);
  }
  MPI_T_cvar_handle_free(&handle);
}

class MpiSystem : public System {
 public:
  MpiSystem() {
    int provided = 0;
    MPI_Init(nullptr, nullptr);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    FLAGS_out += std::to_string(rank_);
  }
  ~MpiSystem() override {
    MPI_T_finalize();
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::function<void()> Prepare(const std::string& algorithm, std::span<float> floats) override {
    const MPI_Comm communicator = CommunicatorOf(algorithm);
    return [communicator, floats] {
      MPI_Allreduce(MPI_IN_PLACE, floats.data(), static_cast<int>(floats.size()), MPI_FLOAT,
                    MPI_SUM, communicator);
    };
  }

 private:
  MPI_Comm CommunicatorOf(const std::string& algorithm) {
    const auto found = communicators_.find(algorithm);
    if (found != communicators_.end()) return found->second;
    SetControl("coll_tuned_allreduce_algorithm",
               algorithm == "automatic" ? 0 : std::stoi(algorithm));
    MPI_Comm_dup(MPI_COMM_WORLD, &communicators_[algorithm]);
    return communicators_[algorithm];
  }

  int rank_ = 0;
  int ranks_ = 0;
  std::map<std::string, MPI_Comm> communicators_;
};

}  // namespace
}  // namespace poseidon::network

int main(int argc, char** argv) {
  using namespace poseidon::network;
  return Main(argc, argv, [] {
    MpiSystem system;
    MeasureCells(system);
  });
}
