// All-reduce along the dimensions of a grid of workers: IBM's X x Y x Z (Cho et al. 2017, "PowerAI
// DDL", arXiv 1708.02188) and, with two dimensions, Sony's torus (Mikami et al. 2018, arXiv
// 1811.05233).
//
// A reduce-scatter along each dimension in turn, each on what the one before left of the range,
// then the all-gathers in reverse order. With rings of p_0, p_1, ... workers that is 2 sum (p_i -
// 1) steps instead of 2 (product p_i - 1) and as many bytes; after the first dimension only 1/p_0
// of the bytes are left for the others, so the fastest links are best made the first dimension.
// Chunk c starts in dimension c mod D, so that over D chunks the links of all dimensions are busy.
//
// A dimension may use the ring or halving and doubling, the latter of any size: workers of its
// smaller binary blocks then own nothing after its reduce-scatter, and the lines of the other
// dimensions through them stand still. Pure functions.
#pragma once

#include "collectives/schedule.h"

namespace poseidon {

Schedule TorusAllReduce(const Plan& grid, int chunk, Range range, int rank, int workers);

}  // namespace poseidon
