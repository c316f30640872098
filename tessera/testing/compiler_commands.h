// Runs the commands of the compiler's golden files (golden.h).
#pragma once

#include <string>

namespace tessera::testing_support {

// The compiler's commands. Every graph that they read or print is checked: parse(print(g)) prints equally.
//   parse                       the graph as it is printed
//   verify                      "sound", or the list of all faults
//   dce, cse, fold, simplify (fold, cse, dce)                one pass
//   fuse [NAMES]                the fusions of these names (elementwise,...), or all
//   wide                        results that are only cast to f32 stay f32
//   precision DTYPE [low_norms] [all]                        the rewrite for mixed precision
//   layouts                     which values are channels-last
//   gradients Y [of X ...]      results dX of sum(Y); default: of every floating input
//   plan MESH HINTS             shardings; MESH: data=4 model=2, HINTS: x=[data,_] label=[data]
//   verify_plan MESH HINTS EDITS   "sound", or the faults of the plan when it says: %2=[_]+data of a value, %2.0=[_,_]
//                               of operand 0 of the node that makes it, return.y=[data] of a result
//   local MESH HINTS rank=R     that rank's graph; bucket=BYTES closes buckets there
//   order MESH HINTS            the list of collectives; refuses ranks that differ
//   schedule MESH HINTS rank=R  for the fake kernels; `unfused` or `fusions=NAMES`, `debug` (every value in
//                               memory of its own), `row_major`, `kept=NAME` leaves a parameter out of the session
// HINTS may be partial: x=[_,_]+data. `semi_auto` lets operators without a strategy split the batch, `propagate` lets
// them take over those of their neighbours; `optimizer_shard=NAME` shares a parameter's rows, between
// `optimizer_shard_size=N` ranks; `partial_state=NAME` may hold sums that are not completed.
// `all_reduce_fusion=`, `all_gather_fusion=`, `reduce_scatter_fusion=` off, size:BYTES or index:2,5;
// `fusion_id=NAME:ID`; `prefetch=BYTES` limits what is gathered ahead. "A | B" gives the text that A prints to B.
// Operators' defaults need not be written in the input.
std::string run_compiler_command(const std::string& input, const std::string& command);

}  // namespace tessera::testing_support
