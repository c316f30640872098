// What a server does where its tables are larger than the memory that it may use: which of its values lie in a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/cluster/ranks/context.h"
#include "tessera/session/values/values.h"
#include "tessera/train/options/model_options.h"

namespace tessera::train {

// Rows that a server keeps, of a parameter or a state, as it will hold them.
struct ServedValue {
  std::string name;
  Type type;
  bool is_state = false;  // of the optimizer
};

// Those that lie in a file, so that the others take no more than `limit_bytes`: the largest first, of equally large
// ones states before parameters, which are looked up, too.
std::vector<session::Values::Spilled> choose_spilled(std::span<const ServedValue> values, int64_t limit_bytes);

// Has the limit of a server's values count on servers, and on them alone. Says on rank 0 where it has no effect. Throws
// InvalidArgument for a negative one.
void limit_values_of_servers(ModelOptions& options, const cluster::Context& context);

}  // namespace tessera::train
