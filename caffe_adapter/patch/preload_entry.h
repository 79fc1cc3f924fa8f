// What libposeidon_caffe_preload.so calls of libposeidon_caffe.so, which it loads when the user's
// Caffe makes its first solver. C linkage, as they are looked up by name. Errors end the process
// with their exit code (core/error.h) and a message: the program knows nothing of them.
#pragma once

extern "C" {

// Before a solver is made: joins the job of the file `config`.
void PoseidonCaffeJoin(const char* config, int rank);
// The caffe::Solver<float> has been made.
void PoseidonCaffeAttach(void* solver);
// Instead of caffe::Solver<float>::Solve.
void PoseidonCaffeSolve(void* solver, const char* resume_file);
// The program ends.
void PoseidonCaffeFinish();

}  // extern "C"
