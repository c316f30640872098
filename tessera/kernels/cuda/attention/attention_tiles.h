// What the kernels of attention and of its gradient share: tiles of queries and keys in a block's shared memory, where
// 16 x 16 threads hold a few scores each.
#pragma once

#include <string>

#include "tessera/kernels/attention_problem.h"
#include "tessera/kernels/cuda/core/device_program.h"

namespace tessera::cuda {

class AttentionTiles {
 public:
  // `query`: which operand it is; `num_fixed`: operands before the mask and the step. `tiles_of_queries` and
  // `tiles_of_keys`: how many tensors are kept for each. nullopt: not even the smallest tiles fit.
  static std::optional<AttentionTiles> make(const KernelRequest& request, size_t query, size_t num_fixed,
                                            int tiles_of_queries, int tiles_of_keys);

  const kernels::AttentionProblem& problem() const { return problem_; }
  int queries() const { return 16 * rows_; }  // of a tile
  int keys() const { return 16 * columns_; }
  int query_tiles() const { return static_cast<int>((problem_.queries + queries() - 1) / queries()); }
  int key_tiles() const { return static_cast<int>((problem_.keys + keys() - 1) / keys()); }
  int64_t pairs() const { return problem_.batch * problem_.heads; }

  // Types, constants (QUERIES, KEYS, DEPTH, ...), and functions: load_tile, dot_tiles, score, kept.
  std::string functions_text() const;
  // "T name[rows][PITCH];", in shared memory.
  std::string tile_text(const std::string& name, int rows) const;
  // Has the threads of a block load rows of an operand into a tile: tokens from `first` on, of `tokens`.
  std::string load_text(const std::string& tile, const std::string& pointer, const TensorView& view, int rows,
                        const std::string& first, int64_t tokens, int64_t width) const;
  // The text declares row and head of block number blockIdx.x / tiles, tile (blockIdx.x % tiles), tx and ty.
  std::string begin_text(int tiles) const;
  // The expressions of the address of one feature.
  static std::string feature(const TensorView& view, const std::string& token, const std::string& i);

 private:
  AttentionTiles(const KernelRequest& request, size_t query, size_t num_fixed);

  const KernelRequest& request_;
  kernels::AttentionProblem problem_;
  std::string type_;     // of what is computed
  std::string element_;  // of the operands
  int rows_ = 4;         // scores of a thread: rows x columns
  int columns_ = 4;
};

}  // namespace tessera::cuda
