#include "tessera/nn/transformer/parallel.h"

#include "tessera/base/error.h"

namespace tessera::nn {

void check_divisible(const char* who, const char* what, int64_t size, const char* by, int64_t parts) {
  if (size < 1 || parts < 1) {
    throw InvalidArgument("{}: {} and {} must be at least 1, got {} and {}", who, what, by, size, parts);
  }
  if (size % parts != 0) {
    throw InvalidArgument("{}: {} must be a multiple of {}, got {} and {}", who, what, by, size, parts);
  }
}

int64_t model_parts(const TransformerParallel& parallel) { return parallel ? parallel->model_parallel : 1; }

}  // namespace tessera::nn
