// Makes a solver of a stock BVLC Caffe 1.0 one of a job's workers, by Caffe's public callbacks.
//
//   const poseidon::CaffePatchOptions job = {.config = poseidon::ReadJobConfig("job.prototxt")};
//   std::shared_ptr<caffe::Solver<float>> solver(...);
//   const auto worker = poseidon::PatchSolver(*solver, job);
//   solver->Step(solver->param().max_iter() - solver->iter());
//   worker->Finish();
//
// Each worker computes as Caffe does alone, with the net's batch; its Data and HDF5Data layers read
// the records that Caffe's own solver_rank and solver_count give them; its own ApplyUpdate runs
// with the mean gradient of all workers. So P workers do what one Caffe with a batch P times as
// large does, with whatever solver. In CPU mode the parameters' diffs are in memory of the job,
// which uses them from a layer's after_backward to on_gradients_ready. Only worker 0 tests and
// writes snapshots, as in a Caffe with several GPUs.
//
// Thread safety: the thread that makes and runs the solver. Errors of core/error.h leave the
// solver's Step, unless options.on_error takes them. A child that the program forks can't train
// with the solver: that is such an error there, and its copy of the patch ends nothing of the job.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "proto/job_config.h"

namespace caffe {
template <typename Dtype>
class Solver;
}

namespace poseidon {

class Error;

struct CaffePatchOptions {
  JobConfig config;
  int wanted_rank = -1;  // -1: whichever is free
  std::string host;      // that other nodes reach this one at; empty: found out
  // For worker-RANK.trace.json, if the job wants a trace; empty: none.
  std::string trace_directory;
  // Takes errors that would leave Caffe's Step, where the program can't; must not return. May be
  // empty.
  std::function<void(const Error& error)> on_error;
};

class CaffePatch {
 public:
  // Joins the job; blocks until all nodes are there. Sets Caffe's solver_rank and solver_count of
  // this thread, which the data layers of nets made from now on obey.
  explicit CaffePatch(CaffePatchOptions options);
  ~CaffePatch();
  CaffePatch(const CaffePatch&) = delete;
  CaffePatch& operator=(const CaffePatch&) = delete;

  int rank() const;
  int workers() const;

  // The solver, which must outlive this, trains with the other workers from now on. Its parameters
  // are set to worker 0's when its first iteration starts. One solver.
  void Attach(::caffe::Solver<float>& solver);

  // What Solver::Solve does; Caffe itself lets only the first of several solvers do it. Only worker
  // 0 writes the last snapshot. Throws ConfigError if the snapshot is of max_iter already.
  void Solve(const char* resume_file);

  // After the last iteration: waits until the job has ended. Does nothing the second time. Throws
  // ConfigError if the solver has begun no iteration.
  void Finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Joins with a solver that has been made already: its train net is made anew, with the parameters
// that it has, so that the data layers read this worker's part, and with this worker's random
// numbers. (Whoever holds on to the old net has the old one. A LevelDB can't be opened twice: make
// a CaffePatch before the solver.)
std::unique_ptr<CaffePatch> PatchSolver(::caffe::Solver<float>& solver, CaffePatchOptions options);

}  // namespace poseidon
