// StrategyError: a strategy that does not fit its operator, its neighbours, the data or the ranks.
#pragma once

#include "tessera/base/error.h"

namespace tessera::mesh {

class StrategyError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

}  // namespace tessera::mesh
