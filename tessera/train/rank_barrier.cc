#include "tessera/train/rank_barrier.h"

#include "tessera/session/gather_texts.h"

namespace tessera::train {

std::vector<std::string> RankBarrier::exchange(const std::string& mine) {
  return session::gather_texts(group_, mine, "checkpoint");
}

}  // namespace tessera::train
