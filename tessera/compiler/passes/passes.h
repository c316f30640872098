// The passes over graphs, each a pure function. simplify runs on the logical graph, before a plan is made; fuse on the
// local graph, which assign_layouts and make_schedule.h turn into a Schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

// Removes nodes whose results reach no output; collectives stay.
ir::Graph remove_dead_code(const ir::Graph& graph);
// Replaces a node that repeats an earlier one (operator, operands, attributes, not a collective) by it, within what is
// recomputed together.
ir::Graph merge_common_subexpressions(const ir::Graph& graph);
// Evaluates scalar arithmetic on fill nodes, and drops what changes nothing: x*1, x+0, cast to the same type,
// stop_gradient, custom_gradient, transposes and reshapes that keep everything.
ir::Graph fold_constants(const ir::Graph& graph);

// Lets operators that add up half types in f32 keep that (attribute result_dtype) where their result is only read by
// casts to f32, which then fall away.
ir::Graph keep_results_wide(const ir::Graph& graph);

// The fusions of compile(), in the order in which they run; each is a pass of its own and can be switched off.
struct Fusions {
  bool batch_norm_statistics = true;
  bool batch_norm = true;
  bool matmul = true;
  bool matmul_epilogues = true;
  bool elementwise = true;
  bool updates = true;

  static Fusions none() {
    return {.batch_norm_statistics = false,
            .batch_norm = false,
            .matmul = false,
            .matmul_epilogues = false,
            .elementwise = false,
            .updates = false};
  }
  // Those that are in these and in the others.
  Fusions both(const Fusions& others) const {
    return {.batch_norm_statistics = batch_norm_statistics && others.batch_norm_statistics,
            .batch_norm = batch_norm && others.batch_norm,
            .matmul = matmul && others.matmul,
            .matmul_epilogues = matmul_epilogues && others.matmul_epilogues,
            .elementwise = elementwise && others.elementwise,
            .updates = updates && others.updates};
  }
};

// "all", "none", or those to be made: "elementwise,...". Throws InvalidArgument that lists their names.
Fusions parse_fusions(const std::string& text);
// What parse_fusions() reads back: "all", "none" or names with commas between them.
std::string to_string(const Fusions& fusions);

// Runs the passes that are asked for, one after the other, on a graph whose images will lie channels-last or not.
ir::Graph fuse(const ir::Graph& local, const Fusions& fusions, bool channels_last = true);

// Makes mean and variance of images in one read, batch_norm_statistics, where the mean is all of what the variance
// needs. This and fuse_batch_norm leave images alone that are not channels-last.
ir::Graph fuse_batch_norm_statistics(const ir::Graph& local, bool channels_last = true);
// Joins batch_norm with the relu behind it, and with the add of a residual in between, into fused_batch_norm; and their
// gradients: the mask of relu goes into the sums and the cotangent of batch_norm, as does the sum of the cotangents of
// two branches.
ir::Graph fuse_batch_norm(const ir::Graph& local, bool channels_last = true);

// Joins a matmul with what is done to the elements of its product: a bias, a factor, another value of its shape, an
// activation that is not needed by itself; where each result has one reader.
ir::Graph fuse_matmul(const ir::Graph& local);
// Joins a matmul with what a library of products does in one kernel with it, all in the dtype of its result: at most
// one bias, at most one value of the product's own shape that is added, and behind these a gelu by tanh where that
// dtype is a half type. What fuse_matmul has joined it leaves alone.
ir::Graph fuse_matmul_epilogues(const ir::Graph& local);
// Joins elementwise nodes of f32 and half types of one shape whose inner results nobody else reads into
// fused_elementwise nodes, of at most `max_nodes` each: a longer chain keeps more operands alive than registers hold.
ir::Graph fuse_elementwise(const ir::Graph& local, int max_nodes = 24);
// Joins the updates of parameters of at most `max_bytes` each that one optimizer makes in the same way, and whose
// gradients arrive together, into one node: what starting each costs is then paid once. Larger ones are worth a start.
ir::Graph fuse_updates(const ir::Graph& local, int64_t max_bytes = 256 << 10);

// The strides of every value. Images (what convolutions and poolings touch, and what is elementwise with it) are
// channels-last in memory; everything else is row-major.
std::vector<Strides> assign_layouts(const ir::Graph& local, bool channels_last = true);

}  // namespace tessera::compiler
